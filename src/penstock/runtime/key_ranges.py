"""How far the keys of some rows spread: what decides whether a dense table pays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.runtime.binding import BatchArguments
from penstock.runtime.buffers import values_view
from penstock.runtime.programs import Key


def key_ranges(
    keys: Sequence[Key], batch: pa.RecordBatch, arguments: BatchArguments, rows: int | None = None
) -> tuple[list[int], list[int]] | None:
    """The lowest and highest word of each key in the first rows, or in all; None where that is not known without computing."""
    if not may_be_dense(keys):
        return None
    lows, highs = [], []
    for key in keys:
        assert key.column is not None
        words = _words(batch.column(key.column).slice(0, rows), key, arguments)
        # Asked as methods, NumPy goes through Python, which is slow where nothing of it is in a cache.
        lows.append(int(np.minimum.reduce(words)) if len(words) else 0)
        highs.append(int(np.maximum.reduce(words)) if len(words) else 0)
    return lows, highs


def may_be_dense(keys: Sequence[Key]) -> bool:
    """Whether keys are whole numbers, or codes, that are read from columns."""
    return all(key.whole for key in keys)


def _words(array: pa.Array, key: Key, arguments: BatchArguments) -> np.ndarray:
    """The words of the first values of a key's column."""
    if key.text:
        assert key.column is not None
        return arguments.codes(key.column)[: len(array)]
    if pa.types.is_boolean(array.type):
        return np.array([0, 1])
    values = values_view(array)
    if array.null_count:
        values = values[array.is_valid().to_numpy(zero_copy_only=False)]
    return values.view(np.int64) if values.dtype == np.uint64 else values
