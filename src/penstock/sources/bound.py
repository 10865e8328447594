"""What a query needs from data bound to a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa


class Bound(Protocol):
    """Data that can be read from the beginning, column by column."""

    @property
    def schema(self) -> pa.Schema:
        """The columns there are, under the types they are delivered in."""

    @property
    def rows(self) -> int | None:
        """How many rows there are, if that is known without reading them."""

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Read the named columns, in that order; all of them if none are named."""
