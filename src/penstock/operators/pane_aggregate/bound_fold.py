"""The fold of small pushes: a kernel bound to its table once, of which a push changes the addresses of the columns."""

from __future__ import annotations

from penstock.loop.abi import positions_table
from penstock.operators.pane_aggregate.table import PaneTable
from penstock.operators.pane_aggregate.worker import Worker
from penstock.runtime.column_addresses import ColumnAddresses, ColumnLayout
from penstock.runtime.ring import LoopCall


class BoundFold:
    """The fold kernel of a worker's table, for batches of one layout without nulls.

    It holds the arrays whose addresses it was bound to. Every change of a table replaces one of them, so to compare
    them shows whether it still fits: no notification is needed.
    """

    __slots__ = (
        "_bound",
        "_call",
        "_columns",
        "_first_row",
        "_frame",
        "_hi",
        "_layout",
        "_loop",
        "_nullable",
        "_order",
        "_runs",
    )

    def __init__(self, worker: Worker, table: PaneTable, layout: ColumnLayout) -> None:
        kernel = worker.fold_kernel(table)
        self._call, self._layout = kernel.call, layout
        self._nullable, self._order, self._runs = worker.nullable, worker.order, worker.runs
        self._bound = _bound_to(table)
        self._loop: LoopCall | None = None
        names = tuple(binding.column for binding in kernel.bindings)
        plain = all(binding.role == "values" for binding in kernel.bindings)
        places = layout.places(names) if plain else None
        unset = {binding.parameter: 0 for binding in kernel.bindings}
        limits = {"lo": 0, "hi": 0, "first_row": 0}
        given = {**unset, **limits, **table.arguments(), "positions": positions_table()}
        self._frame = None if places is None else kernel.call.standing(given)
        if self._frame is None or places is None:
            return
        at = self._frame.places
        self._hi, self._first_row = at["hi"], at["first_row"]
        self._columns = [
            (at[binding.parameter], place) for binding, place in zip(kernel.bindings, places, strict=True)
        ]

    def fits(self, worker: Worker, table: PaneTable, layout: ColumnLayout) -> bool:
        """Whether the kernel is bound to this table as it is now, and to this layout."""
        head, states, panes, buckets, keys, key_buckets = self._bound
        return (
            states is table.states
            and panes is table.panes
            and buckets is table.pane_buckets
            and keys is table.keys
            and key_buckets is getattr(keys, "buckets", None)
            and head is table.head
            and layout is self._layout
            and self._nullable is worker.nullable
            and self._order is worker.order
            and self._runs is worker.runs
        )

    def loop_call(self, table: PaneTable) -> LoopCall | None:
        """What the native loop changes between two batches; None if a column is not numbers."""
        frame = self._frame
        if frame is None:
            return None
        if self._loop is None:
            self._loop = LoopCall(
                self._call, frame.start, self._columns, self._hi, self._first_row, table.head
            )
        return self._loop

    def fold(self, columns: ColumnAddresses, rows: int, first_row: int) -> int:
        """Fold all rows of a batch; return the row before which the kernel stopped.

        -1: a column holds nulls, or is not numbers.
        """
        frame = self._frame
        if frame is None or columns.hold_nulls:
            return -1
        words, source = frame.words, columns.words
        for here, there in self._columns:
            words[here] = source[there]
        words[self._hi], words[self._first_row] = rows, first_row
        return self._call.run(frame.start)


def _bound_to(table: PaneTable) -> tuple[object, ...]:
    keys = table.keys
    return (
        table.head,
        table.states,
        table.panes,
        table.pane_buckets,
        keys,
        getattr(keys, "buckets", None),
    )
