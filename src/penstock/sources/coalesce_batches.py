"""Put small batches together that are there already: a push costs the same for ten rows as for ten thousand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import pyarrow as pa

ENOUGH = 1 << 18  # rows, whose work by far exceeds the cost of a push
SINGLY = 8


def gathered(
    batches: Iterable[pa.RecordBatch], singly: int = SINGLY, enough: int = ENOUGH
) -> Iterator[pa.RecordBatch]:
    """Join neighbours of one schema until they are enough; the first ones pass singly, for early results.

    >>> ones = [pa.record_batch({"v": [i]}) for i in range(6)]
    >>> [batch["v"].to_pylist() for batch in gathered(ones, singly=1, enough=3)]
    [[0], [1, 2, 3], [4, 5]]
    """
    parts = iter(batches)
    yield from islice(parts, singly)
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in parts:
        if held and (rows + batch.num_rows > enough or batch.schema != held[0].schema):
            yield from _joined(held)
            held, rows = [], 0
        held.append(batch)
        rows += batch.num_rows
    if held:
        yield from _joined(held)


def _joined(held: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """One batch, or a few where texts are too long for one; none are left out, even if none has a row."""
    if len(held) == 1:
        return held
    return pa.Table.from_batches(held).combine_chunks().to_batches() or held[:1]
