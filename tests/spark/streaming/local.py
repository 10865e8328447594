"""Micro-batches without Spark: the real tasks and shards, state handed from batch to batch as chunks of bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark import cloudpickle

import penstock as pk
from penstock.runtime.metrics import Metrics
from penstock.spark.exchange import ShufflePayload, packed, unpacked
from penstock.spark.streaming.frame import wired
from penstock.spark.streaming.operator import WHERE
from penstock.spark.streaming.shard import ShardStep, totals
from penstock.spark.streaming.topology import Way, way_of
from penstock.state.state import State


@dataclass
class LocalStream:
    """A streaming query in this process. `batch` takes the rows of each task.

    Without `folds`, rows travel where panes could.
    """

    query: pk.Stream
    shards: int = 2
    folds: bool = True
    updates: bool = False
    states: dict[int, dict[str, bytes]] = field(default_factory=dict)
    steps: list[ShardStep] = field(default_factory=list)

    def __post_init__(self) -> None:
        compiled = self.query.compiled()
        self.way = way_of(compiled) if self.folds else Way((), (), "a test asks for it")
        made = wired(compiled, self.shards, frozenset(self.query.names), self.way)
        self.scatter, shard = cloudpickle.loads(cloudpickle.dumps(made))
        self.shard = replace(shard, updates=self.updates)

    def batch(
        self, tasks: Sequence[pa.Table], stream: str | None = None, now: int = 0
    ) -> list[pa.RecordBatch]:
        """Run one batch of one stream; what it gives and remembers counts only if all shards come through."""
        return self.stepped(self._sent(tasks, stream or self.query.name), now)

    def stepped(self, sent: Mapping[int, Sequence[ShufflePayload]], now: int = 0) -> list[pa.RecordBatch]:
        """Run one batch of what tasks sent to the shards."""
        steps = {
            label: self.shard.step(label, self._saved(label), payloads, now)
            for label, payloads in sent.items()
        }
        self.states |= {label: step.state.chunks() for label, step in steps.items()}
        self.steps += steps.values()
        assert totals(steps.values()).balanced
        return [batch for step in steps.values() for batch in step.results]

    def _saved(self, label: int) -> State | None:
        chunks = self.states.get(label)
        return None if chunks is None else State.from_chunks(chunks, WHERE)

    def _sent(self, tasks: Sequence[pa.Table], stream: str) -> dict[int, list[ShufflePayload]]:
        columns = list(self.scatter.columns(stream))
        sent: dict[int, list[ShufflePayload]] = {}
        for task, table in enumerate(tasks):
            rows = table.select(columns).combine_chunks().to_batches()
            payloads = self.scatter.payloads(task, stream, "", rows)
            for payload in unpacked(packed(payloads)):
                sent.setdefault(payload.shard, []).append(payload)
        return sent

    @property
    def metrics(self) -> Metrics:
        return totals(self.steps)


def streamed(
    query: pk.Stream, batches: Sequence[Sequence[pa.Table]], shards: int, folds: bool = True
) -> pa.Table:
    """Give what a streaming query gives over all batches."""
    running = LocalStream(query, shards, folds)
    made = [batch for tasks in batches for batch in running.batch(tasks)]
    return pa.Table.from_batches(made, query.schema)
