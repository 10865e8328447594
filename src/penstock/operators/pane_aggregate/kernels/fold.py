"""The fold kernel: aggregate the rows of a batch into panes; filter, keys and aggregates are fused into one pass.

Rows are processed in chunks, so that intermediate results stay in the first-level cache:

    1. pane          one for the whole chunk where time is in order (the common case), else row by row
    2. selection     the filter, to a list of row offsets, without branches
    3. add           for each selected row: look up the key's group, step the states of (pane, key)

Without keys, floats and rows without a filter take a plain masked reduction in place of steps 2 and 3, in lanes. `fold_steps/` has a file for
each step.

A row is added wholly or not at all. When there is no room for its key or pane, or an integer sum would
overflow 64 bits, the kernel returns that row's number: the rows before it are done; the runtime provides a
larger table or wider sums and calls again from there.
"""

from __future__ import annotations

from penstock.algorithms.expressions.columns import RowKernel, arenas
from penstock.algorithms.selection import chunk_length
from penstock.loop.abi import DONE
from penstock.loop.nodes import Var
from penstock.operators.pane_aggregate.kernels.fold_steps.add import Addition
from penstock.operators.pane_aggregate.kernels.fold_steps.frame import FOLD_CHUNK, FoldFrame, FoldSpec
from penstock.operators.pane_aggregate.kernels.fold_steps.instrument import Instrument
from penstock.operators.pane_aggregate.kernels.fold_steps.panes import CurrentPane
from penstock.operators.pane_aggregate.kernels.fold_steps.reduce import ChunkReduction
from penstock.operators.pane_aggregate.kernels.fold_steps.rows import SelectedRows, select_chunk


def build_fold(spec: FoldSpec) -> RowKernel:
    """Build the fold kernel for a specification."""
    frame = FoldFrame(spec)
    pane = CurrentPane(frame)
    k = frame.k
    instrument = Instrument(frame) if spec.instrumented else None
    with k.while_(frame.at < frame.hi):
        n = k.var("n", chunk_length(frame.hi - frame.at, FOLD_CHUNK))
        pane.enter(frame.time_at(frame.at))
        if frame.selects:
            _add_chunk(frame, pane, n)
        else:
            _reduce_chunk(frame, pane, n)
        if instrument is not None:
            instrument.count(n)
        k.set(frame.at, frame.at + n)
    frame.leave(DONE, frame.hi)
    return RowKernel(k.build(), (*frame.columns.bindings, *arenas(k)))


def _add_chunk(frame: FoldFrame, pane: CurrentPane, n: Var) -> None:
    chosen = _settled_rows(frame, pane, n)
    frame.reserve_keys(chosen.count)
    Addition(frame, pane, n, chosen).write()


def _settled_rows(frame: FoldFrame, pane: CurrentPane, n: Var) -> SelectedRows:
    """Find the pane and the selected rows of a chunk: in one loop, where both read every row."""
    if frame.spec.time.implied:
        pane.cut(n)
        return select_chunk(frame, n)
    if frame.spec.where is None and frame.own is None:
        pane.check(n)
        return select_chunk(frame, n)
    pane.reach(n)
    watch = pane.watch_lanes()
    chosen = select_chunk(frame, n, watch)
    pane.decide(watch)
    return chosen


def _reduce_chunk(frame: FoldFrame, pane: CurrentPane, n: Var) -> None:
    if frame.spec.time.implied:
        pane.cut(n)
        ChunkReduction(frame, pane, n).write()
        return
    pane.check(n)
    with frame.k.if_(pane.single):
        ChunkReduction(frame, pane, n).write()
    with frame.k.else_():
        Addition(frame, pane, n, select_chunk(frame, n)).write()
