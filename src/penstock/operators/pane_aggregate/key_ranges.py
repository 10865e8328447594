"""The ranges of key values, from which workers decide whether a dense table is worthwhile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.algorithms.batch_arguments import BatchArguments
from penstock.algorithms.hash_table.keys import DenseKeys
from penstock.operators.pane_aggregate.program import KeySpec

COMPACT = 1 << 12  # keys of a table that is worth looking at
EMPTIEST = 16  # columns of a dense table for each one in use
SAMPLE = 1 << 14  # rows that choose the first key table


def key_ranges(
    keys: Sequence[KeySpec], arguments: BatchArguments, rows: int | None = None
) -> tuple[list[int], list[int]] | None:
    """The lowest and highest word of each key in the first rows, or in all; None if a key must be computed first."""
    if not may_be_dense(keys):
        return None
    found = [_limits(_words(key, arguments, rows)) for key in keys]
    return [low for low, _ in found], [high for _, high in found]


def _limits(words: np.ndarray) -> tuple[int, int]:
    # As methods, NumPy's min and max run through Python code, which is slow with cold caches.
    return (int(np.minimum.reduce(words)), int(np.maximum.reduce(words))) if len(words) else (0, 0)


def may_be_dense(keys: Sequence[KeySpec]) -> bool:
    """Whether all keys are integers, or codes, that are read from columns."""
    return all(key.whole for key in keys)


def _words(key: KeySpec, arguments: BatchArguments, rows: int | None) -> np.ndarray:
    """The non-null words of the first values of a key's column."""
    assert key.column is not None
    if key.text:
        return arguments.codes(key.column)[:rows]
    array = arguments.column(key.column)
    if pa.types.is_boolean(array.type):
        return np.array([0, 1])
    values = arguments.values(key.column)[:rows]
    if array.null_count:
        values = values[array.slice(0, rows).is_valid().to_numpy(zero_copy_only=False)]
    return values.view(np.int64) if values.dtype == np.uint64 else values


def denser(keys: DenseKeys, used: np.ndarray, program_keys: Sequence[KeySpec]) -> DenseKeys | None:
    """A dense table for the range of the columns in use; None if even that would be mostly empty."""
    words, nulls = keys.words_of(used)
    lows, highs = [], []
    for place, key in enumerate(program_keys):
        there = words[place][(nulls >> place) & 1 == 0]
        codes = key.text or not len(there)  # the texts in use are numbered anew
        lows.append(0 if codes else int(there.min()))
        highs.append(len(there) if codes else int(there.max()))
    within = DenseKeys.of_sample(tuple(lows), tuple(highs))
    kept = within if 2 * within.columns <= keys.columns else keys
    return kept if EMPTIEST * len(used) >= kept.columns else None
