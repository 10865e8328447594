"""Find what rows of an input nobody looks at, so that whoever reads them need not deliver them.

    ~w1 = … ~in0 where kind = 'view'    ~w2 = … ~in0 where kind = 'buy'   →  {"in0": kind = 'view' or kind = 'buy'}

This is an analysis: the program stays as it is, and still filters for itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.expr.nodes import Call, Expr
from penstock.ir.nodes import Apply, Attach, Body, Input, Lookback, Program, Reduce, Samples, sources_of


def scan_filters(program: Program) -> Mapping[str, Expr | None]:
    """Give the predicate that some reader of each input has to find true; None if all rows are read."""
    inputs = [each.name for each in program.objects if isinstance(each.body, Input)]
    return {name: _needed(name, program) for name in inputs}


def _needed(name: str, program: Program) -> Expr | None:
    asked = [_where(each.body) for each in program.objects if name in sources_of(each.body)]
    if name == program.output or not asked:
        return None
    whole: Expr | None = None
    for each in asked:
        if each is None:
            return None
        whole = each if whole is None or whole == each else Call("or", (whole, each))
    return whole


def _where(body: Body) -> Expr | None:
    match body:
        case Samples() | Reduce() | Attach() | Lookback() | Apply():
            return body.where
        case _:
            return None
