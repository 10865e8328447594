"""Type inference of expressions."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

import pyarrow as pa

from penstock.errors import ExpressionTypeError, UnknownColumnError
from penstock.expr.aggregates import AGGREGATES
from penstock.expr.arithmetic import castable
from penstock.expr.functions import FUNCTIONS
from penstock.expr.interning import ordered
from penstock.expr.nodes import (
    Aggregate,
    Call,
    Case,
    Cast,
    Column,
    Composite,
    Expr,
    IsIn,
    Literal,
    Reduced,
    children,
    composites,
    has_aggregate,
    with_children,
)
from penstock.expr.rules import INSTANTS, NUMBER_KINDS, Operand, common_type, comparable
from penstock.expr.show import show
from penstock.types.arrow import kind_of, value_type


def type_of(expr: Expr, schema: pa.Schema, reduced: Sequence[pa.DataType] = ()) -> pa.DataType:
    """Return the type of an expression over the columns of `schema`; check all subexpressions.

    `reduced` has the types of the reductions that `Reduced` nodes reference.

    >>> type_of(Call("add", (Column("a"), Column("b"))), pa.schema({"a": pa.int8(), "b": pa.float32()}))
    DataType(double)
    """
    match expr:
        case Column(name=name):
            return column_type(name, schema)
        case Literal(type=dtype):
            return dtype
        case Reduced(index=index):
            return reduced[index]
    known = expr.facts.get("type")
    if known is not None and known[0] is schema and known[1] is reduced:
        return known[2]
    return _inferred(expr, schema, reduced)


def _inferred(expr: Composite, schema: pa.Schema, reduced: Sequence[pa.DataType]) -> pa.DataType:
    """Type each node once per scope, without recursion; a node keeps its type in the last scope only."""

    def untyped(node: Composite) -> list[Composite]:
        # The arguments of an aggregate are typed in another scope.
        below = [] if isinstance(node, Aggregate) else composites(node)
        return [
            child
            for child in below
            if (known := child.facts.get("type")) is None or known[0] is not schema or known[1] is not reduced
        ]

    dtype = None
    for node in ordered([expr], untyped):
        dtype = _composite_type(node, schema, reduced)
        node.facts["type"] = schema, reduced, dtype
    return dtype


def _composite_type(expr: Composite, schema: pa.Schema, reduced: Sequence[pa.DataType]) -> pa.DataType:
    match expr:
        case Call():
            return _call_type(expr, schema, reduced)
        case Cast(arg=arg, type=dtype):
            return _cast_type(expr, type_of(arg, schema, reduced), dtype)
        case Case():
            return _case_type(expr, schema, reduced)
        case IsIn():
            return _membership_type(expr, type_of(expr.arg, schema, reduced))
        case Aggregate():
            return _aggregate_type(expr, schema)


def column_type(name: str, schema: pa.Schema) -> pa.DataType:
    """Return a column's type; suggest similar names if there is no such column."""
    if not isinstance(name, str):
        raise ExpressionTypeError(f"a column is named by a string, not by a {type(name).__name__}")
    place = place_of(name, schema)
    if place is not None:
        return schema.field(place).type
    near = get_close_matches(name, schema.names, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise UnknownColumnError(f"there is no column {name!r}{hint} (columns: {listed(schema.names)})")


def place_of(name: str, schema: pa.Schema) -> int | None:
    """Return the place of a column in a schema, in constant time; None if there is no such column."""
    try:
        place: int = schema.get_field_index(name)
    except UnicodeEncodeError:  # a lone surrogate
        return None
    return None if place < 0 else place


def listed(names: Sequence[str], most: int = 20) -> str:
    """Join names for an error message, at most `most` of them."""
    rest = len(names) - most
    return ", ".join(map(repr, names[:most])) + (f" and {rest} more" if rest > 0 else "")


def operand_of(expr: Expr, dtype: pa.DataType) -> Operand:
    """Describe an argument for the type rules."""
    if isinstance(expr, Literal) and isinstance(expr.value, int) and not isinstance(expr.value, bool):
        return Operand(value_type(dtype), expr.value >= 0, len(str(abs(expr.value))))
    return Operand(value_type(dtype))


def known_operands(operands: Sequence[Operand]) -> list[Operand]:
    """Give untyped nulls the type of the first typed operand, int64 if there is none."""
    typed = next((operand for operand in operands if operand.kind != "null"), Operand(pa.int64()))
    return [Operand(typed.type) if operand.kind == "null" else operand for operand in operands]


def _call_type(call: Call, schema: pa.Schema, reduced: Sequence[pa.DataType]) -> pa.DataType:
    function = FUNCTIONS.get(call.function)
    if function is None:
        raise ExpressionTypeError(f"there is no function {call.function!r}")
    types = [type_of(arg, schema, reduced) for arg in call.args]
    if len(types) < function.least or (function.most is not None and len(types) > function.most):
        raise ExpressionTypeError(f"{call.function} does not take {len(types)} arguments, in {show(call)}")
    operands = [operand_of(arg, dtype) for arg, dtype in zip(call.args, types, strict=True)]
    result = function.rule(known_operands(operands), dict(call.options))
    if result is None and call.function == "field" and pa.types.is_struct(types[0]):
        raise _no_member(call, types[0])
    if result is None:
        raise _undefined(call, call.function, function.takes, types)
    return result


def _no_member(call: Call, dtype: pa.StructType) -> UnknownColumnError:
    name, names = str(dict(call.options)["name"]), [field.name for field in dtype]
    if name in names:
        return UnknownColumnError(
            f"the struct has several fields {name!r}, in {show(call)}; rename all but one"
        )
    near = get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return UnknownColumnError(
        f"the struct has no field {name!r}{hint} (fields: {listed(names)}), in {show(call)}"
    )


def _undefined(expr: Expr, name: str, takes: str, types: Sequence[pa.DataType]) -> ExpressionTypeError:
    given = " and ".join(map(str, types)) or "nothing"
    return ExpressionTypeError(f"{name} takes {takes}, not {given}, in: {show(expr)}{_advice(name, types)}")


def _advice(name: str, types: Sequence[pa.DataType]) -> str:
    kinds = {kind_of(dtype) for dtype in types}
    if (
        name in _ARITHMETIC
        and kinds & {"timestamp", "date", "duration"}
        and (about := _of_spans(name, kinds))
    ):
        return about
    if kinds == {"timestamp"} and len({dtype.tz is None for dtype in types}) == 2:
        return "; one has a time zone and the other has none: cast one of them"
    if kinds == {"timestamp", "date"}:
        return "; the timestamp has a time zone and a date has none: take .dt.date() of it, or .dt.replace_time_zone(None)"
    if "string" in kinds and kinds & {"timestamp", "date"}:
        return "; write the time as a datetime, or cast the string"
    return "; convert with .cast(...) if that is what you mean" if len(kinds) > 1 else ""


_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "floordiv", "mod"})


def _of_spans(name: str, kinds: set[str]) -> str:
    """Return advice on how to write and compute with durations; empty if they are not the problem."""
    if name in ("add", "sub") and kinds & {"string", *NUMBER_KINDS}:
        time = " and a time as a datetime" if name == "sub" else ""
        return f"; write a length of time as a timedelta, such as timedelta(days=1),{time} or use .dt.offset_by('1d')"
    if name == "add" and kinds <= INSTANTS:
        return "; times are subtracted, which gives a duration, and not added"
    if "duration" in kinds and kinds & NUMBER_KINDS:
        return "; a duration as a number is .dt.total_seconds(), .dt.total_microseconds() and so on"
    return ""


def _cast_type(cast: Cast, source: pa.DataType, target: pa.DataType) -> pa.DataType:
    if not castable(source, target):
        raise ExpressionTypeError(f"{source} cannot be cast to {target}, in: {show(cast)}")
    return target


def _case_type(case: Case, schema: pa.Schema, reduced: Sequence[pa.DataType]) -> pa.DataType:
    for condition, _ in case.branches:
        require_bool(condition, type_of(condition, schema, reduced), "a condition of when")
    values = [*(value for _, value in case.branches), case.otherwise]
    types = [type_of(value, schema, reduced) for value in values]
    result = common_type([operand_of(value, dtype) for value, dtype in zip(values, types, strict=True)])
    if result is None or kind_of(result) == "other":
        raise _undefined(case, "when", "values of one type that can be computed with", types)
    return result


def require_bool(expr: Expr, dtype: pa.DataType, what: str) -> None:
    """Reject a predicate that is not boolean."""
    if kind_of(dtype) not in ("bool", "null"):
        raise ExpressionTypeError(f"{what} must be a boolean, but this is {dtype}: {show(expr)}")


def _membership_type(node: IsIn, dtype: pa.DataType) -> pa.DataType:
    for value in node.values:
        if value.value is None:
            raise ExpressionTypeError(f"is_in takes no null (use is_null), in: {show(node)}")
        if kind_of(dtype) != "null" and not comparable(dtype, value.type):
            raise _undefined(node, "is_in", "values comparable with its column", [dtype, value.type])
    return pa.bool_()


def _aggregate_type(node: Aggregate, schema: pa.Schema) -> pa.DataType:
    function = AGGREGATES.get(node.function)
    if function is None:
        raise ExpressionTypeError(
            f"there is no aggregate {node.function!r}; there are {', '.join(AGGREGATES)}"
        )
    if not function.least <= len(node.args) <= function.most:
        raise ExpressionTypeError(
            f"{node.function} does not take {len(node.args)} arguments, in {show(node)}"
        )
    inner = (*node.args, *(() if node.where is None else (node.where,)))
    if any(has_aggregate(part) for part in inner):
        raise ExpressionTypeError(
            f"an aggregate cannot stand inside another, in: {show(node)}; aggregate once, then again in a second window"
        )
    if node.where is not None:
        require_bool(node.where, type_of(node.where, schema), "where=")
    types = [type_of(arg, schema) for arg in node.args]
    result = function.rule([value_type(dtype) for dtype in types], function.settings(node.options))
    if result is None:
        raise _undefined(node, node.function, function.takes, types)
    return result


# --- Infer the types of untyped nulls from their context.


def typed_nulls(node: Expr, schema: pa.Schema) -> Expr:
    """Give the untyped nulls among a node's operands the type of the other operands."""
    match node:
        case Call(args=args) if any(is_untyped(arg, schema) for arg in args):
            known = known_operands([operand_of(arg, type_of(arg, schema)) for arg in args])
            typed = [null_as(arg, operand.type, schema) for arg, operand in zip(args, known, strict=True)]
            return with_children(node, tuple(typed))
        case Case(branches=branches, otherwise=otherwise):
            dtype = type_of(node, schema)
            pairs = tuple((condition, null_as(value, dtype, schema)) for condition, value in branches)
            return Case(pairs, null_as(otherwise, dtype, schema))
        case Aggregate(args=args, where=where) if any(is_untyped(child, schema) for child in children(node)):
            type_of(node, schema)  # most aggregates reject untyped nulls; counts take any type
            counted = tuple(null_as(arg, pa.int64(), schema) for arg in args)
            condition = () if where is None else (null_as(where, pa.bool_(), schema),)
            return with_children(node, (*counted, *condition))
        case _:
            return node


def is_untyped(expr: Expr, schema: pa.Schema) -> bool:
    """Return whether an expression is an untyped null: a literal, or a column of type null."""
    return isinstance(expr, Literal | Column) and kind_of(type_of(expr, schema)) == "null"


def null_as(expr: Expr, dtype: pa.DataType, schema: pa.Schema) -> Expr:
    """Return a null of the given type for an untyped null; other expressions unchanged."""
    return Literal(None, dtype) if is_untyped(expr, schema) else expr
