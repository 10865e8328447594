"""Where Spark looks for the data source: it imports installed packages named pyspark_… and registers `DefaultSource`."""

from penstock.spark.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
