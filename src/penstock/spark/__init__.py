"""The same kernels inside Spark executors.

    frame.py     query.to_spark(spark): a DataFrame
    source.py    spark.read.format("penstock")
    planning.py  how a query is divided among tasks, and why; slices.py cuts time, cut.py the query where rows are shuffled
    tasks.py     what runs in executors; exchange.py is what they hand to each other
    session.py   a local session with safe defaults; daemon.py starts its Python workers
    types.py     types of Arrow and of Spark

Nothing here imports pyspark before it is used.
"""
