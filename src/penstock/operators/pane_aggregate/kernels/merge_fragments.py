"""The absorb kernel: merge fragments (pane, key, partial states) into a pane table.

Fragments transfer state: between the tables of two threads, from a saved file, across a shuffle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.algorithms.expressions.columns import RowKernel, arenas
from penstock.algorithms.monoids import Monoid
from penstock.loop.abi import DONE, NEED_SLOTS, NEED_WIDE, STATUS
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, Buffer, Overflows, Value
from penstock.operators.pane_aggregate.kernels.pane_slots import PaneSlots


def build_merge_fragments(monoids: Sequence[Monoid]) -> RowKernel:
    """Build the kernel for a list of monoids; keys arrive as groups of the target table."""
    k = KernelBuilder("absorb")
    lo, hi, columns = k.scalar("lo"), k.scalar("hi"), k.scalar("columns")
    head = k.buffer("head", I64)
    slots = PaneSlots.declare(k, head, columns, monoids)
    panes, keys = k.buffer("in_panes", I64), k.buffer("in_keys", I64)
    inputs = [tuple(k.buffer("in_state", state.type) for state in monoid.states) for monoid in monoids]
    with k.for_(lo, hi, "row") as row:
        slot = slots.find(k, k.var("pane", panes[row]), lambda: _stop(k, head, NEED_SLOTS, row))
        place = k.var("place", slot * columns + keys[row])
        _merge_cell(k, monoids, slots.states, inputs, place, row, lambda: _stop(k, head, NEED_WIDE, row))
    k.store(head, STATUS, DONE)
    k.ret(hi)
    return RowKernel(k.build(), arenas(k))


def build_merge_pane(monoids: Sequence[Monoid]) -> RowKernel:
    """Build the kernel that merges a pane of another table with the same groups into a pane of this one.

    `own` and `other` are the first cells of the two rows. No key is looked up, and empty cells are skipped.
    """
    k = KernelBuilder("blend")
    lo, hi, own, other = k.scalar("lo"), k.scalar("hi"), k.scalar("own"), k.scalar("other")
    head = k.buffer("head", I64)
    states = [tuple(k.buffer("state", state.type) for state in monoid.states) for monoid in monoids]
    inputs = [tuple(k.buffer("in_state", state.type) for state in monoid.states) for monoid in monoids]
    with k.for_(lo, hi, "key") as key, k.if_(inputs[0][0][other + key].to(I64).ne(0)):
        _merge_cell(
            k, monoids, states, inputs, own + key, other + key, lambda: _stop(k, head, NEED_WIDE, key)
        )
    k.store(head, STATUS, DONE)
    k.ret(hi)
    return RowKernel(k.build(), arenas(k))


def _merge_cell(
    k: KernelBuilder,
    monoids: Sequence[Monoid],
    states: Sequence[tuple[Buffer, ...]],
    inputs: Sequence[tuple[Buffer, ...]],
    place: Value,
    row: Value,
    overflow: Callable[[], None],
) -> None:
    """Merge one cell of states into another, wholly or not at all."""
    merged = []
    for monoid, own, other in zip(monoids, states, inputs, strict=True):
        a = tuple(k.var("a", buffer[place]) for buffer in own)
        b = tuple(k.var("b", buffer[row]) for buffer in other)
        if monoid.guarded:
            with k.if_(Overflows("add", a[0], b[0])):
                overflow()
        merged += [*zip(own, monoid.merge(k, a, b), strict=True)]
    for buffer, value in merged:
        k.store(buffer, place, value)


def _stop(k: KernelBuilder, head: Buffer, why: int, row: Value) -> None:
    k.store(head, STATUS, why)
    k.ret(row)
