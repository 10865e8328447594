"""Validate what Arrow's Parquet reader does not check: UTF-8, the digits of decimals, the range of times of day."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

_ASCII = 128  # lower bytes are single characters
# Types some of whose bit patterns are no value.
_BOUNDED = (
    pa.types.is_nested,
    pa.types.is_string_view,
    pa.types.is_decimal,
    pa.types.is_time,
    pa.types.is_date64,
)
_OFFSETS = {pa.string(): "<i4", pa.large_string(): "<i8"}


def with_valid_values(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches. Raise `ArrowInvalid` at the first with a value that its type cannot hold."""
    for batch in batches:
        for column in batch.columns:
            if not _surely_valid(column):
                column.validate(full=True)
        yield batch


def _surely_valid(column: pa.Array) -> bool:
    """Check quickly that a column is certainly valid: its type holds any bytes, or its texts are ASCII."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _surely_valid(column.dictionary)
    if kind not in _OFFSETS:
        return not any(is_bounded(kind) for is_bounded in _BOUNDED)
    _, places, data = column.buffers()
    if data is None or places is None or not len(column):
        return True
    offsets = np.frombuffer(places, _OFFSETS[kind])
    begin, end = offsets[column.offset], offsets[column.offset + len(column)]
    return bool(np.frombuffer(data, np.uint8)[begin:end].max(initial=0) < _ASCII)
