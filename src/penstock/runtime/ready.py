"""A kernel with all that it is given: put together once for the same rows and the same table, which keeps it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import ref

from penstock.loop.abi import positions_table
from penstock.runtime.binding import BatchArguments, Known
from penstock.runtime.programs import KernelCall, RowsCall
from penstock.runtime.table import PaneTable

_POSITIONS = positions_table()


@dataclass(frozen=True, slots=True)
class Ready:
    """A kernel and its frame, and what they were made for.

    A frame points to memory that somebody else has to hold. Views of columns live as long as their batch, which must not live on
    for a frame: `known` says whether it is still there. All else that rows give (numbers of texts, literals, bitmaps) was made for
    this frame, which holds it, and is good for one call: numbers may grow.
    """

    call: KernelCall
    frame: Any
    known: ref[Known]
    columns: Mapping[str, object] | None
    first_row: int
    nullable: frozenset[str]

    @classmethod
    def of(
        cls,
        table: PaneTable,
        arguments: BatchArguments,
        first_row: int,
        nullable: frozenset[str],
        kernel: Callable[[], RowsCall],
    ) -> Ready:
        """What a table has kept for these rows, or a new one; it is kept if it holds nothing of rows."""
        found: Ready | None = table.derived.get(cls)
        if found is None or not found.serves(arguments, first_row, nullable):
            found = cls._made(kernel(), arguments, first_row, table, nullable)
            if found.columns is None:
                table.derived[cls] = found
        return found

    @classmethod
    def _made(
        cls,
        kernel: RowsCall,
        arguments: BatchArguments,
        first_row: int,
        table: PaneTable,
        nullable: frozenset[str],
    ) -> Ready:
        views = all(each.role == "values" for each in kernel.bindings)
        columns = arguments.fill(kernel.bindings)
        given = {**columns, **table.arguments(), "first_row": first_row, "positions": _POSITIONS}
        frame, known = kernel.call.frame(given), ref(arguments.known)
        return cls(kernel.call, frame, known, None if views else columns, first_row, nullable)

    def serves(self, arguments: BatchArguments, first_row: int, nullable: frozenset[str]) -> bool:
        """Whether it is what these rows would make again."""
        return self.known() is arguments.known and self.first_row == first_row and self.nullable == nullable
