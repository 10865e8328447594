"""The compiled form of a filter and projection, as the operator uses it."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from penstock.runtime.kernels import OutputCall, ResultColumn, Texts
from penstock.types.time import Time


class RowsProgram(Protocol):
    """A compiled filter and projection."""

    time: Time
    interned: frozenset[str]
    texts: Texts
    schema: pa.Schema
    result: tuple[ResultColumn, ...]
    filters: bool

    def prepare(self, batch: pa.RecordBatch, first_row: int, /) -> pa.RecordBatch: ...

    def rows(self, nullable: frozenset[str]) -> OutputCall | None:
        """The kernel, or None if nothing is computed or filtered."""
