"""Columns without the dictionaries they may be encoded with: equal texts must compare, and hash, alike in every task."""

from __future__ import annotations

import pyarrow as pa

from penstock.runtime.buffers import plain


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Write texts out, piece by piece."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    """Write texts out, and put all pieces together."""
    return plain(column.combine_chunks())
