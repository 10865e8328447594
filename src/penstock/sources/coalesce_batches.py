"""Coalesce small batches that are already available: a push costs the same for ten rows as for ten thousand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import pyarrow as pa

COALESCED_ROWS = 1 << 18  # rows; their processing far exceeds the cost of a push
SINGLY = 8


def gathered(
    batches: Iterable[pa.RecordBatch], singly: int = SINGLY, enough: int = COALESCED_ROWS
) -> Iterator[pa.RecordBatch]:
    """Concatenate adjacent batches of one schema up to `enough` rows. The first `singly` pass unchanged, for early results.

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
    """Concatenate into one batch, or a few if texts exceed one array. Empty batches yield at least one batch."""
    if len(held) == 1:
        return held
    return pa.Table.from_batches(held).combine_chunks().to_batches() or held[:1]
