"""Step 2 of the fold: select the rows of a chunk that pass the filter, as a list of offsets, without branches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from penstock.algorithms.expressions.cells import conjunction
from penstock.algorithms.selection import Selection, Watcher
from penstock.loop.abi import LANES
from penstock.loop.nodes import (
    I32,
    I64,
    U8,
    Buffer,
    Value,
    Var,
    const,
    select,
)
from penstock.operators.pane_aggregate.kernels.fold_panes import (
    FOLD_CHUNK,
    FoldFrame,
)

Passes = Callable[[Value], Value]


_HALF = FOLD_CHUNK // 2 + 3 * LANES  # capacity of the list of half a chunk


@dataclass(frozen=True)
class SelectedRows:
    """The selection: `count` rows of the chunk, all of them or those listed by their numbers in the batch.

    If the halves of the chunk have separate lists, `first` is the length of the first.
    """

    frame: FoldFrame
    count: Var
    rows: Buffer | None = None
    first: Var | None = None

    @contextmanager
    def each(self, unrolled: bool = False) -> Iterator[tuple[Value, Value]]:
        """Loop over the selection: the row of the batch, and the number of selected rows before it."""
        k = self.frame.k
        if self.first is None:
            with k.for_(0, self.count, "j") as j:
                yield k.var("row", self.frame.at + j if self.rows is None else self.rows[j].to(I64)), j
            return
        assert self.rows is not None
        with k.for_(0, 2, "half", scalar=True) as half:
            before = k.var("before", select(half.eq(0), const(0, I64), self.first))
            listed = k.var("listed", select(half.eq(0), self.first, self.count - self.first))
            begin = k.var("begin", half * _HALF)
            with k.for_(0, listed, "i", unrolled=unrolled) as i:
                yield k.var("row", self.rows[begin + i].to(I64)), before + i


def select_chunk(frame: FoldFrame, n: Var, watch: Watcher | None = None) -> SelectedRows:
    """Apply the filter to a chunk; with a watcher, to both halves of the chunk in one loop."""
    if frame.spec.where is None and frame.own is None:
        return SelectedRows(frame, n)
    k = frame.k
    rows = k.local("chosen", I32, 2 * _HALF)
    positions = k.shared_buffer("positions", "", U8)

    order = frame.spec.order

    def passes(r: Value) -> Value:
        row = frame.at + r
        if order is not None:
            return frame.passes_group(row, order[0])
        found = conjunction(frame.passes(row), None if frame.own is None else frame.owned(row))
        assert found is not None
        return found

    selection = Selection(k, frame.at, passes, rows, positions)
    if watch is None:
        chosen = SelectedRows(frame, selection.rows(n), rows)
    else:
        first, second = selection.halves(n, watch, _HALF)
        chosen = SelectedRows(frame, k.var("count", first + second), rows, first)
    if order is not None:
        for group in order[1:]:
            _refine(chosen, rows, partial(frame.passes_group, group=group))
        if frame.own is not None:
            _refine(chosen, rows, frame.owned)
    return chosen


def _refine(chosen: SelectedRows, rows: Buffer, passes: Passes) -> None:
    """Keep the selected rows that pass a further condition, in order."""
    k = chosen.frame.k
    if chosen.first is None:
        k.set(chosen.count, _passing(chosen.frame, rows, const(0, I64), chosen.count, passes))
        return
    second = k.var("second", chosen.count - chosen.first)
    k.set(chosen.first, _passing(chosen.frame, rows, const(0, I64), chosen.first, passes))
    second = _passing(chosen.frame, rows, const(_HALF, I64), second, passes)
    k.set(chosen.count, chosen.first + second)


def _passing(frame: FoldFrame, rows: Buffer, begin: Value, count: Value, passes: Passes) -> Var:
    """Move the rows of a list that pass to its front, without branches; return their number."""
    k = frame.k
    kept = k.var("kept", 0)
    with k.for_(0, count, "i", scalar=True) as i:
        row = k.var("row", rows[begin + i])
        k.store(rows, begin + kept, row)
        k.set(kept, kept + passes(k.var("at", row.to(I64))).to(I64))
    return kept
