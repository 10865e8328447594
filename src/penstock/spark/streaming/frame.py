"""Run a query over streaming DataFrames as a streaming DataFrame."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from penstock.api.backfill import Backfill
from penstock.compile import Compiled, objects_of
from penstock.errors import EngineError, UnsupportedError
from penstock.ir.nodes import Apply, Attach, Program, Reduce
from penstock.physical.choose_strategy import possible
from penstock.plan.schema import schema_of
from penstock.sources.bound import Bound
from penstock.sources.kafka import LiveTopic
from penstock.sources.live_files import LiveFiles
from penstock.spark.bound import BoundDataFrame, zone_of
from penstock.spark.exchange import SPARK_SCHEMA
from penstock.spark.known_plans import digest, report_to_driver
from penstock.spark.order import quoted
from penstock.spark.split_plan import cut
from penstock.spark.storage import Accesses
from penstock.spark.streaming.fold import PreAggregation
from penstock.spark.streaming.late_and_malformed import require_folders
from penstock.spark.streaming.operator import OUTPUT, STATE_SCHEMA, Unpack, WithState
from penstock.spark.streaming.shard import COUNTS, Shard
from penstock.spark.streaming.shard_placement import labels
from penstock.spark.streaming.shuffle_write import FromFrame, Scatter, StreamSender
from penstock.spark.streaming.topology import Way, way_of, windows_of
from penstock.spark.streaming.update_mode import APPEND, UPDATE, require_updatable
from penstock.spark.tasks import Named, Query
from penstock.spark.types import never_null, spark_schema
from penstock.storage.access import LOCAL
from penstock.types.windows import Unbounded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OBSERVATION = "penstock-"


def is_streaming(bound: Mapping[str, Bound]) -> bool:
    """Check whether any of the data is unbounded."""
    return any(map(_goes_on, bound.values()))


def needs_shards(compiled: Compiled, bound: Mapping[str, Bound]) -> bool:
    """Check whether a query needs shards. Row-wise queries over DataFrames have no state and need none."""
    plain = possible(compiled.program).rows and all(
        isinstance(data, BoundDataFrame) for data in bound.values()
    )
    return is_streaming(bound) and not plain


def _goes_on(bound: Bound) -> bool:
    return isinstance(bound, LiveFiles | LiveTopic | Backfill) or (
        isinstance(bound, BoundDataFrame) and bound.frame.isStreaming
    )


def _require_live(bound: Mapping[str, Bound]) -> None:
    still = [name for name, data in bound.items() if not _goes_on(data)]
    if still:
        raise UnsupportedError(
            f"the data of stream {still[0]!r} ends, that of others does not; Spark cannot read both in one query: "
            "read it with spark.readStream too"
        )


def require_ends(program: Program) -> None:
    """Reject windows that would never be emitted."""
    for obj in program.objects:
        match obj.body:
            case Reduce(domain=Unbounded()) | Attach(domain=Unbounded()) | Apply(domain=Unbounded()):
                raise UnsupportedError(
                    f"~{obj.name} is one window over a stream that never ends, and would never be emitted; "
                    "use a window with a size, or output_mode='update'"
                )
            case _:
                pass


def wired(compiled: Compiled, shards: int, frames: frozenset[str], way: Way) -> tuple[Scatter, Shard]:
    """Split a query into the part before the shuffle and the part in each shard.

    Without common keys there is one shard. Rows of `frames` have no position.
    """
    found = possible(compiled.program)
    keys: Mapping[str, tuple[Any, ...]] = {} if isinstance(found.keys, str) else found.keys
    divided = way.keys if way.folds else keys
    names = labels(shards if divided else 1)
    made = cut(compiled, keys)
    senders = {
        name: StreamSender(Query.of(sender.plan), sender.keys) for name, sender in made.senders.items()
    }
    fold = PreAggregation(Query.of(compiled.plan), way.windows, way.keys) if way.folds else None
    by_value = frames if found.ordered else frozenset()
    behind = Shard(Query.of(made.behind), len(names), names[0], by_value, windows_of(found))
    return Scatter(senders, names, fold), behind


@dataclass(frozen=True, slots=True)
class Topology:
    """Build the DataFrames of a streaming query: shuffle rows to shards, then run the shards."""

    spark: SparkSession
    compiled: Compiled
    bound: Mapping[str, Bound]
    tasks: int
    tables: Named = ()
    mode: str = APPEND
    accesses: Accesses = field(default_factory=dict)

    def frame(self) -> DataFrame:
        _require_live(self.bound)
        require_folders(self.compiled.plan)
        if self.mode == UPDATE:
            require_updatable(self.compiled.raw, schema_of(self.compiled.plan))
        else:
            require_ends(self.compiled.raw)
        partitions = int(str(self.spark.conf.get("spark.sql.shuffle.partitions")))
        frames = frozenset(name for name, data in self.bound.items() if isinstance(data, BoundDataFrame))
        way = way_of(self.compiled)
        scatter, shard = wired(self.compiled, min(self.tasks, partitions), frames, way)
        objects = tuple(sorted(objects_of(shard.compiled).items()))
        report = report_to_driver(self.spark)
        query = replace(shard.query, objects=objects, tables=self.tables, report=report)
        ready = replace(shard, query=query, updates=self.mode == UPDATE, accesses=self.accesses)
        return self._assembled(self._sent(scatter, json.dumps(ready.identity)), ready)

    def _sent(self, scatter: Scatter, identity: str) -> DataFrame:
        """Send all columns that the query reads, and all rows: rejected rows count for the watermark."""
        sent = [self._sent_from(scatter, stream, bound, identity) for stream, bound in self.bound.items()]
        return reduce(lambda one, other: one.union(other), sent)

    def _sent_from(self, scatter: Scatter, stream: str, bound: Bound, identity: str) -> DataFrame:
        access = self.accesses.get(stream, LOCAL)
        if isinstance(bound, LiveFiles):
            from penstock.spark.streaming.files import file_frame  # noqa: PLC0415 - needs pyspark

            made: DataFrame = file_frame(self.spark, scatter, stream, bound, self.tasks, identity, access)
            return made
        if isinstance(bound, Backfill):
            from penstock.spark.streaming.backfill import backfill_frame  # noqa: PLC0415 - needs pyspark

            both: DataFrame = backfill_frame(self.spark, scatter, stream, bound, self.tasks, identity, access)
            return both
        if isinstance(bound, LiveTopic):
            from penstock.spark.streaming.kafka import topic_frame  # noqa: PLC0415 - needs pyspark

            topic: DataFrame = topic_frame(self.spark, scatter, stream, bound, identity, access)
            return topic
        assert isinstance(bound, BoundDataFrame)
        rows = bound.frame.select(*map(quoted, scatter.columns(stream)))
        return rows.mapInArrow(FromFrame(scatter, stream, access), SPARK_SCHEMA)

    def _assembled(self, sent: DataFrame, shard: Shard) -> DataFrame:
        plan = self.compiled.plan
        schema = spark_schema(schema_of(plan), never_null(plan))
        # No `withWatermark`: shards compute the watermark, and Spark only stores their state.
        stepped = sent.groupBy("shard").applyInPandasWithState(
            WithState(shard), OUTPUT, STATE_SCHEMA, self.mode, "NoTimeout"
        )
        plain = Query(shard.query.text, shard.query.functions)
        return (
            observed(stepped, plain).select("payload").mapInArrow(Unpack(plain, zone_of(self.spark)), schema)
        )


def observed(stepped: DataFrame, query: Query) -> DataFrame:
    """Report the row counts of every batch in the progress of the streaming query."""
    from pyspark.sql import functions as sf  # noqa: PLC0415 - Spark loads when it is used

    sums = [sf.sum(name).alias(name) for name in (*COUNTS, "state_bytes")]
    return stepped.observe(observation_name(query), *sums, sf.max("watermark").alias("watermark"))


def observation_name(query: Query) -> str:
    """Return the observation's name. It depends on the query, since one Spark plan may contain several."""
    return f"{OBSERVATION}{digest(query.text)[:8]}"


def require_keys(strategy: str | None) -> None:
    """Reject a strategy other than keys: unbounded streams are partitioned by key only."""
    if strategy not in (None, "keys", "one"):
        raise EngineError(
            f"streams that never end are divided by keys, not in {strategy}; leave strategy= out"
        )
