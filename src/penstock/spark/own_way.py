"""Windowed queries as Spark users write them without us: what the demo and the benchmark compare with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def windowed(
    frame: DataFrame, time: str, size: str, every: str, by: str, aggregates: dict[str, str]
) -> DataFrame:
    """Group by Spark's own window; aggregates are SQL, by name. Sizes are Spark's, such as "10 seconds"."""
    from pyspark.sql import functions as sf  # noqa: PLC0415 - Spark loads when it is used

    made = [sf.expr(text).alias(name) for name, text in aggregates.items()]
    grouped = frame.groupBy(sf.window(time, size, every), sf.col(by)).agg(*made)
    bounds = [sf.col(f"window.{end}").alias(f"window_{end}") for end in ("start", "end")]
    return grouped.select(*bounds, by, *aggregates)


def rolling_mean(frame: DataFrame, time: str, microseconds: int, by: str, value: str, name: str) -> DataFrame:
    """Average over a range frame of each row's key: (t - size, t]."""
    from pyspark.sql import Window  # noqa: PLC0415
    from pyspark.sql import functions as sf  # noqa: PLC0415 - Spark loads when it is used

    ticks = frame.withColumn("_ticks", sf.unix_micros(sf.col(time).cast("timestamp")))
    over = Window.partitionBy(by).orderBy("_ticks").rangeBetween(-(microseconds - 1), 0)
    return ticks.select(time, by, sf.avg(value).over(over).alias(name))


def fair(spark: SparkSession) -> None:
    """Let Spark use its better algorithm for range frames, which is off by default."""
    spark.conf.set("spark.sql.window.segmentTree.enabled", "true")


def consume(frame: Any) -> None:
    """Compute every row of a DataFrame and keep none."""
    frame.write.format("noop").mode("overwrite").save()
