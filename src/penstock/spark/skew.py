"""Split keys that would overload one task: look at a sample of the rows before they are shuffled.

The rows of a hot key on one side are dealt out to all tasks, and the other side's rows with that key are sent to each
(the join-matrix of the intra-window join paper, applied to hot keys alone).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa

from penstock.analysis.spread_rows import spreadable
from penstock.compile import Compiled
from penstock.runtime.buffers import indices
from penstock.runtime.state.hashing import key_hashes
from penstock.runtime.state.merge import divided
from penstock.spark.decode_dictionaries import in_one_piece
from penstock.spark.slices import Part, Piece

PIECES = 8  # of files, spread evenly, that a sample is taken from


@dataclass(frozen=True, slots=True)
class Hot:
    """Keys that are dealt out, by their hashes: rows of `stream` go to any task, those of others to all."""

    stream: str
    hashes: frozenset[int]

    def among(self, hashes: np.ndarray) -> np.ndarray:
        """Which rows have such a key."""
        return np.isin(hashes, np.array(sorted(self.hashes), np.int64))

    def dealt(self, table: pa.Table, hashes: np.ndarray, shards: int) -> list[pa.Table]:
        """Cut rows of the stream into shares, those of hot keys in turn."""
        shard, hot = own_shards(hashes, shards), self.among(hashes)
        shard[hot] = np.arange(np.count_nonzero(hot)) % shards
        return divided(table, shard, shards)

    def copied(
        self, table: pa.Table, hashes: np.ndarray, shards: int
    ) -> tuple[list[pa.Table], pa.Table | None]:
        """Cut rows of another stream into shares, without those that every task gets, which follow."""
        hot = self.among(hashes)
        if not hot.any():
            return divided(table, own_shards(hashes, shards), shards), None
        rest = table.take(indices(np.flatnonzero(~hot)))
        return divided(rest, own_shards(hashes[~hot], shards), shards), table.take(
            indices(np.flatnonzero(hot))
        )


def shares_of(
    hot: Hot | None, stream: str, table: pa.Table, keys: int, shards: int
) -> tuple[list[pa.Table], pa.Table | None]:
    """The rows of each shard, without their keys (the last columns), and those that all shards get."""
    rows = table.select(table.column_names[: table.num_columns - keys])
    if not keys or shards == 1:
        return [rows], None
    hashes = key_hashes_of(table, keys)
    if hot is None:
        return divided(rows, own_shards(hashes, shards), shards), None
    if stream == hot.stream:
        return hot.dealt(rows, hashes, shards), None
    return hot.copied(rows, hashes, shards)


def key_hashes_of(table: pa.Table, keys: int) -> np.ndarray:
    """The hash of the keys of each row, the last columns: the same in every process."""
    columns = [in_one_piece(table.column(table.num_columns - keys + place)) for place in range(keys)]
    return key_hashes(columns).view(np.int64)


def own_shards(hashes: np.ndarray, shards: int) -> np.ndarray:
    """The task of each row by its key alone."""
    found: np.ndarray = (hashes.view(np.uint64) % np.uint64(shards)).astype(np.int64)
    return found


def hot_keys(sample: Iterable[np.ndarray], stream: str, shards: int) -> Hot | None:
    """Find the keys of a sample that have more rows than a task's even share.

    >>> hot_keys([np.array([7, 7, 7, 1, 2, 7])], "a", 2)
    Hot(stream='a', hashes=frozenset({7}))
    """
    seen = np.concatenate([np.zeros(0, np.int64), *sample])
    keys, counts = np.unique(seen, return_counts=True)
    hot = keys[counts * shards > len(seen)] if shards > 1 else keys[:0]
    return Hot(stream, frozenset(hot.tolist())) if len(hot) else None


def stream_to_spread(compiled: Compiled, pieces: Sequence[Piece]) -> str | None:
    """The stream whose hot keys are dealt out: of those that may be, the one with more rows in files."""
    rows: Mapping[str, int] = {
        name: sum(each.fragment.rows or 0 for each in pieces if each.stream == name)
        for name in spreadable(compiled.program)
    }
    return max(rows, key=lambda name: rows[name]) if any(rows.values()) else None


def sampled_parts(pieces: Sequence[Piece], stream: str) -> Iterator[Part]:
    """Some pieces of a stream, spread evenly over it."""
    mine = [each for each in pieces if each.stream == stream]
    every = max(len(mine) // PIECES, 1)
    return (Part((piece,)) for piece in islice(mine[::every], PIECES))
