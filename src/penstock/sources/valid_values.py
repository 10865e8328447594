"""Validate texts and decimals: Arrow's Parquet reader checks neither UTF-8 nor the number of digits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

_ASCII = 128  # lower bytes are single characters
_OFFSETS = {pa.string(): "<i4", pa.large_string(): "<i8"}


def with_valid_values(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches. Raise `ArrowInvalid` at the first with a text that is not UTF-8, or a decimal with too many digits."""
    for batch in batches:
        for column in batch.columns:
            if not _surely_valid(column):
                column.validate(full=True)
        yield batch


def _surely_valid(column: pa.Array) -> bool:
    """Check quickly that a column is certainly valid: neither text nor decimal, or ASCII only."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _surely_valid(column.dictionary)
    if kind not in _OFFSETS:
        return not (pa.types.is_nested(kind) or pa.types.is_string_view(kind) or pa.types.is_decimal(kind))
    _, places, data = column.buffers()
    if data is None or places is None or not len(column):
        return True
    offsets = np.frombuffer(places, _OFFSETS[kind])
    begin, end = offsets[column.offset], offsets[column.offset + len(column)]
    return bool(np.frombuffer(data, np.uint8)[begin:end].max(initial=0) < _ASCII)
