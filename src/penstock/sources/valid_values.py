"""Values that are none, texts and decimals: Arrow's reader of Parquet takes their bytes as they are, UTF-8 or not, whatever the digits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

_ASCII = 128  # bytes below are characters of their own
_OFFSETS = {pa.string(): "<i4", pa.large_string(): "<i8"}


def with_valid_values(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass batches on; `ArrowInvalid` at the first that holds a text that is no UTF-8, or a decimal of too many digits."""
    for batch in batches:
        for column in batch.columns:
            if not _surely_valid(column):
                column.validate(full=True)
        yield batch


def _surely_valid(column: pa.Array) -> bool:
    """Tell whether a column holds neither texts nor decimals, whose digits may be too many, or ASCII alone, which is quickly seen."""
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
