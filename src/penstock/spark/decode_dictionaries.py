"""Decode dictionary columns, so that equal texts compare and hash alike in every task."""

from __future__ import annotations

import pyarrow as pa

from penstock.runtime.buffers import plain


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decode a dictionary column, chunk by chunk."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    """Decode a dictionary column into one array."""
    return plain(column.combine_chunks())
