"""Split state tables into chunks of at most 1 MB, so that a store rewrites only those that changed.

A chunk holds the rows whose words (the hash of their keys, then their time) share a bit prefix, as short as keeps the
chunk small enough. So changes to other keys do not move a key's rows; without keys a chunk is a range of time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.runtime.buffers import indices, values_view
from penstock.state.hashing import key_hashes, time_words
from penstock.state.state_table import StateTable, seen

MOST_CHUNK_BYTES = 1 << 20


def cut(kept: StateTable, most: int = MOST_CHUNK_BYTES) -> dict[str, pa.Table]:
    """The chunks of a table by the bit prefix of their rows' words. An empty table yields no chunks."""
    table = _in_order(kept)
    if table.num_rows == 0:
        return {}
    if table.nbytes <= most:
        return {"": table}
    words = _words(kept, table)
    order = np.lexsort(words[::-1]) if words else np.arange(table.num_rows)
    rows, words = table.take(indices(order)), [word[order] for word in words]
    return {
        bits: table.take(indices(np.sort(order[lo:hi])))
        for bits, lo, hi in _parts(rows, words, 0, table.num_rows, "", most)
    }


def _in_order(kept: StateTable) -> pa.Table:
    names = dict.fromkeys((*kept.ranks, *kept.keys))
    if not names or kept.table.num_rows < 2 or _ordered([seen(kept.table, name) for name in names]):
        return kept.table.combine_chunks()
    import pyarrow.compute as pc  # noqa: PLC0415 - takes 50 ms to load, and most runs save nothing

    order = pc.sort_indices(kept.table, sort_keys=[(name, "ascending") for name in names])
    return kept.table.take(order).combine_chunks()


def _ordered(columns: Sequence[pa.Array]) -> bool:
    """Whether rows are already sorted, as those of pane tables mostly are; False if the check would be expensive."""
    if any(column.type != pa.int64() or column.null_count for column in columns):
        return False
    alike = np.ones(len(columns[0]) - 1, bool)
    for column in map(values_view, columns):
        if (alike & (column[1:] < column[:-1])).any():
            return False
        alike &= column[1:] == column[:-1]
    return True


def _words(kept: StateTable, table: pa.Table) -> list[np.ndarray]:
    hashed = [key_hashes([seen(table, name) for name in kept.keys])] if kept.keys else []
    return [*hashed, *(time_words(seen(table, name)) for name in kept.ranks[:1])]


def _parts(
    rows: pa.Table, words: Sequence[np.ndarray], lo: int, hi: int, bits: str, most: int
) -> Iterator[tuple[str, int, int]]:
    """Split rows lo … hi, which share the prefix `bits`, by the next bit until they are small enough."""
    size = rows.slice(lo, hi - lo).nbytes
    if size <= most or hi - lo == 1:
        yield bits, lo, hi
        return
    if len(bits) == 64 * len(words):
        yield from _by_number(lo, hi, bits, -(-size // most))
        return
    word, bit = divmod(len(bits), 64)
    middle = lo + _first_with_bit(words[word][lo:hi], bit)
    for digit, begin, end in (("0", lo, middle), ("1", middle, hi)):
        if begin < end:
            yield from _parts(rows, words, begin, end, bits + digit, most)


def _first_with_bit(ordered: np.ndarray, bit: int) -> int:
    """The first of ordered words, equal in the preceding bits, that has this bit set."""
    tail = (1 << (64 - bit)) - 1
    smallest = int(ordered[0]) & ~tail | 1 << (63 - bit)
    return int(np.searchsorted(ordered, np.uint64(smallest)))


def _by_number(lo: int, hi: int, bits: str, parts: int) -> Iterator[tuple[str, int, int]]:
    """Split rows of one key and one time by position."""
    bounds = [lo + (hi - lo) * part // parts for part in range(parts + 1)]
    for part, (begin, end) in enumerate(pairwise(bounds)):
        if begin < end:
            yield f"{bits}.{part}", begin, end
