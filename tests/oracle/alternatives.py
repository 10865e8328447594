"""List the physical plans that answer the same query: one choice of a plan made differently, where that is legal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from penstock.ir import nodes as ir
from penstock.physical import nodes as ph
from penstock.physical.build import physical
from penstock.physical.choose_join import EAGER_ALGORITHMS, LAZY_ALGORITHMS
from penstock.physical.choose_window import RECOMPUTE, SUBTRACT, TWO_STACKS
from penstock.physical.nodes import POSITIONAL_SIGNALS, SURVIVORS, Settings
from penstock.physical.verify import verify
from penstock.plan.nodes import Source
from penstock.types.windows import LEFT_ROW_KINDS, InWindow, Session, TimeWindow, windows_overlap

SETTINGS = (
    *(Settings(aggregator) for aggregator in (RECOMPUTE, TWO_STACKS, SUBTRACT)),
    Settings(off=frozenset({POSITIONAL_SIGNALS})),
    Settings(off=frozenset({SURVIVORS})),
)


def alternatives(program: ir.Program, sources: Sequence[Source], mode: ph.Mode) -> list[ph.Plan]:
    """Return the plan of a program, then every plan that differs in one setting or in the choice of one node."""
    plan = physical(program, sources, mode, Settings())
    by_setting = (physical(program, sources, mode, settings) for settings in SETTINGS)
    by_node = (
        verify(replace(plan, nodes=tuple(other if kept is node else kept for kept in plan.nodes)))
        for node in plan.nodes
        for other in _others(node, mode)
    )
    found = [plan]
    for candidate in (*by_setting, *by_node):
        if candidate not in found:
            found.append(candidate)
    return found


def _others(node: ph.Node, mode: ph.Mode) -> Iterator[ph.Node]:
    match node.op:
        case ph.PaneAggregate(key_table="dense") as op:
            yield replace(node, op=replace(op, key_table="hash"))
        case ph.Join(pairing=InWindow() as pairing) as op if op.on and _has_windows_of_pairs(op, pairing):
            for algorithm in (*LAZY_ALGORITHMS, *EAGER_ALGORITHMS):
                yield replace(node, op=replace(op, algorithm=algorithm, eager=False))
            if mode == "unbounded" and _may_be_eager(pairing):
                for algorithm in ("auto", *EAGER_ALGORITHMS):
                    yield replace(node, op=replace(op, algorithm=algorithm, eager=True))
        case _:
            return


def _has_windows_of_pairs(op: ph.Join, pairing: InWindow) -> bool:
    """Return whether an algorithm can be named: not for sessions, nor where all windows of a left row decide."""
    several = op.how in LEFT_ROW_KINDS and windows_overlap(pairing)
    return not isinstance(pairing.left, Session) and not several


def _may_be_eager(pairing: InWindow) -> bool:
    """Return whether pairs can leave as rows arrive: each row is in one window of a grid that both sides share."""
    left = pairing.left
    return isinstance(left, TimeWindow) and left == pairing.right and left.size <= left.every
