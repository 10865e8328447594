"""A kernel with all that it is given: worked out once for the same rows and the same table."""

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

    Data that a query reads is not kept alive by it: `holder` says whether what the frame points to is still there.
    """

    call: KernelCall
    frame: Any
    holder: ref[Known | BatchArguments]
    views: bool
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
        rest = {"first_row": first_row, "positions": _POSITIONS}
        given = {**arguments.fill(kernel.bindings), **table.arguments(), **rest}
        holder = ref(arguments.holder(views))
        return cls(
            kernel.call, kernel.call.frame(given), holder, views, first_row, table.arguments(), nullable
        )

    def serves(
        self, arguments: BatchArguments, first_row: int, table: PaneTable, nullable: frozenset[str]
    ) -> bool:
        """Whether it is what these rows and this table would have made."""
        return (
            self.holder() is arguments.holder(self.views)
            and self.table is table.arguments()
            and self.first_row == first_row
            and self.nullable == nullable
        )
