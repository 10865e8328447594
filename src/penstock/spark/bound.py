"""Bind a Spark DataFrame as the data of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.api.source_options import Folder, LateTo, edges_of
from penstock.api.sources import stream_of
from penstock.api.stream import Stream
from penstock.errors import SourceError
from penstock.plan.nodes import Source
from penstock.sources.arrow import is_frame
from penstock.sources.bound import Bound
from penstock.sources.conform import conformer
from penstock.spark.order import in_order, quoted, ties
from penstock.spark.types import arrow_schema
from penstock.types.arrow import checked
from penstock.types.duration import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Origin:
    """A query and its data, which ends."""

    stream: Stream
    bound: Mapping[str, Bound]


ORIGIN = "_penstock_origin"  # an attribute of DataFrames that Penstock has made


@dataclass(frozen=True, slots=True)
class BoundDataFrame:
    """A DataFrame, with the Arrow schema in which Spark delivers its rows.

    `batches` collects all rows into this process, ordered by time, sequence, then values. `origin` is the query whose
    result the DataFrame is, if Penstock made it.
    """

    frame: DataFrame
    schema: pa.Schema
    time: str | None = None
    sequence: str | None = None
    origin: Origin | None = None

    @property
    def rows(self) -> int | None:
        return None

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        names = list(self.schema.names if columns is None else columns)
        return self.ordered(names, names)

    def ordered(self, columns: Sequence[str], by: Sequence[str]) -> Iterator[pa.RecordBatch]:
        names = list(columns)
        table = self.frame.select(*map(quoted, names)).toArrow()
        schema = pa.schema([self.schema.field(name) for name in names])
        conform = conformer(table.schema, schema, names, "the DataFrame")
        whole = pa.Table.from_batches([conform(batch) for batch in table.to_batches()], schema)
        if self.time is not None and self.time in by:
            whole = in_order(whole, self.time, self.sequence, by)
        return iter(whole.combine_chunks().to_batches())

    def ties(self, batch: pa.RecordBatch) -> int:
        return 0 if self.time is None else ties(pa.Table.from_batches([batch]), self.time, self.sequence)


def zone_of(frame_or_session: Any) -> str:
    """Return the session's time zone."""
    session = getattr(frame_or_session, "sparkSession", frame_or_session)
    return str(session.conf.get("spark.sql.session.timeZone"))


def bound_frame(frame: Any, time: str | None = None, sequence: str | None = None) -> BoundDataFrame:
    """Bind a DataFrame."""
    schema = checked(arrow_schema(frame.schema, zone_of(frame)))
    return BoundDataFrame(frame, schema, time, sequence, vars(frame).get(ORIGIN))


def bound_for(frame: Any, source: Source) -> BoundDataFrame:
    """Bind a DataFrame to a declared stream, casting times to the declared types.

    Casts between TIMESTAMP and TIMESTAMP_NTZ use the session's time zone.
    """
    from pyspark.sql import functions as sf  # noqa: PLC0415 - Spark loads when it is used

    given = arrow_schema(frame.schema, zone_of(frame))
    columns = []
    for field in given:
        wanted = source.schema.field(field.name).type if field.name in source.schema.names else field.type
        column = sf.col(quoted(field.name))
        if pa.types.is_timestamp(field.type) and pa.types.is_timestamp(wanted):
            cast = "timestamp_ntz" if wanted.tz is None else "timestamp"
            column = column if (field.type.tz is None) == (wanted.tz is None) else column.cast(cast)
        columns.append(column.alias(field.name))
    return bound_frame(frame.select(*columns), source.time.column, source.sequence)


def from_spark(
    frame: Any,
    *,
    time: str,
    name: str | None = None,
    sequence: str | None = None,
    lateness: Duration | None = None,
    unit: str | None = None,
    on_bad: str = "drop",
    late_to: LateTo | None = None,
    quarantine_to: Folder | None = None,
    idle_after: Duration | None = None,
) -> Stream:
    """Create a stream from a Spark DataFrame. `to_spark` runs the query in Spark's executors.

    A DataFrame's rows have no order: rows of equal time are ordered by `sequence=`, then by their values. Without
    `lateness=`, the lateness is the delay of `withWatermark`.

    >>> import penstock as pk                                                          # doctest: +SKIP
    >>> trades = pk.from_spark(spark.table("trades"), time="ts", name="trades")        # doctest: +SKIP
    >>> trades.window("1m", by="symbol").agg(high=pk.max("price")).to_spark(spark)     # doctest: +SKIP
    """
    if not is_frame(frame):
        raise SourceError(
            f"a {type(frame).__name__} is not a Spark DataFrame; use pk.from_arrow for data in this process"
        )
    if not isinstance(time, str):
        raise SourceError("the rows of a DataFrame have no order that determines their time; name a column")
    bound = bound_frame(frame, time, sequence)
    lateness = _delay(frame, time) if lateness is None else lateness
    edges = edges_of(on_bad, late_to, quarantine_to, idle_after)
    return stream_of(name, bound.schema, time, sequence, lateness, unit, on_bad, bound, edges)


def _delay(frame: Any, time: str) -> Duration | None:
    """Read the delay of `withWatermark` from the column's metadata. Spark drops it from a bounded DataFrame."""
    column = next((field for field in frame.schema.fields if field.name == time), None)
    noted = None if column is None else column.metadata.get("spark.watermarkDelayMs")
    return None if noted is None else timedelta(milliseconds=noted)
