"""Upload local tables to Spark, and replace DataFrames that Penstock has made by their queries.

DataFrame rows have no position, so the position of uploaded rows is added as a column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.api.stream import Stream
from penstock.expr.nodes import Column, Field
from penstock.plan.nodes import Plan, Project, Source, Union, ordered
from penstock.plan.schema import schema_of, source_schema, sources_of, tables_of, time_of
from penstock.runtime.source_stage import implied_times
from penstock.sources.bound import Bound
from penstock.spark.bound import BoundDataFrame, Origin, bound_for, zone_of
from penstock.spark.order import in_order
from penstock.spark.split_plan import hidden_names, stored, with_sources
from penstock.spark.types import deliverer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_here(bound: Bound) -> bool:
    """Check that data is bounded and in this process, neither in files nor in Spark."""
    return not (isinstance(bound, BoundDataFrame) or hasattr(bound, "dataset") or hasattr(bound, "endless"))


def handed_over(
    stream: Stream, bound: Mapping[str, Bound], spark: SparkSession
) -> tuple[Stream, dict[str, Bound]]:
    """Convert local tables to DataFrames, and rewrite the query to read them.

    Rows get a time column, if the time is implied, and a position column, which orders rows of equal time as in this process.
    """
    here = [source for source in sources_of(stream.plan) if is_here(bound[source.name])]
    if not here:
        return stream, dict(bound)
    placed = _can_be_placed(stream.plan)
    changed = {source.name: _with_place(source) if placed else stored(source) for source in here}
    found, first = dict(bound), 0
    for source in here:
        table = _table(bound[source.name], source, changed[source.name], first)
        found[source.name] = bound_for(_frame(spark, table), changed[source.name])
        first += table.num_rows
    return Stream(_rebuilt(stream.plan, changed), stream.data), found


def _can_be_placed(plan: Plan) -> bool:
    """Check that positions can replace the sequence. A union compares the sequences of several streams, so there they cannot."""
    return not any(isinstance(node, Union) for node in ordered(plan))


def _with_place(source: Source) -> Source:
    """Add a position column to a source, as its sequence."""
    whole = stored(source)
    (name,) = hidden_names(whole.schema, 1)
    return replace(whole, schema=whole.schema.append(pa.field(name, pa.int64())), sequence=name)


def _rebuilt(plan: Plan, changed: Mapping[str, Source]) -> Plan:
    return with_sources(plan, lambda source: _narrowed(source, changed.get(source.name, source)))


def _narrowed(source: Source, changed: Source) -> Plan:
    """Project away the position column."""
    if changed.sequence == source.sequence:
        return changed
    names = source_schema(source).names
    return Project(changed, tuple(Field(name, Column(name)) for name in names), source.time.column)


def _table(bound: Bound, source: Source, changed: Source, first: int) -> pa.Table:
    table = pa.Table.from_batches(bound.batches(), bound.schema)
    if source.time.implied:
        table = table.add_column(0, source.time.column, implied_times(source.time, 0, table.num_rows))
    if changed.sequence == source.sequence:
        return table
    places = np.arange(first, first + table.num_rows)
    return table.append_column(
        changed.schema.field(changed.sequence), pa.array(_ranked(table, source, places))
    )


def _ranked(table: pa.Table, source: Source, places: np.ndarray) -> np.ndarray:
    """Rank the positions by the sequence, if there is one, then by position."""
    if source.sequence is None:
        return places
    rows = pa.table({"sequence": table.column(source.sequence), "place": places})
    order = in_order(rows, "sequence", None).column("place").to_numpy() - (places[0] if len(places) else 0)
    ranks = np.empty_like(places)
    ranks[order] = places
    return ranks


def _frame(spark: SparkSession, table: pa.Table) -> object:
    deliver = deliverer(table.schema, zone_of(spark))
    batches = [deliver(batch) for batch in table.to_batches()] or [deliver(_nothing(table.schema))]
    return spark.createDataFrame(pa.Table.from_batches(batches))


def _nothing(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)


# --- Penstock behind Penstock ---------------------------------------------------------------------------------


def fused(stream: Stream, bound: Mapping[str, Bound]) -> tuple[Stream, dict[str, Bound]]:
    """Replace DataFrames that `to_spark` has made by their queries, so that one task computes both.

    Not so if results depend on the order of rows of equal time, which a DataFrame does not keep, or if its rows are cached.
    """
    origins = {
        source.name: data.origin
        for source in sources_of(stream.plan)
        if isinstance(data := bound[source.name], BoundDataFrame)
        and data.origin is not None
        and _can_be_fused(source, data, data.origin)
    }
    if not origins or stream.compiled().ordered:
        return stream, dict(bound)

    def inner(source: Source) -> Plan:
        if source.name not in origins:
            return source
        return with_sources(
            origins[source.name].stream.plan, lambda read: replace(read, name=f"{source.name}_{read.name}")
        )

    rest = {name: data for name, data in bound.items() if name not in origins}
    read = {f"{name}_{one}": data for name, origin in origins.items() for one, data in origin.bound.items()}
    known = {name: data for name, data in stream.data.items() if name not in origins}
    return Stream(with_sources(stream.plan, inner), known), {**rest, **read}


def _can_be_fused(source: Source, data: BoundDataFrame, origin: Origin) -> bool:
    plan, time = origin.stream.plan, time_of(origin.stream.plan)
    plain = source.sequence is None and source.lateness == 0 and source.on_bad == "drop"
    same_rows = _columns(schema_of(plan)) == _columns(source.schema) and time.stored == source.time
    return (
        plain
        and same_rows
        and source.edges.late_to is None
        and not (time.implied or tables_of(plan) or data.frame.is_cached)
    )


def _columns(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return [(field.name, field.type) for field in schema]
