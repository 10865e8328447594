"""The Spark callable around a shard, with the state of `applyInPandasWithState`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.caches import CACHES
from penstock.plan.codec import decode
from penstock.plan.schema import schema_of
from penstock.spark.exchange import ShufflePayload
from penstock.spark.streaming.late_and_malformed import log_late, write_late
from penstock.spark.streaming.shard import COUNTS, Shard, ShardStep
from penstock.spark.task_memory import settle
from penstock.spark.tasks import Query
from penstock.spark.types import Deliver, deliverer, never_null
from penstock.state.format import pack, unpack
from penstock.state.state import State

STATE_SCHEMA = "state binary"
BATCH_NUMBERS = (*COUNTS, "state_bytes", "watermark")
NAMES = ("payload", *BATCH_NUMBERS)
# Results are Arrow streams in one column, so pandas converts none of their types. Numbers are never null, which shortens the code
# that Spark generates, in each task with a row, to observe them.
OUTPUT = ", ".join(["payload binary", *(f"{name} bigint not null" for name in BATCH_NUMBERS)])
RESULT_BATCH_ROWS = 1 << 16
WHERE = "the state in the checkpoint"


@dataclass(frozen=True, slots=True)
class WithState:
    """Spark callable for one shard and batch."""

    shard: Shard

    def __call__(self, key: tuple[int], frames: Iterator[Any], state: Any) -> Iterator[Any]:
        import pandas as pd  # noqa: PLC0415 - the interface of `applyInPandasWithState` is pandas

        saved = State.from_bytes(bytes(state.get[0]), WHERE) if state.exists else None
        now = state.getCurrentProcessingTimeMs() * 1000
        step = self.shard.step(key[0], saved, payloads_of(frames), now)
        write_late(self.shard.compiled.plan, key[0], step.late, self.shard.accesses)
        log_late(self.shard.compiled.plan, step.counts["late"], self.shard.query.text)
        whole = step.state.to_bytes()
        state.update((whole,))
        # Spark concatenates the frames of a shard before it sends them. One frame saves a millisecond per additional frame.
        yield pd.DataFrame(list(rows_of(step, len(whole))), columns=list(NAMES))
        settle("shard")


def payloads_of(frames: Iterable[Any]) -> list[ShufflePayload]:
    """Read payloads from the pandas frames that Spark passes."""
    return [
        ShufflePayload(*row)
        for frame in frames
        for row in zip(*(frame[name].tolist() for name in frame.columns), strict=True)
    ]


def rows_of(step: ShardStep, state_bytes: int) -> Iterator[tuple[Any, ...]]:
    """Encode a step as rows: one row with counts, then one row per result chunk."""
    none = (0,) * len(COUNTS)
    yield (None, *(step.counts[name] for name in COUNTS), state_bytes, step.watermark)
    for batch in step.results:
        for begin in range(0, batch.num_rows, RESULT_BATCH_ROWS):
            part = pa.Table.from_batches([batch.slice(begin, RESULT_BATCH_ROWS)])
            yield (pack(part), *none, 0, step.watermark)


@dataclass(frozen=True, slots=True)
class Unpack:
    """Spark callable after the shards: decode the results into columns."""

    query: Query
    zone: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        deliver = _deliverer(self.query, self.zone)
        for payload in (packed for batch in batches for packed in batch.column(0).to_pylist()):
            if payload is not None:
                table = unpack(payload, "what a shard gave")
                yield from map(deliver, table.combine_chunks().to_batches())
        settle("results")


@CACHES.results(most=32)
def _deliverer(query: Query, zone: str) -> Deliver:
    """Return the converter of results, cached because every batch uses it."""
    plan = decode(query.text, query.functions)
    return deliverer(schema_of(plan), zone, never_null(plan))
