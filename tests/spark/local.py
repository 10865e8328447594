"""The part of Spark that our tasks need, in this process: so that thousands of small jobs can be tried.

Functions are pickled as Spark pickles them, shards meet in partitions as hashing lets them, and parcels arrive in
any order. The wiring and the tasks are the real ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

import penstock as pk
from penstock.api.execute import bind_all
from penstock.physical.choose_strategy import STRATEGIES
from penstock.spark.frame import Wiring, packed_tables
from penstock.spark.planning import planned
from penstock.spark.task_memory import UNBOUNDED, TaskMemory


@dataclass(frozen=True)
class LocalFrame:
    partitions: list[list[pa.RecordBatch]]
    seed: int

    def mapInArrow(self, function: Callable[..., Iterator[pa.RecordBatch]], schema: Any) -> LocalFrame:
        carried = cloudpickle.loads(cloudpickle.dumps(function))
        return LocalFrame([list(carried(iter(part))) for part in self.partitions], self.seed)

    def where(self, condition: str) -> LocalFrame:
        assert condition.startswith("id % ")
        return self

    def union(self, other: LocalFrame) -> LocalFrame:
        return LocalFrame(self.partitions + other.partitions, self.seed)

    def repartition(self, number: int, column: str) -> LocalFrame:
        rows = [
            batch.slice(i, 1) for part in self.partitions for batch in part for i in range(batch.num_rows)
        ]
        random.Random(self.seed).shuffle(rows)
        parts: list[list[pa.RecordBatch]] = [[] for _ in range(number)]
        for row in rows:
            parts[hash((self.seed, row.column(column)[0].as_py())) % number].append(row)
        return LocalFrame(parts, self.seed)

    @property
    def batches(self) -> list[pa.RecordBatch]:
        return [batch for part in self.partitions for batch in part if batch.num_rows]


@dataclass(frozen=True)
class LocalSpark:
    seed: int = 0

    def range(self, start: int, end: int, step: int, partitions: int) -> LocalFrame:
        """Return the first number of each partition: the others are left out by `where`."""
        assert (start, step, end % partitions) == (0, 1, 0)
        firsts = range(0, end, end // partitions)
        return LocalFrame([[pa.record_batch({"id": pa.array([first])})] for first in firsts], self.seed)


def run_locally(
    query: pk.Stream, strategy: str | None, tasks: int, seed: int = 0, memory: TaskMemory = UNBOUNDED
) -> pa.Table:
    """Run a query over files as Spark would."""
    physical = planned(query.compiled(), bind_all(query, None, {}), strategy, tasks)
    tables = packed_tables(query)
    frame: Any = Wiring(LocalSpark(seed), physical, None, tables, {}, memory).frame()  # type: ignore[arg-type]
    return pa.Table.from_batches(frame.batches, query.schema)


def every_strategy(
    query: pk.Stream, tasks: int, seed: int = 0, memory: TaskMemory = UNBOUNDED
) -> dict[str, pa.Table]:
    """Run a query in every strategy that it allows."""
    found: dict[str, pa.Table] = {}
    for strategy in STRATEGIES:
        try:
            found[strategy] = run_locally(query, strategy, tasks, seed, memory)
        except pk.EngineError:
            continue
    return found
