"""Convert between Arrow values and the 64-bit words that encode keys (see algorithms/hash_table/kernels.py)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.errors import UnsupportedError
from penstock.runtime.buffers import as_stored, values_view
from penstock.types.arrow import kind_of

_NOT_WHOLE = {dtype.id for dtype in (pa.bool_(), pa.float16(), pa.float32(), pa.float64())}
_CANONICAL_NAN = np.int64(0x7FF8000000000000)


def is_text(dtype: pa.DataType) -> bool:
    """Whether values are texts, plain or dictionary-encoded: their words are interner codes."""
    kind = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def words_of(array: pa.Array) -> np.ndarray:
    """The words of values that are not texts; words of nulls are undefined."""
    dtype = array.type
    if pa.types.is_boolean(dtype):
        words: np.ndarray = array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.int64)
        return words
    if pa.types.is_floating(dtype) and not pa.types.is_float16(dtype):
        wide = values_view(array).astype(np.float64) + 0.0  # maps -0.0 to 0.0: both are one key
        return np.where(np.isnan(wide), _CANONICAL_NAN, wide.view(np.int64))
    if pa.types.is_integer(dtype) or pa.types.is_temporal(dtype) or kind_of(dtype) == "decimal":
        return values_view(array).astype(np.int64)
    raise UnsupportedError(
        f"values of type {dtype} cannot be distinguished here; cast them, to string for example"
    )


def values_of(words: np.ndarray, dtype: pa.DataType) -> np.ndarray:
    """The values of words, as an array for `to_arrow`."""
    if dtype.id not in _NOT_WHOLE:
        return as_stored(words, dtype)
    if pa.types.is_boolean(dtype):
        return words.astype(np.uint8)
    values = np.ascontiguousarray(words).view(np.float64)
    return values.astype(np.float32) if dtype.bit_width == 32 else values
