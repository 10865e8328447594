"""Interpret a physical plan by the plain twins of its operators: what any choice of algorithms must answer.

Rows are dicts of physical Python values, as in `ir/interpret.py`, which defines the answer of the program. This file
checks that a plan, with its hidden columns and its split into nodes, still means the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.errors import BindingError
from penstock.ir.samples import Row, Sample, ordering, time_at
from penstock.operators.distinct.plain import distinct
from penstock.operators.joins.plain import join
from penstock.operators.look_back.plain import look_back
from penstock.operators.pane_aggregate.plain import pane_aggregate
from penstock.operators.plain_rows import Rows
from penstock.operators.rows.plain import rows
from penstock.operators.signals.plain import signals
from penstock.operators.sorted_windows.plain import sorted_windows
from penstock.operators.topk.plain import top_k
from penstock.physical import nodes as ph

Inputs = Mapping[str, Sequence[Mapping[str, Any]]]


def interpret(plan: ph.Plan, inputs: Inputs) -> list[Row]:
    """Compute a plan's output from the rows of each stream and table, given in order of arrival."""
    values: dict[str, Rows] = {}
    for node in plan.nodes:
        values[node.id] = _value(
            node, [(input_, values[input_.id]) for input_ in plan.inputs_of(node)], inputs
        )
    return [value.row for value in values[plan.output]]


def _value(node: ph.Node, given: list[tuple[ph.Node, Rows]], inputs: Inputs) -> Rows:
    match node.op:
        case ph.Scan() as op:
            return _scan(op, node, _bound(op.stream, inputs))
        case ph.TableInput(table=table):
            return [_sample(row, node, ((), place)) for place, row in enumerate(_bound(table, inputs))]
        case ph.Rows() as op:
            return rows(op, node, *given[0])
        case ph.PaneAggregate() as op:
            return pane_aggregate(op, node, *given[0])
        case ph.SortedWindows() as op:
            return sorted_windows(op, node, *given[0])
        case ph.LookBack() as op:
            return look_back(op, node, *given[0])
        case ph.Signals() as op:
            return signals(op, node, given)
        case ph.Join() as op:
            return join(op, node, *given)
        case ph.Distinct() as op:
            return distinct(op, node, *given[0])
        case ph.TopK() as op:
            return top_k(op, node, *given[0])
        case ph.Union():
            return _union([samples for _, samples in given])


def _bound(name: str, inputs: Inputs) -> Sequence[Mapping[str, Any]]:
    if name not in inputs:
        raise BindingError(f"no rows are bound to {name!r}")
    return inputs[name]


def _sample(row: Mapping[str, Any], node: ph.Node, rank: tuple[Any, ...]) -> Sample:
    return Sample({name: row[name] for name in node.schema.names}, rank)


def _scan(op: ph.Scan, node: ph.Node, given: Sequence[Mapping[str, Any]]) -> Rows:
    """Rows have a rank of sequence and position; those without a time are malformed."""
    time, found = node.clock, []
    for place, argument in enumerate(given):
        row = (
            {**argument, time.column: time.start + place * time.period}
            if time.period is not None
            else argument
        )
        if time_at(row, time) is not None:
            rank = (() if op.sequence is None else ordering(row[op.sequence]), place)
            found.append(_sample(row, node, rank))
    return found


def _union(branches: Sequence[Rows]) -> Rows:
    """Rows of equal time and sequence are ordered by their branch."""
    return [
        Sample(sample.row, (sample.rank[0], branch, *sample.rank[1:]))
        for branch, samples in enumerate(branches)
        for sample in samples
    ]
