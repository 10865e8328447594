"""Predicates: conjuncts and where they hold, expressions that never fail, and those that a scan can evaluate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from penstock.expr.nodes import Call, Case, Cast, Column, Expr, Literal, depth, fold
from penstock.expr.rules import zone_of
from penstock.expr.typing import type_of
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
from penstock.types.arrow import kind_of, value_type

# --- Split and combine predicates without changing which rows they keep or fail on.

DEEPEST_PREDICATE = 100
FALSE = Literal(False, pa.bool_())


def then(first: Expr | None, second: Expr | None, *, total: bool) -> Expr | None:
    """Combine two filters into one predicate; None keeps every row.

    `first and second` is true exactly when both are, so one filter replaces two. But `and` evaluates both
    sides: a second predicate that can fail must be evaluated only where the first is true.
    """
    if first is None or second is None:
        return second if first is None else first
    return both(first, second) if total else Case(((first, second),), FALSE)


def both(first: Expr, second: Expr) -> Expr:
    """Return a conjunction; a chain of `and` that would nest deeply becomes one of many operands."""
    match first:
        case Call(function="and", args=args) if depth(first) >= DEEPEST_PREDICATE:
            return Call("and", (*args, second))
        case _:
            return Call("and", (first, second))


def conjuncts(predicate: Expr | None) -> tuple[Expr, ...]:
    """Split a predicate into its conjuncts."""
    found: list[Expr] = []
    opened: set[Expr] = set()  # a shared conjunction counts once: it may stand for billions of conjuncts
    waiting = [] if predicate is None else [predicate]
    while waiting:
        match waiting.pop():
            case Call(function="and", args=args) as node:
                waiting.extend(() if node in opened else reversed(args))
                opened.add(node)
            case node:
                found.append(node)
    return tuple(found)


def conjunction(parts: Iterable[Expr]) -> Expr | None:
    """Combine conjuncts into one predicate; None if there are none."""
    whole: Expr | None = None
    for part in parts:
        whole = then(whole, part, total=True)
    return whole


# --- Find the expressions that never fail on any row; passes may evaluate those anywhere.
#
# Other expressions (integer overflow, casts out of range) must not be evaluated on rows that a filter before
# them drops.

_ALWAYS = frozenset(
    {
        "field",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "and",
        "or",
        "xor",
        "not",
        "is_null",
        "is_not_null",
        "is_nan",
    }
    | {"div", "pow", "sign", "floor", "ceil", "round", "sqrt", "exp", "log", "log2", "log10"}
    | {"sin", "cos", "tan", "epoch_ticks", "str_len_chars", "str_len_bytes"}
    | {"starts_with", "ends_with", "contains", "to_lower", "to_upper", "to_title", "strip"}
    | {
        "strip_start",
        "strip_end",
        "strip_prefix",
        "strip_suffix",
        "head",
        "tail",
        "reverse",
        "matches",
        "slice",
    }
)
_IF_UTC = frozenset(
    {"year", "month", "day", "quarter", "weekday", "ordinal_day", "week", "iso_year"}
    | {"hour", "minute", "second", "millisecond", "microsecond", "nanosecond"}
)
_IF_FLOAT = frozenset({"add", "sub", "mul", "floordiv", "neg", "abs"})
_IF_ALIKE = frozenset({"fill_null", "least", "greatest"})


def is_total(expr: Expr, schema: pa.Schema, reduced: Sequence[pa.DataType] = ()) -> bool:
    """Return whether the expression can be evaluated for every row of the schema."""
    return fold(expr, lambda node, below: all(below) and _step_is_total(node, schema, reduced))


def _step_is_total(expr: Expr, schema: pa.Schema, reduced: Sequence[pa.DataType]) -> bool:
    match expr:
        case Call(function=function) if function in _IF_FLOAT:
            return kind_of(type_of(expr, schema, reduced)) == "float"
        case Call(function="mod" | "remainder"):
            return kind_of(type_of(expr, schema, reduced)) in {"int", "uint", "float"}
        case Call(function=function, args=args) if function in _IF_UTC:
            return zone_of(value_type(type_of(args[0], schema, reduced))) is None
        case Call(function=function, args=args) if function in _IF_ALIKE:
            return _fit(args, expr, schema, reduced)
        case Call(function=function):
            return function in _ALWAYS
        case Cast(arg=arg):
            return _fit((arg,), expr, schema, reduced)
        case Case(branches=branches, otherwise=otherwise):
            return _fit((*(value for _, value in branches), otherwise), expr, schema, reduced)
        case _:
            return True


def _fit(parts: Sequence[Expr], whole: Expr, schema: pa.Schema, reduced: Sequence[pa.DataType]) -> bool:
    """Return whether every value of the parts' types can be converted to the type of the whole."""
    target = value_type(type_of(whole, schema, reduced))
    return all(_converts(value_type(type_of(part, schema, reduced)), target) for part in parts)


def _converts(source: pa.DataType, target: pa.DataType) -> bool:
    if source == target or kind_of(source) == "null":
        return True
    match kind_of(source), kind_of(target):
        case ("bool" | "int" | "uint" | "float", "float" | "bool") | ("bool", "int" | "uint"):
            return True
        case ("int", "int") | ("uint", "uint"):
            return bool(source.bit_width <= target.bit_width)
        case ("uint", "int"):
            return bool(source.bit_width < target.bit_width)
        case ("string", "string"):
            return True
        case _:
            return False


# --- Derive a predicate per stream for the rows that the query reads, so that files can skip the others.
#
#     ~w1 @ size 10s = { where kind == 1 ... }   →   in0: kind == 1 or is_null(ts)
#     ~w2 @ size 60s = { where kind == 2 ... }       (with both: kind == 1 or kind == 2 or is_null(ts))
#
# Rows without a time are counted as malformed, so they are always read. A predicate that can fail is not pushed into
# the scan: it must be evaluated on every row, to fail on the same row. Implied times depend on row numbers, so all
# rows have to be read.


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
    predicates = [_where(body) for body in readers]
    known = [where for where in predicates if where is not None and is_total(where, this.schema)]
    if this.time.implied or program.output == this.name or not known or len(known) < len(predicates):
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
