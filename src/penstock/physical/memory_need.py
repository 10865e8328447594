"""Estimate the memory of bounded runs: which operators hold the rows of streams, and how much each row needs.

    rolling("1h", by="k").agg(m=pk.mean("v"))   →   3 times the bytes of a row and 72 more

The figures are bounds of the peaks that runs of 8 M rows reached, 16 to 24 bytes wide (decision 140), the shares of a budget those
that `python -m benchmarks.scale.task_memory` finds.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.physical import nodes as ph
from penstock.types.windows import Lookup


@dataclass(frozen=True, slots=True)
class Need:
    """What a row needs while an operator holds it: a multiple of its own bytes, and bytes of positions and results.

    Of that bound a run reaches the part `reached`, and where rows are spilled, the `share` of its budget: chunks, runs and
    what the operator keeps.
    """

    operator: str
    node: str
    times: float
    plus: int
    reached: float = 1.0
    share: float = 0.4


def holders(plan: ph.Plan) -> tuple[Need, ...]:
    """Return the operators that hold rows of streams; those behind an aggregation hold its few results."""
    plain: set[str] = set()
    found: list[Need] = []
    for node in plan.nodes:
        reached = isinstance(node.op, ph.Scan) or any(name in plain for name in node.inputs)
        if reached and isinstance(node.op, ph.Scan | ph.Rows | ph.Union):
            plain.add(node.id)
        elif reached:
            found += _need(node)
    return tuple(found)


def operator_names(plan: ph.Plan) -> dict[str, str]:
    """Name the operator of each node, for messages."""
    return {node.id: _name(node.op) for node in plan.nodes}


def _need(node: ph.Node) -> list[Need]:
    match node.op:
        case ph.PaneAggregate() | ph.Join(pairing=Lookup()):
            return []
        case ph.SortedWindows() | ph.LookBack() as op:
            peak = (0.62, 0.1) if isinstance(op, ph.SortedWindows) else (1.0, 0.1)
            return [Need(_name(op), node.id, 3.0, 40 + 16 * max(len(op.reductions), 1), *peak)]
        case ph.Signals() as op:
            return [Need(_name(op), node.id, 3.0, 64, 1.8, 0.19)]
        case op:
            return [Need(_name(op), node.id, 4.0, 48)]


def _name(op: ph.Op) -> str:
    match op:
        case ph.PaneAggregate():
            return "the window aggregation"
        case ph.SortedWindows():
            return "the windows over sorted rows"
        case ph.LookBack():
            return "the look-back"
        case ph.Signals():
            return "the signal"
        case ph.Join():
            return "the join"
        case ph.Distinct():
            return "distinct"
        case ph.TopK():
            return "top_k"
        case _:
            return "an operator"
