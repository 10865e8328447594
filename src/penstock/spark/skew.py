"""Split keys that would overload one task, found in a sample of the rows before the shuffle.

The rows of a hot key on one side are spread over all tasks, and the other side's rows with that key are copied to each
(the join-matrix of the intra-window join paper, applied to hot keys alone).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa

from penstock.analysis.partition_keys import spreadable
from penstock.compile import Compiled
from penstock.runtime.buffers import indices
from penstock.spark.decode_dictionaries import in_one_piece
from penstock.spark.slices import Part, Piece
from penstock.state.state_table import divided, key_hashes

PIECES = 8  # sampled pieces of files, spread evenly


@dataclass(frozen=True, slots=True)
class Hot:
    """The hashes of hot keys. Hot rows of `stream` are spread over all tasks; hot rows of other streams are copied to all."""

    stream: str
    hashes: frozenset[int]

    def among(self, hashes: np.ndarray) -> np.ndarray:
        """Return the mask of rows with a hot key."""
        return np.isin(hashes, np.array(sorted(self.hashes), np.int64))

    def dealt(self, table: pa.Table, hashes: np.ndarray, shards: int) -> list[pa.Table]:
        """Partition rows of the stream by shard; rows of hot keys go round-robin."""
        shard, hot = own_shards(hashes, shards), self.among(hashes)
        shard[hot] = np.arange(np.count_nonzero(hot)) % shards
        return divided(table, shard, shards)

    def copied(
        self, table: pa.Table, hashes: np.ndarray, shards: int
    ) -> tuple[list[pa.Table], pa.Table | None]:
        """Partition rows of another stream by shard, and return the rows for all shards separately."""
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
    """Return the rows of each shard, without their keys (the last columns), and the rows for all shards."""
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
    """Hash the keys of each row, the last columns. The hash is the same in every process."""
    columns = [in_one_piece(table.column(table.num_columns - keys + place)) for place in range(keys)]
    return key_hashes(columns).view(np.int64)


def own_shards(hashes: np.ndarray, shards: int) -> np.ndarray:
    """Return the shard of each row by its key alone."""
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


def largest_share(sample: Iterable[np.ndarray]) -> float:
    """Return the share of the most frequent key of a sample.

    >>> largest_share([np.array([7, 7, 7, 1])])
    0.75
    """
    seen = np.concatenate([np.zeros(0, np.int64), *sample])
    return float(np.unique(seen, return_counts=True)[1].max() / len(seen)) if len(seen) else 0.0


def stream_to_spread(compiled: Compiled, pieces: Sequence[Piece]) -> str | None:
    """Choose the stream whose hot keys are spread: among the permitted ones, the one with most rows in files."""
    rows: Mapping[str, int] = {
        name: sum(piece.fragment.rows or 0 for piece in pieces if piece.stream == name)
        for name in spreadable(compiled.program)
    }
    return max(rows, key=lambda name: rows[name]) if any(rows.values()) else None


def sampled_parts(pieces: Sequence[Piece], stream: str) -> Iterator[Part]:
    """Return some pieces of a stream, spread evenly over it."""
    mine = [piece for piece in pieces if piece.stream == stream]
    every = max(len(mine) // PIECES, 1)
    return (Part((piece,)) for piece in islice(mine[::every], PIECES))
