"""How far the keys of some rows spread: what decides whether a dense table pays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.runtime.binding import BatchArguments
from penstock.runtime.buffers import values_view
from penstock.runtime.programs import Key


def key_ranges(
    keys: Sequence[Key], batch: pa.RecordBatch, arguments: BatchArguments
) -> tuple[list[int], list[int]] | None:
    """The lowest and highest word of each key; None where that is not known without computing."""
    if not may_be_dense(keys):
        return None
    lows, highs = [], []
    for key in keys:
        assert key.column is not None
        words = _words(batch, key.column, key.text, arguments)
        lows.append(int(words.min()) if len(words) else 0)
        highs.append(int(words.max()) if len(words) else 0)
    return lows, highs


def may_be_dense(keys: Sequence[Key]) -> bool:
    """Whether keys are whole numbers, or codes, that are read from columns."""
    return all(key.column is not None and (key.text or _is_whole(key.type)) for key in keys)


def _words(batch: pa.RecordBatch, column: str, text: bool, arguments: BatchArguments) -> np.ndarray:
    if text:
        return arguments.codes(column)[: batch.num_rows]
    array = batch.column(column)
    if pa.types.is_boolean(array.type):
        return np.array([0, 1])
    values = values_view(array)
    if array.null_count:
        values = values[array.is_valid().to_numpy(zero_copy_only=False)]
    return values.view(np.int64) if values.dtype == np.uint64 else values


def _is_whole(dtype: pa.DataType) -> bool:
    return not (pa.types.is_floating(dtype) or pa.types.is_decimal(dtype))
