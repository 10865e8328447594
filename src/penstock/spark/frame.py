"""Run a query as a Spark DataFrame: bind the data, choose a strategy, build the tasks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.analysis.partition_keys import key_places
from penstock.api.execute import bind_all, named_bindings, refuse_arrival
from penstock.api.literals import shown
from penstock.api.stream import Stream
from penstock.compile import Compiled
from penstock.errors import BindingError, EngineError
from penstock.expr.nodes import Column
from penstock.ir.nodes import Program, Reduce
from penstock.plan.codec import encode
from penstock.plan.nodes import Plan, Source
from penstock.plan.schema import schema_of, sources_of, tables_of
from penstock.sources.arrow import is_frame
from penstock.sources.bound import Bound
from penstock.spark.bound import ORIGIN, BoundDataFrame, Origin, bound_for, zone_of
from penstock.spark.deploy.settings import require_session
from penstock.spark.exchange import SPARK_SCHEMA
from penstock.spark.known_plans import known_plans, report_to_driver
from penstock.spark.order import quoted, ranked, spark_order
from penstock.spark.planning import Physical, planned
from penstock.spark.predicates import spark_filter
from penstock.spark.skew import Hot, hot_keys, largest_share, sampled_parts, stream_to_spread
from penstock.spark.slices import Piece, as_json, span_of, time_known
from penstock.spark.split_plan import cut, inputs_of
from penstock.spark.storage import Accesses, accesses_of
from penstock.spark.streaming.frame import Topology, is_streaming, needs_shards, require_keys
from penstock.spark.streaming.late_and_malformed import refuse_quarantine
from penstock.spark.streaming.topology import explained
from penstock.spark.streaming.update_mode import APPEND, require_mode
from penstock.spark.task_memory import UNBOUNDED, TaskMemory, task_memory, width_of
from penstock.spark.tasks import (
    Assemble,
    FoldTask,
    Named,
    OverFrame,
    OverParts,
    Query,
    Receive,
    RunTask,
    Send,
    run_task,
    shipped,
)
from penstock.spark.time_ranges import TimeRanges, time_ranges, times_in_files, times_in_frame
from penstock.spark.types import never_null, spark_schema
from penstock.spark.uploaded_tables import fused, handed_over, is_here
from penstock.state.format import encode_table
from penstock.types.windows import TimeWindow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def to_spark(
    stream: Stream,
    spark: SparkSession,
    data: Any,
    bindings: Mapping[str, Any],
    strategy: str | None,
    tasks: int | None,
    output_mode: str = APPEND,
    memory: object = None,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Return the result of a query as a DataFrame.

    Nothing runs before a Spark action, but for one small job per session and, before rows of a DataFrame are shuffled by
    time, one over its times.
    """
    if columns is not None:
        return _of_columns(stream, spark, data, bindings, strategy, tasks, output_mode, memory, columns)
    if not hasattr(spark, "createDataFrame"):
        raise EngineError(
            f"to_spark takes a SparkSession, such as pk.spark_session(), not a {type(spark).__name__}"
        )
    if tasks is not None and (isinstance(tasks, bool) or not isinstance(tasks, int) or tasks < 1):
        raise EngineError(f"tasks must be at least 1, and a whole number, not {shown(tasks)}")
    bound = bound_data(stream, data, bindings)
    streaming = is_streaming(bound)
    require_mode(output_mode, streaming)
    require_session(spark, streaming, tasks or parallelism(spark))
    if needs_shards(stream.compiled(), bound):
        require_keys(strategy)
        many, tables = tasks or parallelism(spark), packed_tables(stream)
        accesses = accesses_of(spark, stream.plan, bound)
        return Topology(spark, stream.compiled(), bound, many, tables, output_mode, accesses).frame()
    refuse_quarantine(stream.plan, bound)
    stream, bound = fused(*handed_over(stream, bound, spark))
    physical = planned(stream.compiled(), bound, strategy, tasks or parallelism(spark))
    accesses = {
        name: access for name, access in accesses_of(spark, stream.plan, bound).items() if access.given
    }
    limit = task_memory(spark, memory)
    made = Wiring(spark, physical, zone_of(spark), packed_tables(stream), accesses, limit).frame()
    setattr(made, ORIGIN, Origin(stream, bound))
    return made


def _of_columns(
    stream: Stream,
    spark: SparkSession,
    data: Any,
    bindings: Mapping[str, Any],
    strategy: str | None,
    tasks: int | None,
    output_mode: str,
    memory: object,
    columns: Sequence[str],
) -> DataFrame:
    """Compute only some columns. The time is computed too, and left out behind the query."""
    if isinstance(columns, str) or not columns:
        raise EngineError(f"columns= takes a list of column names of the result, not {shown(columns)}")
    some = to_spark(stream.select(*columns), spark, data, bindings, strategy, tasks, output_mode, memory)
    return some.select(*map(quoted, columns))


def explain(stream: Stream, tasks: int = 2) -> str:
    """Describe how a query would run on Spark over its bound data. Unbound streams are planned as DataFrames."""
    given = stream.data
    sources = {source.name: source for source in sources_of(stream.plan)}
    missing = {name: _imagined(source) for name, source in sources.items() if name not in given}
    bound = bind_all(stream, None, missing)
    known = known_plans().show(encode(stream.plan)[0])
    if needs_shards(stream.compiled(), {name: data for name, data in bound.items() if name not in missing}):
        return "\n".join([explained(stream.compiled()), *known])
    frames = {name: _imagined(sources[name]) if is_here(data) else data for name, data in bound.items()}
    return "\n".join([str(planned(stream.compiled(), frames, None, tasks)), *known])


def _imagined(source: Source) -> BoundDataFrame:
    not_asked: Any = None
    return BoundDataFrame(not_asked, source.schema)


def parallelism(spark: SparkSession) -> int:
    """Return the number of tasks that run in parallel. A Connect client reads it from the splits in the plan of a range."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001 - the exception type exists only in Connect
        plan = "\n".join(str(row[0]) for row in spark.sql("explain select * from range(1)").collect())
        found = re.search(r"splits=(\d+)", plan)
        return int(found[1] if found else str(spark.conf.get("spark.sql.shuffle.partitions")))


def packed_tables(stream: Stream) -> Named:
    """Encode the tables that a query joins as Arrow streams. They are shipped with the query to every task."""
    columns = stream.compiled().table_columns
    data = stream.data
    return tuple(
        (table.name, encode_table(_whole(data[table.name], columns[table.name], table.schema)))
        for table in tables_of(stream.plan)
    )


def _whole(bound: Bound, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
    wanted = pa.schema([schema.field(name) for name in columns])
    return pa.Table.from_batches(list(bound.batches(list(columns))), wanted)


# --- binding ------------------------------------------------------------------------------------------------


def bound_data(stream: Stream, data: Any, bindings: Mapping[str, Any]) -> dict[str, Bound]:
    """Bind data to every stream."""
    refuse_arrival(sources_of(stream.plan), "to_spark")
    sources = {source.name: source for source in sources_of(stream.plan)}
    given = named_bindings(sources, _sole(sources, data) if is_frame(data) else data, bindings)
    frames = {
        name: bound_for(argument, sources[name]) for name, argument in given.items() if is_frame(argument)
    }
    found = bind_all(stream, None, {**given, **frames})
    for name, bound in found.items():
        if isinstance(bound, BoundDataFrame):
            _require_times(sources[name])
    return found


def _sole(sources: Mapping[str, Source], data: Any) -> dict[str, Any]:
    if len(sources) != 1:
        raise BindingError(
            f"this query reads several streams; pass their DataFrames by name: {', '.join(sources)}"
        )
    return {next(iter(sources)): data}


def _require_times(source: Source) -> None:
    if source.time.implied:
        raise BindingError(
            f"stream {source.name!r} derives its time from row numbers, and rows of a DataFrame have none; "
            "store the time in a column"
        )


# --- wiring -------------------------------------------------------------------------------------------------


# A key with this many times the rows of a range of time, with its halo, makes ranges the better way.
LEAST_SKEW = 1.5
# Rows of a range take a nanosecond each to leave out.
MOST_ROWS_IN_A_PLAN = 1 << 26
_RANGE_ROW = 8  # bytes of a row of a range


def result_rows(program: Program, pieces: Sequence[Piece]) -> int:
    """Estimate the rows of a result: windows of the time of the data if they have no keys, else as many as are read."""
    rows = sum(piece.fragment.rows or 0 for piece in pieces)
    match program[program.output].body:
        case Reduce(domain=TimeWindow(every=every), keys=()) if time_known(pieces):
            return min(rows, span_of(pieces) // every + 1)
        case _:
            return rows


@dataclass(frozen=True, slots=True)
class Wiring:
    """Build DataFrames from a physical plan."""

    spark: SparkSession
    physical: Physical
    zone: str | None
    tables: Named = ()
    accesses: Accesses = field(default_factory=dict)
    memory: TaskMemory = UNBOUNDED

    def frame(self) -> DataFrame:
        match self.physical.choice.strategy:
            case "fragments":
                return self._fragments()
            case "keys":
                keys = self.physical.found.keys
                assert not isinstance(keys, str)
                ranges = self._ranges_for_skew(keys)
                return self._keys(keys, self.physical.shards) if ranges is None else self._times(ranges)
            case "times":
                return self._times(self._ranges())
            case "one" if self.physical.frames:
                return self._keys({}, 1)
            case _:
                return self._alone()

    @property
    def compiled(self) -> Compiled:
        return self.physical.compiled

    @property
    def schema(self) -> Any:
        return spark_schema(schema_of(self.compiled.plan), never_null(self.compiled.plan))

    def _query(self, plan: Plan | None = None) -> Query:
        objects = shipped(self.compiled.plan) if plan is None else ()
        return Query.of(
            plan or self.compiled.plan, objects, self.tables, self.memory, report_to_driver(self.spark)
        )

    def _alone(self) -> DataFrame:
        """Run the whole query in each task, without a shuffle."""
        return self._produced(
            run_task(self.compiled, self.tables, self.memory, self.zone, report_to_driver(self.spark)),
            self.schema,
        )

    def _fragments(self) -> DataFrame:
        assert isinstance(self.physical.found.fragments, tuple)
        first = self.physical.found.fragments
        keys = key_places(self.compiled.program, first[0]) if len(first) == 1 else ()
        shards = self.physical.tasks if keys else 1
        fold = FoldTask(self._query(), keys, shards)
        sent = self._produced(fold, SPARK_SCHEMA).repartition(shards, "shard")
        return sent.mapInArrow(Assemble(self._query(), self.zone), self.schema)

    def _keys(self, keys: Mapping[str, tuple[Any, ...]], shards: int) -> DataFrame:
        if len(self.physical.frames) == 1 and not self.physical.pieces:
            sorted_frame = self._sorted(keys, shards)
            if sorted_frame is not None:
                return sorted_frame
        made = cut(self.compiled, keys)
        senders = {name: (Query.of(sender.plan), sender.keys) for name, sender in made.senders.items()}
        send = Send(senders, shards)
        send = replace(send, hot=self._hot(send))
        sent = self._produced(send, SPARK_SCHEMA).repartition(shards, "shard")
        by_value = frozenset(self.physical.frames)
        return sent.mapInArrow(Receive(self._query(made.behind), self.zone, by_value), self.schema)

    def _ranges(self) -> TimeRanges:
        halo = self.physical.found.times
        assert not isinstance(halo, str)
        return time_ranges(halo, self._sampled_times(), self.physical.shards)

    def _ranges_for_skew(self, keys: Mapping[str, tuple[Any, ...]]) -> TimeRanges | None:
        """Return ranges of time if one key of the files has more rows than such a range; None to shuffle by key."""
        physical = self.physical
        unfit = physical.frames or physical.choice.forced or isinstance(physical.found.times, str)
        if unfit or physical.shards == 1 or stream_to_spread(self.compiled, physical.pieces) is not None:
            return None
        made = cut(self.compiled, keys)
        senders = {name: (Query.of(sender.plan), sender.keys) for name, sender in made.senders.items()}
        send = Send(senders, physical.shards)
        samples = (send.sample(stream, sampled_parts(physical.pieces, stream)) for stream in senders)
        share = max(map(largest_share, samples))
        if share <= LEAST_SKEW / physical.shards:
            return None
        ranges = self._ranges()
        return ranges if share * ranges.shards > LEAST_SKEW else None

    def _times(self, ranges: TimeRanges) -> DataFrame:
        """Shuffle rows by time, in ranges with their halos."""
        made = cut(self.compiled, {})
        senders = {name: (Query.of(sender.plan), 0) for name, sender in made.senders.items()}
        sent = self._produced(Send(senders, ranges.shards, ranges=ranges), SPARK_SCHEMA)
        by_value = frozenset(self.physical.frames)
        receive = Receive(self._query(made.behind), self.zone, by_value, ranges)
        return sent.repartition(ranges.shards, "shard").mapInArrow(receive, self.schema)

    def _sampled_times(self) -> Iterator[np.ndarray]:
        sources = {source.name: source for source in sources_of(self.compiled.plan)}
        yield from times_in_files(self.physical.pieces, sources)
        for stream, bound in self.physical.frames.items():
            yield times_in_frame(
                self._pruned(stream, bound), sources[stream].time.column, self.physical.shards
            )

    def _hot(self, send: Send) -> Hot | None:
        """Return the keys with too many rows for one task, estimated from a sample of the files."""
        pieces = self.physical.pieces
        stream = stream_to_spread(self.compiled, pieces) if send.shards > 1 else None
        if stream is None or not send.senders[stream][1]:
            return None
        return hot_keys(send.sample(stream, sampled_parts(pieces, stream)), stream, send.shards)

    def _sorted(self, keys: Mapping[str, tuple[Any, ...]], shards: int) -> DataFrame | None:
        """Shuffle and sort with Spark, which spills to disk. Returns None unless all keys are plain columns."""
        from pyspark.sql import functions as sf  # noqa: PLC0415 - Spark loads when it is used

        ((stream, bound),) = self.physical.frames.items()
        names = keys.get(inputs_of(self.compiled)[stream], ())
        if not all(isinstance(column_name, Column) for column_name in names):
            return None
        source = next(source for source in sources_of(self.compiled.plan) if source.name == stream)
        columns = self.compiled.columns[stream]
        by = [_partition_column(sf, bound.schema, column_name.name) for column_name in names]
        rows = (
            self._pruned(stream, bound).repartition(shards, *by)
            if by
            else self._pruned(stream, bound).repartition(1)
        )
        schema = pa.schema([bound.schema.field(name) for name in columns])
        ordered = rows.sortWithinPartitions(*spark_order(ranked(source.time.column, source.sequence, schema)))
        return ordered.mapInArrow(
            OverFrame(RunTask(self._query(), self.zone, ordered=True), stream, ordered=True), self.schema
        )

    def _produced(self, work: Any, schema: Any) -> DataFrame:
        """Apply a task's work to all files and DataFrames."""
        made = [
            self._pruned(stream, bound).mapInArrow(OverFrame(work, stream), schema)
            for stream, bound in self.physical.frames.items()
        ]
        if self.physical.pieces or not made:
            made.append(self._numbers().mapInArrow(self._over(work), schema))
        return reduce(lambda one, other: one.union(other), made)

    def _numbers(self) -> DataFrame:
        """Return a row for each task, in a plan that Catalyst takes to be as large as the result.

        It derives the size of what a task returns from the rows that it gets: a row for each task would be a small table,
        and a join would broadcast it. The other rows of the range are left out before they are made.
        """
        tasks = len(self.physical.parts)
        step = self._rows_of_a_task(tasks)
        numbers = self.spark.range(0, tasks * step, 1, tasks)
        return numbers if step == 1 else numbers.where(f"id % {step} = 0")

    def _rows_of_a_task(self, tasks: int) -> int:
        rows = result_rows(self.compiled.program, self.physical.pieces)
        size = rows * width_of(self.compiled.schema)
        return max(min(-(-size // (_RANGE_ROW * tasks)), MOST_ROWS_IN_A_PLAN), 1)

    def _over(self, work: Any) -> OverParts:
        parts = [as_json(part) for part in self.physical.parts]
        return OverParts.of(work, parts, self.accesses, self._rows_of_a_task(len(parts)))

    def _pruned(self, stream: str, bound: BoundDataFrame) -> DataFrame:
        """Select the columns that the query reads, and filter by the predicates that Spark can evaluate."""
        columns = self.compiled.columns[stream]
        frame = bound.frame.select(*map(quoted, columns))
        where = self.compiled.predicates.get(stream)
        found = None if where is None else spark_filter(where, bound.schema)
        return frame if found is None else frame.filter(found)


def _partition_column(functions: Any, schema: pa.Schema, name: str) -> Any:
    """Return the column to shuffle by. Adding 0.0 maps both floating-point zeros to one key."""
    column = functions.col(quoted(name))
    return column + functions.lit(0.0) if pa.types.is_floating(schema.field(name).type) else column
