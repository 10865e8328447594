"""Check a physical plan: its grammar, that rows reach a place where they are counted, and that time passes."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import VerificationError
from penstock.physical.nodes import (
    AtEnd,
    Join,
    LookBack,
    Node,
    PaneAggregate,
    Plan,
    Rows,
    Scan,
    SortedWindows,
    TableInput,
    TopK,
    Union,
)


def verify(plan: Plan) -> Plan:
    """Give the plan back if it holds; raise what does not hold otherwise."""
    problems = [*_structure(plan), *_counting(plan), *_time(plan)]
    if problems:
        raise VerificationError(f"the physical plan is invalid: {'; '.join(problems)}")
    return plan


# --- grammar --------------------------------------------------------------------------------------------


def _structure(plan: Plan) -> Iterator[str]:
    seen: set[str] = set()
    for node in plan.nodes:
        if node.id in seen:
            yield f"{node.id} is defined twice"
        for name in node.inputs:
            if name not in seen:
                yield f"{node.id} reads {name}, which is not defined before it"
        if not _arity(node):
            yield f"{node.id} has {len(node.inputs)} inputs"
        yield from _choices(node)
        seen.add(node.id)
    if plan.output not in seen:
        yield f"the output {plan.output} is not defined"


def _arity(node: Node) -> bool:
    match node.op:
        case Scan() | TableInput():
            return not node.inputs
        case Join():
            return len(node.inputs) == 2
        case Union():
            return len(node.inputs) >= 1
        case Rows() | PaneAggregate() | SortedWindows() | LookBack() | TopK():
            return len(node.inputs) == 1
        case _:
            return len(node.inputs) >= 1


def _choices(node: Node) -> Iterator[str]:
    """Every choice has a reason, and every assumption a fallback."""
    for choice in node.choices:
        if not choice.reason:
            yield f"{node.id} gives no reason for its {choice.what}"
        yield from (
            f"{node.id} assumes that {assumption.text}, without a fallback"
            for assumption in choice.assumptions
            if not assumption.fallback
        )


# --- each row is counted once ---------------------------------------------------------------------------


def _counting(plan: Plan) -> Iterator[str]:
    """Require that every node is read or is the output: rows are counted by the first counting operator on their
    path, or at the output, so rows of a node that nothing reads would be counted nowhere.
    """
    read = {name for node in plan.nodes for name in node.inputs}
    for node in plan.nodes:
        if node.id not in read and node.id != plan.output:
            yield f"rows of {node.id} reach neither a counting operator nor the output"


# --- time passes ----------------------------------------------------------------------------------------


def _time(plan: Plan) -> Iterator[str]:
    """Every watermark rule lets time pass, or says why it advances only at the end of input."""
    for node in plan.nodes:
        match node:
            case Node(watermark=AtEnd(reason="")):
                yield f"time stops at {node.id}, without a reason"
            case Node(op=TableInput(), time=time) if time is not None:
                yield f"the table {node.id} has a time"
            case Node(op=op, time=None) if not isinstance(op, TableInput) and _reads_stream(node, plan):
                yield f"{node.id} has no time"
            case _:
                pass


def _reads_stream(node: Node, plan: Plan) -> bool:
    streams: set[str] = set()
    for part in plan.nodes:
        if isinstance(part.op, Scan) or streams & set(part.inputs):
            streams.add(part.id)
    return node.id in streams
