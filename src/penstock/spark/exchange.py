"""The payloads that tasks exchange through a shuffle: few rows, each holding a table.

`shard` is the receiving shard, `task` and `part` define the order, and `name` identifies the content: a table of saved
state, or rows of a stream. The table is an Arrow stream, opaque to Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.state.format import pack, unpack

SCHEMA = pa.schema(
    {"shard": pa.int32(), "task": pa.int32(), "part": pa.int32(), "name": pa.string(), "payload": pa.binary()}
)
SPARK_SCHEMA = "shard int, task int, part int, name string, payload binary"
# A Spark batch holds many rows, so each payload must be small, yet large enough to amortise its overhead.
PAYLOAD_ROWS = 1 << 18
# Payloads below this total size share one batch: each batch is a round trip through Arrow on both sides.
_BATCH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ShufflePayload:
    """A table to be shuffled."""

    shard: int
    task: int
    part: int
    name: str
    payload: bytes

    @staticmethod
    def of(shard: int, task: int, part: int, name: str, table: pa.Table) -> ShufflePayload:
        return ShufflePayload(shard, task, part, name, pack(table))

    @property
    def table(self) -> pa.Table:
        return unpack(self.payload, f"what a task sent for {self.name!r}")

    @property
    def place(self) -> tuple[int, int]:
        return self.task, self.part


def packed(payloads: Iterable[ShufflePayload]) -> Iterator[pa.RecordBatch]:
    """Encode payloads as batches. Small payloads share a batch, large ones are emitted immediately."""
    waiting: list[ShufflePayload] = []
    size = 0
    for payload in payloads:
        waiting.append(payload)
        size += len(payload.payload)
        if size >= _BATCH_BYTES:
            yield _batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting)


def _batch(payloads: Sequence[ShufflePayload]) -> pa.RecordBatch:
    rows = [
        (payload.shard, payload.task, payload.part, payload.name, payload.payload) for payload in payloads
    ]
    columns = zip(zip(*rows, strict=True), SCHEMA, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in columns], schema=SCHEMA
    )


def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[ShufflePayload]:
    """Decode the output of `packed`, in the order of delivery."""
    for batch in batches:
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield ShufflePayload(*row)
