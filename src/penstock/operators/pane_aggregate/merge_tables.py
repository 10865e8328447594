"""Merge pane tables that hold the same keys in the same columns, without key lookups."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.loop.abi import NEED_WIDE, STATUS, numbered
from penstock.operators.pane_aggregate.program import PaneKernels, WindowProgram
from penstock.operators.pane_aggregate.table import PaneTable
from penstock.physical.specialise import PaneProfile


def variant_of(nullable: frozenset[str], table: PaneTable) -> PaneProfile:
    """What a table assumes of its rows."""
    return PaneProfile(table.keys.kind, nullable, table.wide)


def kernels_for(program: WindowProgram, nullable: frozenset[str], table: PaneTable) -> PaneKernels:
    """Return the kernels of the variant that a table needs."""
    return program.variants.get(PaneProfile(table.keys.kind, nullable, table.wide))


def merge_pane(
    program: WindowProgram,
    nullable: frozenset[str],
    own: PaneTable,
    its: PaneTable,
    slots: Sequence[int],
    last: bool,
) -> None:
    """Merge the given slots of `its` into `own`; with `last`, no row is added to `own` afterwards."""
    here = {pane: slot for slot, pane in enumerate(own.panes[: own.slots].tolist())}
    panes = its.panes[: its.slots].tolist()
    others = []
    for slot in slots:
        if panes[slot] in here:
            _merge_pane(program, nullable, own, its, (here[panes[slot]], slot))
        else:
            others.append(slot)
    copy = own.put_behind if last else own.append
    copy(its, others)


def _merge_pane(
    program: WindowProgram, nullable: frozenset[str], own: PaneTable, its: PaneTable, slots: tuple[int, int]
) -> None:
    """Merge a pane that both tables hold; widen both tables to 128 bits if a sum overflows 64."""
    here, there = slots
    columns = own.keys.columns
    done = 0
    while done < columns:
        kernel = kernels_for(program, nullable, own).merge_pane
        inputs = {numbered("in_state", place): state for place, state in enumerate(its.states)}
        limits = {"lo": done, "hi": columns, "own": here * columns, "other": there * columns}
        done = kernel.call({**own.arguments(), **inputs, **limits})
        if own.head[STATUS] == NEED_WIDE:
            own.widen()
            its.widen()
