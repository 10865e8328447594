"""What tasks hand to each other through a shuffle: few rows, each of them a table.

`shard` says which task takes it up, `task` and `part` in which order, `name` what it is: a table of saved state,
or rows of a stream. The table itself is an Arrow stream, which Spark need not understand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.runtime.state.packing import pack, unpack

SCHEMA = pa.schema(
    {"shard": pa.int32(), "task": pa.int32(), "part": pa.int32(), "name": pa.string(), "payload": pa.binary()}
)
SPARK_SCHEMA = "shard int, task int, part int, name string, payload binary"
# A batch of Spark's holds many rows: each must be small, yet large enough to be worth its way.
PAYLOAD_ROWS = 1 << 18
# Parcels that together have less travel in one batch: each batch is a round through Arrow on both sides.
_BATCH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ShufflePayload:
    """A table on its way."""

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
    """Write parcels as batches that Spark takes: small ones together, large ones as soon as they are there."""
    waiting: list[ShufflePayload] = []
    size = 0
    for each in payloads:
        waiting.append(each)
        size += len(each.payload)
        if size >= _BATCH_BYTES:
            yield _batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting)


def _batch(payloads: Sequence[ShufflePayload]) -> pa.RecordBatch:
    rows = [(each.shard, each.task, each.part, each.name, each.payload) for each in payloads]
    columns = zip(zip(*rows, strict=True), SCHEMA, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in columns], schema=SCHEMA
    )


def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[ShufflePayload]:
    """Read what `packed` wrote, in whatever order Spark delivers it."""
    for batch in batches:
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield ShufflePayload(*row)
