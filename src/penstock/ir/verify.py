"""Check that a program obeys the grammar, so that a broken pass fails at the pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from penstock.errors import PenstockError, VerificationError
from penstock.expr.nodes import Aggregate, Column, Expr, Field, Reduced, columns_of, walk
from penstock.expr.typing import column_type, place_of, type_of
from penstock.ir.nodes import (
    Apply,
    Asof,
    Attach,
    Distinct,
    Input,
    Join,
    Joined,
    Lookback,
    Merge,
    Object,
    Program,
    Reduce,
    Reduction,
    RollingJoin,
    Samples,
    Signals,
    Table,
    Top,
    pair_scope,
    result_scope,
    result_types,
    rolling_types,
    sources_of,
)
from penstock.ir.signals.nodes import END
from penstock.ir.signals.verify import misplaced
from penstock.ir.signals.verify import verify as verify_signals
from penstock.types.arrow import kind_of, value_type
from penstock.types.choices import repeated
from penstock.types.windows import (
    DIRECTIONS,
    JOIN_ALGORITHMS,
    JOIN_KINDS,
    WINDOW_END,
    WINDOW_START,
    CarriedWindow,
    Count,
    InWindow,
    Lookup,
    Session,
    TimeWindow,
    Window,
)

# --- Check joins of the IR.


def complaints(this: Object, body: Joined, sources: Sequence[Object]) -> Iterator[str]:
    """Yield every violation found in a join."""
    left, right = sources
    yield from _keys(body, left.schema, right.schema)
    match body:
        case Join():
            yield from _join(this, body, left, right)
        case Asof():
            yield from _fields(this, body, pair_scope(this.time, left.schema, right.schema))
            yield from _times(left, right)
            if body.direction not in DIRECTIONS:
                yield f"looks {body.direction}"
            if body.tolerance is not None and body.tolerance < 0:
                yield "has a tolerance below zero"
        case RollingJoin():
            yield from _times(left, right)
            yield from _rolling(this, body, left, right)


def _keys(body: Joined, left: pa.Schema, right: pa.Schema) -> Iterator[str]:
    for one, other in body.on:
        if column_type(one, left) != column_type(other, right):
            yield f"has keys of different types, {one!r} and {other!r}"


def _times(left: Object, right: Object) -> Iterator[str]:
    for side in (left, right):
        if side.time.column not in side.schema.names:
            yield f"needs the time of ~{side.name}, which is not there"
    if left.time.type != right.time.type:
        yield "joins objects with different times"


def _join(this: Object, body: Join, left: Object, right: Object) -> Iterator[str]:
    if body.how not in JOIN_KINDS:
        yield f"is a join of kind {body.how!r}"
    if body.algorithm not in JOIN_ALGORITHMS:
        yield f"joins by {body.algorithm!r}"
    if not isinstance(body.pairing, Lookup):
        yield from _times(left, right)
    if isinstance(body.pairing, InWindow):
        yield from _windows(body.pairing)
    if body.where is not None:
        yield from _scalar(columns_of(body.where), body)
        if kind_of(type_of(body.where, pair_scope(this.time, left.schema, right.schema))) not in {
            "bool",
            "null",
        }:
            yield "has a condition that is not boolean"
    yield from _fields(this, body, pair_scope(this.time, left.schema, right.schema))


def _windows(pairing: InWindow) -> Iterator[str]:
    same = pairing.left == pairing.right
    if isinstance(pairing.left, Count) or isinstance(pairing.right, Count):
        yield "counts the rows of two objects together"
    if not same and not (isinstance(pairing.left, TimeWindow) and isinstance(pairing.right, TimeWindow)):
        yield "has different windows that do not lie on grids"
    if isinstance(pairing.left, CarriedWindow) != isinstance(pairing.right, CarriedWindow):
        yield "has a window on one side only"


def _scalar(names: frozenset[str], body: Join) -> Iterator[str]:
    if any(not name.startswith(("left.", "right.")) for name in names):
        yield "has a condition on something else than its samples"
    if body.where is not None and any(isinstance(node, Aggregate | Reduced) for node in walk(body.where)):
        yield "has an aggregate in its condition"


def _fields(this: Object, body: Join | Asof, scope: pa.Schema) -> Iterator[str]:
    if [column.name for column in body.fields] != this.schema.names:
        yield "has other fields than columns"
        return
    for column in body.fields:
        if not isinstance(column.expr, Column):
            yield f"computes {column.name!r}, where only columns of a pair may stand"
        elif type_of(column.expr, scope) != this.schema.field(column.name).type:
            yield f"declares another type for {column.name!r}"


def _rolling(this: Object, body: RollingJoin, left: Object, right: Object) -> Iterator[str]:
    if body.within.lo > body.within.hi:
        yield "covers no time"
    types = rolling_types(body, right)
    if [column.name for column in body.fields] != this.schema.names:
        yield "has other fields than columns"
        return
    for column in body.fields:
        if type_of(column.expr, left.schema, types) != this.schema.field(column.name).type:
            yield f"declares another type for {column.name!r}"


def verify(program: Program, before: Program | None = None) -> None:
    """Raise `VerificationError` unless the program is well formed; `before` is a verified one that shares objects with it."""
    checked = {} if before is None else {id(obj): obj for obj in before.objects}
    known: dict[str, Object] = {}
    for obj in program.objects:
        _require(obj.name not in known, obj, "is defined twice")
        for source in sources_of(obj.body):
            _require(source in known, obj, f"reads ~{source}, which is not defined before it")
        if id(obj) not in checked or any(id(known[name]) not in checked for name in sources_of(obj.body)):
            _verify(obj, [known[name] for name in sources_of(obj.body)])
        known[obj.name] = obj
    if program.output not in known:
        raise VerificationError(f"the output ~{program.output} is not defined")


def _require(condition: bool, this: Object, what: str) -> None:
    if not condition:
        raise VerificationError(f"~{this.name} {what}")


def _verify(this: Object, sources: Sequence[Object]) -> None:
    _unique(this, this.schema.names, "column")
    try:
        _verify_body(this, sources)
    except VerificationError:
        raise
    except (PenstockError, IndexError, KeyError) as reason:
        raise VerificationError(f"~{this.name} is ill typed: {reason}") from reason


def _verify_body(this: Object, sources: Sequence[Object]) -> None:
    match this.body:
        case Input() as body:
            _verify_input(this, body)
        case Merge():
            _verify_merge(this, sources)
        case Table():
            pass
        case Join() | Asof() | RollingJoin() as body:
            for complaint in complaints(this, body, sources):
                _require(False, this, complaint)
            for reduction in body.reductions if isinstance(body, RollingJoin) else ():
                _verify_reduction(this, reduction, sources[1].schema)
        case Samples() as body:
            _verify_predicate(this, body.where, sources[0].schema)
            _verify_fields(this, body.fields, sources[0].schema)
        case Reduce() | Attach() as body:
            _verify_windowed(this, body, sources[0])
        case Lookback() as body:
            _verify_lookback(this, body, sources[0])
        case Apply() as body:
            _verify_domain(this, body.domain, sources[0])
            _verify_predicate(this, body.where, sources[0].schema)
            _verify_keys(this, body, sources[0])
            given = [WINDOW_START, WINDOW_END, *(key.name for key in body.keys)]
            _require(
                this.schema.names[: len(given)] == given, this, f"does not begin with the columns {given}"
            )
        case Signals() as body:
            verify_signals(body.program, [(source.schema, source.time) for source in sources])
            whole = body.program.schema
            schemas = [whole, whole.remove(whole.get_field_index(END))]  # the column of ends is optional
            _require(any(map(this.schema.equals, schemas)), this, "has other columns than its signal")
        case Distinct() as body:
            _verify_chosen(this, sources[0], body.subset)
            _has_time(this, sources[0])
            _require(body.keep in {"first", "last"}, this, f"keeps {body.keep!r}, neither first nor last")
            _require(body.within is None or body.within > 0, this, "is distinct within no time at all")
        case Top() as body:
            _verify_chosen(this, sources[0], (body.by, WINDOW_START, WINDOW_END))
            _require(body.k > 0, this, f"keeps the {body.k} largest, which is not positive")
            _require(
                body.ties in {"first", "all"}, this, f"treats ties as {body.ties!r}, neither first nor all"
            )


# --- definitions ------------------------------------------------------------------------------------


def _verify_input(this: Object, body: Input) -> None:
    _has_columns(this, this.schema, (this.time.column,))
    _has_columns(this, this.schema, () if body.sequence is None else (body.sequence,))
    _require(
        this.time.period is None or this.time.period > 0, this, "has an implied time that does not advance"
    )


def _verify_merge(this: Object, sources: Sequence[Object]) -> None:
    _require(bool(sources), this, "merges nothing")
    for source in sources:
        _require(_same_columns(this.schema, source.schema), this, f"has other columns than ~{source.name}")
        _require(source.time.shift == this.time.shift, this, f"has another time than ~{source.name}")


def _same_columns(first: pa.Schema, second: pa.Schema) -> bool:
    return bool(first.names == second.names and first.types == second.types)


def _verify_chosen(this: Object, source: Object, needed: Iterable[str]) -> None:
    """Check an object that passes a subset of its source's samples unchanged."""
    _require(_same_columns(this.schema, source.schema), this, f"has other columns than ~{source.name}")
    _has_columns(this, source.schema, needed)


def _verify_windowed(this: Object, body: Reduce | Attach, source: Object) -> None:
    _verify_domain(this, body.domain, source)
    _verify_predicate(this, body.where, source.schema)
    _verify_keys(this, body, source)
    for reduction in body.reductions:
        _verify_reduction(this, reduction, source.schema)
    scope, types = result_scope(body, source), result_types(body, source)
    _verify_fields(this, body.fields, scope, types)
    if isinstance(body, Reduce):
        _verify_predicate(this, body.having, scope, types)


def _verify_lookback(this: Object, body: Lookback, source: Object) -> None:
    _has_time(this, source)
    for span in body.spans:
        _require((span.size is None) != (span.rows is None), this, "looks back on a span and on rows at once")
        _require((span.size or span.rows or 0) > 0 and span.delay >= 0, this, "looks back on nothing")
        _require(span.closed in {"right", "left", "both", "none"}, this, f"has a span closed {span.closed!r}")
    _verify_predicate(this, body.where, source.schema)
    _verify_keys(this, body, source)
    for reduction in body.reductions:
        _require(
            0 <= reduction.span < len(body.spans),
            this,
            f"reduces over span {reduction.span} of {len(body.spans)}",
        )
        _verify_reduction(this, reduction, source.schema)
    _verify_fields(this, body.fields, source.schema, result_types(body, source))


def _verify_domain(this: Object, domain: Window, source: Object) -> None:
    match domain:
        case TimeWindow(size=size, every=every):
            _require(size > 0 and every > 0, this, f"has windows of size {size} every {every}: not positive")
            _has_time(this, source)
        case CarriedWindow():
            _has_columns(this, source.schema, (WINDOW_START, WINDOW_END))
        case Session(gap=gap):
            _require(gap > 0, this, f"has sessions with a gap of {gap}: not positive")
            _has_time(this, source)
        case Count(size=size, every=every):
            _require(size > 0 and every > 0, this, f"has windows of {size} rows every {every}: not positive")
            _has_time(this, source)
        case _:
            _has_time(this, source)


def _verify_keys(this: Object, body: Reduce | Attach | Lookback | Apply, source: Object) -> None:
    names = [key.name for key in body.keys]
    _unique(this, names, "key")
    bounds = set() if isinstance(body, Lookback) else {WINDOW_START, WINDOW_END}
    _require(not bounds & set(names), this, "has a key with the name of a window bound")
    for key in body.keys:
        _verify_scalar(this, key.expr, 0)
        type_of(key.expr, source.schema)


def _verify_reduction(this: Object, reduction: Reduction, schema: pa.Schema) -> None:
    for arg in reduction.args:
        _verify_scalar(this, arg, 0)
        type_of(arg, schema)
    _verify_predicate(this, reduction.where, schema)


# --- expressions ------------------------------------------------------------------------------------


def _verify_fields(
    this: Object, fields: tuple[Field, ...], scope: pa.Schema, reduced: Sequence[pa.DataType] = ()
) -> None:
    names = [field.name for field in fields]
    _unique(this, names, "field")
    if names != this.schema.names:
        _require(False, this, f"has fields {names} but columns {this.schema.names}")
    for field, declared in zip(fields, this.schema.types, strict=True):
        _verify_scalar(this, field.expr, len(reduced))
        found = type_of(field.expr, scope, reduced)
        if found != declared:
            _require(False, this, f"declares {field.name!r} as {declared}, but it is {found}")


def _verify_predicate(
    this: Object, where: Expr | None, scope: pa.Schema, reduced: Sequence[pa.DataType] = ()
) -> None:
    if where is None:
        return
    _verify_scalar(this, where, len(reduced))
    kind = kind_of(value_type(type_of(where, scope, reduced)))
    _require(kind in {"bool", "null"}, this, f"has a predicate of kind {kind}")


def _verify_scalar(this: Object, expr: Expr, reductions: int) -> None:
    problem = misplaced(expr, reductions)
    _require(problem is None, this, problem or "")


# --- columns ----------------------------------------------------------------------------------------


def _unique(this: Object, names: Sequence[str], what: str) -> None:
    twice = sorted(repeated(names))
    _require(not twice, this, f"has two {what}s named {', '.join(map(repr, twice))}")


def _has_columns(this: Object, schema: pa.Schema, names: Iterable[str]) -> None:
    missing = sorted({name for name in names if place_of(name, schema) is None})
    _require(not missing, this, f"needs columns that are not there: {', '.join(map(repr, missing))}")


def _has_time(this: Object, source: Object) -> None:
    _has_columns(this, source.schema, (source.time.column,))
