"""The same kernels inside Spark executors.

    frame.py     query.to_spark(spark): a DataFrame
    source.py    spark.read.format("penstock")
    strategy.py  how a query is divided among tasks, and why; slices.py cuts time, pieces.py cuts files
    tasks.py     what runs in executors; exchange.py is what they hand to each other
    session.py   a local session with safe defaults
    types.py     types of Arrow and of Spark

Nothing here imports pyspark before it is used.
"""
