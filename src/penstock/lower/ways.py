"""Decide between the two ways to aggregate windows: panes, where rows come in any order, and lanes."""

from __future__ import annotations

from penstock.ir import nodes as ir
from penstock.lower.partials import decomposable


def runs_in_panes(body: ir.Body, program: ir.Program) -> bool:
    """Tell whether rows can be folded into panes: windows lie on a grid, and states have a fixed size."""
    if not isinstance(body, ir.Reduce) or not isinstance(body.domain, ir.Grid | ir.Carried):
        return False
    schema, ordered = program[body.source].schema, ordered_by_position(body.source, program)
    return all(decomposable(each, schema, ordered) for each in body.reductions)


def ordered_by_position(name: str, program: ir.Program) -> bool:
    """Tell whether only their time and their place in one stream order the rows of an object."""
    body = program[name].body
    match body:
        case ir.Input(sequence=sequence):
            return sequence is None
        case ir.Samples(source=source):
            return ordered_by_position(source, program)
        case _:
            return False
