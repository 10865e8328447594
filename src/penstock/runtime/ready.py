"""A kernel with all that it is given: put together once for the same rows and the same table."""

from __future__ import annotations

from collections.abc import Mapping
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
    table: Mapping[str, object]
    nullable: frozenset[str]

    @classmethod
    def made(
        cls,
        kernel: RowsCall,
        arguments: BatchArguments,
        first_row: int,
        table: PaneTable,
        nullable: frozenset[str],
    ) -> Ready:
        """Fill the frame of a kernel for rows and a table."""
        views = all(each.role == "values" for each in kernel.bindings)
        columns, held = arguments.fill(kernel.bindings), table.arguments()
        frame = kernel.call.frame({**columns, **held, "first_row": first_row, "positions": _POSITIONS})
        return cls(
            kernel.call, frame, ref(arguments.known), None if views else columns, first_row, held, nullable
        )

    def outlasts(self, spare: PaneTable | None) -> bool:
        """Whether it may wait for the next run: it holds nothing of rows, and no memory but that of a table that waits too."""
        return self.columns is None and spare is not None and self.table is spare.arguments()

    def serves(
        self, arguments: BatchArguments, first_row: int, table: PaneTable, nullable: frozenset[str]
    ) -> bool:
        """Whether it is what these rows and this table would make again."""
        return (
            self.columns is None
            and self.known() is arguments.known
            and self.table is table.arguments()
            and self.first_row == first_row
            and self.nullable == nullable
        )
