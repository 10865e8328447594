"""Derive a predicate per stream for the rows that the query reads, so that files can skip the others.

    ~w1 @ size 10s = { where kind == 1 ... }   →   in0: kind == 1 or is_null(ts)
    ~w2 @ size 60s = { where kind == 2 ... }       (with both: kind == 1 or kind == 2 or is_null(ts))

Rows without a time are counted as malformed, so they are always read. A predicate that can fail is not pushed into
the scan: it must be evaluated on every row, to fail on the same row. Implied times depend on row numbers, so all
rows have to be read.
"""

from __future__ import annotations

from penstock.analysis.totality import is_total
from penstock.expr.nodes import Call, Column, Expr
from penstock.ir.nodes import (
    Apply,
    Attach,
    Body,
    Input,
    Lookback,
    Object,
    Program,
    Reduce,
    Samples,
    sources_of,
)


def scan_predicates(program: Program) -> dict[str, Expr]:
    """Return, by stream, a predicate that holds for every needed row; omit streams of which all rows are needed."""
    found: dict[str, list[Expr | None]] = {}
    for obj in program.objects:
        if isinstance(obj.body, Input):
            found.setdefault(obj.body.stream, []).append(_asked_of(obj, program))
    known = {stream: [part for part in parts if part is not None] for stream, parts in found.items()}
    return {
        stream: _either(parts)
        for stream, parts in known.items()
        if parts and len(parts) == len(found[stream])
    }


def _asked_of(this: Object, program: Program) -> Expr | None:
    """Return the disjunction of the readers' predicates on an input; None if a reader needs every row."""
    readers = [obj.body for obj in program.objects if this.name in sources_of(obj.body)]
    asked = [_where(body) for body in readers]
    known = [where for where in asked if where is not None and is_total(where, this.schema)]
    if this.time.implied or program.output == this.name or not known or len(known) < len(asked):
        return None
    return _either([*known, Call("is_null", (Column(this.time.column),))])


def _where(body: Body) -> Expr | None:
    match body:
        case Samples() | Reduce() | Attach() | Lookback() | Apply():
            return body.where
        case _:
            return None


def _either(parts: list[Expr]) -> Expr:
    whole = parts[0]
    for part in parts[1:]:
        whole = Call("or", (whole, part))
    return whole
