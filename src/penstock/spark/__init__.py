"""Run the same kernels inside Spark executors.

    frame.py       query.to_spark(spark): a DataFrame
    source.py      spark.read.format("penstock")
    planning.py    strategy and tasks of a query; slices.py cuts time, split_plan.py cuts the plan at the shuffle
    tasks.py       code that runs in executors; exchange.py is the format of shuffled payloads
    session.py     a local session with safe defaults; daemon.py starts its Python workers
    types.py       conversion between Arrow and Spark types

Modules here import pyspark on first use.
"""
