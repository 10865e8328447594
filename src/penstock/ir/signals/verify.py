"""Check that a temporal program obeys the grammar."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.errors import PenstockError, VerificationError
from penstock.expr.nodes import Aggregate, Column, Expr, Reduced, walk
from penstock.expr.typing import column_type, type_of
from penstock.ir.signals.nodes import (
    Chop,
    Expression,
    Feedback,
    Last,
    Object,
    Per,
    Program,
    Resample,
    Rolling,
    SampleAndHold,
    Sampled,
    Window,
    WindowReduction,
    sources_of,
)
from penstock.ir.signals.scope import chopped_schema, fields_schema
from penstock.types.time import Time

Inputs = Sequence[tuple[pa.Schema, Time]]


def verify(program: Program, inputs: Inputs) -> None:
    """Raise `VerificationError` unless the program is well formed over inputs of these columns and times."""
    known: dict[str, pa.Schema] = {}
    for obj in program.objects:
        _require(obj.name not in known, obj, "is defined twice")
        for source in sources_of(obj.body):
            _require(source in known, obj, f"reads ~{source}, which is not defined before it")
        try:
            _verify(obj, program, known, inputs)
        except VerificationError:
            raise
        except (PenstockError, IndexError, KeyError, ValueError) as reason:
            raise VerificationError(f"the signal ~{obj.name} is ill typed: {reason}") from reason
        known[obj.name] = obj.schema
    if program.output not in known:
        raise VerificationError(f"the signal ~{program.output}, which is the output, is not defined")


def _require(condition: bool, this: Object, what: str) -> None:
    if not condition:
        raise VerificationError(f"the signal ~{this.name} {what}")


def _verify(this: Object, program: Program, known: dict[str, pa.Schema], inputs: Inputs) -> None:
    match this.body:
        case Sampled() as body:
            _verify_sampled(this, body, program, *inputs[int(body.input)])
        case Expression() as body:
            _verify_reading(this, body)
            _same(this, fields_schema(body, known))
        case Feedback() as body:
            _verify_reading(this, body)
            _require(len(this.schema) == 1 and bool(body.own), this, "feeds back nothing, or several values")
            past = all((own.back > 0) != (own.shift > 0) for own in body.own)
            _require(past, this, "reads results that are not in its past")
            _same(this, fields_schema(body, known, this.schema.types[0]))
        case Resample(source=source, every=every, method=method, max_gap=gap):
            _require(every > 0 and (gap is None or gap > 0), this, "is resampled at no distance")
            _require(method in {"linear", "last"}, this, f"is resampled by {method!r}, which is no method")
            _same(this, known[source])
        case Chop(source=source, every=every) as body:
            _require(every is None or every > 0, this, "is chopped into pieces of no length")
            _same(this, chopped_schema(body, known[source]))
        case SampleAndHold(source=source):
            _same(this, known[source])


def _same(this: Object, found: pa.Schema) -> None:
    _require(
        this.schema.equals(found), this, f"declares other columns than it has: {this.schema} and {found}"
    )


def _verify_sampled(this: Object, body: Sampled, program: Program, schema: pa.Schema, time: Time) -> None:
    _require(time.type == program.time.type, this, "is sampled on another clock than the program's")
    column_type(time.column, schema)
    keys = [column_type(name, schema) for name in body.keys]
    _require(list(body.keys) == program.keys.names and keys == program.keys.types, this, "has other keys")
    if body.hold.until is not None:
        _require(column_type(body.hold.until, schema) == time.type, this, "ends on another clock")
    _same(this, pa.schema([pa.field(field.name, type_of(field.expr, schema)) for field in body.fields]))


def _verify_reading(this: Object, body: Expression | Feedback) -> None:
    for reduction in body.reductions:
        _require(_is_positive(reduction), this, "reduces over a span of no length")
    for field in body.fields:
        _verify_scalar(this, field.expr, len(body.reductions))
    _require(bool(body.accesses or body.reductions), this, "reads nothing")


def _is_positive(over: WindowReduction) -> bool:
    match over.span:
        case Rolling(size=size) | Per(size=size) | Last(rows=size):
            return size > 0
        case Window(size=size, every=every):
            return size > 0 and every > 0


def _verify_scalar(this: Object, expr: Expr, reductions: int) -> None:
    problem = misplaced(expr, reductions)
    _require(problem is None, this, problem or "")


def misplaced(expr: Expr, reductions: int) -> str | None:
    """Return why an expression is not scalar (an aggregate, or an undefined reduction), or None if it is."""
    for node in () if isinstance(expr, Column) else walk(expr):
        match node:
            case Aggregate():
                return "has an aggregate where a reduction should be named"
            case Reduced(index=index) if not 0 <= index < reductions:
                return f"reads reduction #{index} of {reductions}"
    return None
