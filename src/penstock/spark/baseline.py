"""Windowed queries in plain Spark: the baseline of the demo and the benchmark."""

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
    """Enable Spark's faster algorithm for range frames, which is off by default."""
    spark.conf.set("spark.sql.window.segmentTree.enabled", "true")


def consume(frame: Any) -> None:
    """Compute every row of a DataFrame and keep none."""
    frame.write.format("noop").mode("overwrite").save()


def as_of_by_union(left: DataFrame, right: DataFrame, time: str, by: str, kept: str, value: str) -> DataFrame:
    """Join each left row with the last value of its key, as tempo does: union both sides, then look back in time order."""
    from pyspark.sql import Window  # noqa: PLC0415
    from pyspark.sql import functions as sf  # noqa: PLC0415 - Spark loads when it is used

    types = {field.name: field.dataType for field in (*left.schema.fields, *right.schema.fields)}
    nothing = {name: sf.lit(None).cast(types[name]).alias(name) for name in (kept, value)}
    ours = left.select(time, by, kept, nothing[value], sf.lit(1).alias("_side"))
    theirs = right.select(time, by, nothing[kept], value, sf.lit(0).alias("_side"))
    over = Window.partitionBy(by).orderBy(time, "_side").rowsBetween(Window.unboundedPreceding, 0)
    seen = ours.union(theirs).select(
        time, by, kept, "_side", sf.last(value, ignorenulls=True).over(over).alias(value)
    )
    return seen.filter("_side = 1").drop("_side")


def within_interval(left: DataFrame, right: DataFrame, time: str, by: str, microseconds: int) -> DataFrame:
    """Join rows of one key whose right row is earlier by at most `microseconds`."""
    from pyspark.sql import functions as sf  # noqa: PLC0415 - Spark loads when it is used

    other = right.withColumnRenamed(time, f"{time}_right").withColumnRenamed(by, f"{by}_right")
    apart = sf.expr(f"interval {int(microseconds)} microseconds")
    same = sf.col(by) == sf.col(f"{by}_right")
    near = sf.col(f"{time}_right").between(sf.col(time) - apart, sf.col(time))
    return left.join(other, same & near).drop(f"{by}_right")


def sessions(frame: DataFrame, time: str, gap: str, by: str, aggregates: dict[str, str]) -> DataFrame:
    """Group by Spark's own sessions; aggregates are SQL, by name."""
    from pyspark.sql import functions as sf  # noqa: PLC0415 - Spark loads when it is used

    made = [sf.expr(text).alias(name) for name, text in aggregates.items()]
    grouped = frame.groupBy(sf.session_window(time, gap).alias("window"), sf.col(by)).agg(*made)
    return grouped.select(sf.col("window.start").alias("window_start"), by, *aggregates)


def rising(frame: DataFrame, time: str, by: str, value: str, short: int, long: int) -> DataFrame:
    """Mark the rows at which the mean of the key's last `short` rows is above that of its last `long` rows."""
    from pyspark.sql import Window  # noqa: PLC0415
    from pyspark.sql import functions as sf  # noqa: PLC0415 - Spark loads when it is used

    ordered = Window.partitionBy(by).orderBy(time)
    few, many = (sf.avg(value).over(ordered.rowsBetween(1 - rows, 0)) for rows in (short, long))
    return frame.select(time, by, (few > many).alias("up"))
