"""Fold constants, and merge comparisons of one column into the strictest.

    v > 2 * 3                    →  v > 6
    true and k == 1              →  k == 1
    not (not (k == 1))           →  k == 1
    where true                   →  (no filter)
    9223372036854775807 + 1      →  unchanged: the error must occur at the row that evaluates it

A fold keeps the type of every enclosing expression: type rules do not treat a sum of literals as a literal.

    where k == 1 or k == 2 or … or k == 9         →  where k is in [1, 2, …, 9]
    where k != 1 and k != 2 and … and k != 9      →  where not (k is in [1, 2, …, 9])

A list of any length costs one node, and a long one is looked up in a hash table. Chains shorter than `FEWEST_COMPARISONS` stay.
The operands of `and` and `or` are all evaluated, in any order, and comparisons cannot fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.expr.evaluate import evaluate
from penstock.expr.nodes import (
    Call,
    Case,
    Column,
    Expr,
    Field,
    IsIn,
    Literal,
    children,
    fold,
    walk,
    with_children,
)
from penstock.expr.typing import column_type, type_of
from penstock.ir.nodes import (
    Attach,
    Body,
    Lookback,
    Object,
    Program,
    Reduce,
    Reduction,
    Samples,
    Signals,
    result_scope,
    result_types,
)
from penstock.ir.signals import nodes as temporal
from penstock.ir.signals.scope import Schemas, reduced_types, scope
from penstock.types.arrow import kind_of, value_type

_Reduction = TypeVar("_Reduction", Reduction, temporal.WindowReduction)
Fold = Callable[[Expr], Expr]


def fold_constants(program: Program) -> Program:
    """Fold every expression of the program."""
    return Program(
        tuple(replace(obj, body=_body(obj.body, program)) for obj in program.objects), program.output
    )


def _body(body: Body, program: Program) -> Body:
    match body:
        case Samples(source=source, where=where, fields=fields):
            fold = _folding(program[source].schema)
            return Samples(source, _predicate(where, fold), _fields(fields, fold))
        case Reduce():
            return _windowed(body, program[body.source])
        case Attach():
            return _windowed(body, program[body.source])
        case Signals(sources=sources, program=signals):
            return Signals(sources, _signals(signals, [program[name].schema for name in sources]))
        case _:
            return body


def _signals(program: temporal.Program, sources: Sequence[pa.Schema]) -> temporal.Program:
    schemas = {obj.name: obj.schema for obj in program.objects}
    objects = tuple(replace(obj, body=_signal(obj, schemas, sources)) for obj in program.objects)
    return replace(program, objects=objects)


def _signal(this: temporal.Object, schemas: Schemas, sources: Sequence[pa.Schema]) -> temporal.Body:
    match this.body:
        case temporal.Sampled() as body:
            return replace(body, fields=_fields(body.fields, _folding(sources[int(body.input)])))
        case temporal.Expression() | temporal.Feedback() as body:
            reductions = tuple(
                _reduction(reduction, _folding(schemas[reduction.source])) for reduction in body.reductions
            )
            fold = _folding(scope(body, schemas, this.schema.types[0]), reduced_types(body, schemas))
            return replace(body, reductions=reductions, fields=_fields(body.fields, fold))
        case body:
            return body


def _windowed(body: Reduce | Attach, source: Object) -> Reduce | Attach:
    before = _folding(source.schema)
    reductions = tuple(_reduction(reduction, before) for reduction in body.reductions)
    after = _folding(result_scope(body, source), result_types(body, source))
    folded = replace(
        body,
        keys=_fields(body.keys, before),
        reductions=reductions,
        where=_predicate(body.where, before),
        fields=_fields(body.fields, after),
    )
    return replace(folded, having=_predicate(folded.having, after)) if isinstance(folded, Reduce) else folded


def _reduction(reduction: _Reduction, fold: Fold) -> _Reduction:
    return replace(reduction, args=tuple(map(fold, reduction.args)), where=_predicate(reduction.where, fold))


def _fields(fields: tuple[Field, ...], fold: Fold) -> tuple[Field, ...]:
    return tuple(
        field if (folded := fold(field.expr)) is field.expr else Field(field.name, folded) for field in fields
    )


def _predicate(where: Expr | None, fold: Fold) -> Expr | None:
    """Fold a filter; remove one that is always true."""
    folded = None if where is None else fold(where)
    return None if _is(folded, value=True) else folded


def _folding(schema: pa.Schema, reduced: Sequence[pa.DataType] = ()) -> Fold:
    def rule(expr: Expr, new: tuple[Expr, ...]) -> Expr:
        if not new:
            return expr
        same = new == children(expr)
        whole = expr if same else _retyped(expr, with_children(expr, new), schema, reduced)
        return _retyped(whole, _simplified(_computed(whole)), schema, reduced)

    return lambda expr: fold(expr, rule)


def _retyped(expr: Expr, candidate: Expr, schema: pa.Schema, reduced: Sequence[pa.DataType]) -> Expr:
    """Return the candidate if it has the type of the expression, else the expression."""
    if candidate is expr:
        return expr
    same = type_of(candidate, schema, reduced) == type_of(expr, schema, reduced)
    return candidate if same else expr


def _computed(expr: Expr) -> Expr:
    """Evaluate an expression of constants, unless evaluation fails."""
    inner = children(expr)
    if not inner or not all(isinstance(child, Literal) for child in inner):
        return expr
    empty = pa.schema([])
    try:
        return Literal(evaluate(expr, {}, empty), type_of(expr, empty))
    except PenstockError:
        return expr


def _simplified(expr: Expr) -> Expr:
    match expr:
        case Call(function="and"):
            return _absorbed(expr, neutral=True)
        case Call(function="or"):
            return _absorbed(expr, neutral=False)
        case Call(function="not", args=(Call(function="not", args=(inner,)),)):
            return inner
        case Case():
            return _decided(expr)
        case _:
            return expr


def _absorbed(whole: Call, *, neutral: bool) -> Expr:
    """Remove the neutral operands of `and` (true) or `or` (false); the opposite constant is the result."""
    opposite = next((arg for arg in whole.args if _is(arg, value=not neutral)), None)
    if opposite is not None:
        return opposite
    rest = tuple(arg for arg in whole.args if not _is(arg, value=neutral))
    if len(rest) == len(whole.args):
        return whole
    return Call(whole.function, rest) if len(rest) > 1 else (*rest, whole.args[0])[0]


def _decided(case: Case) -> Expr:
    """Drop branches that are never taken, and those after a branch that is always taken."""
    branches: list[tuple[Expr, Expr]] = []
    otherwise = case.otherwise
    for condition, value in case.branches:
        if _is(condition, value=True):
            otherwise = value
            break
        if not isinstance(condition, Literal):
            branches.append((condition, value))
    return Case(tuple(branches), otherwise) if branches else otherwise


def _is(expr: Expr | None, *, value: bool) -> bool:
    return isinstance(expr, Literal) and expr.value is value


FEWEST_COMPARISONS = 9
_WHOLE = {"int", "uint"}

_Key = tuple[Column, pa.DataType]  # a column, and the type of the literals that it is compared with


def merge_comparisons(program: Program) -> Program:
    """Merge the chains in every filter over the rows of an object."""
    return Program(tuple(_merged(obj, program) for obj in program.objects), program.output)


def _merged(this: Object, program: Program) -> Object:
    match this.body:
        case Samples(where=where) | Reduce(where=where) | Attach(where=where) | Lookback(where=where) as body:
            if where is None or not any(_is_chain(node) for node in walk(where)):
                return this
            merged = _in_filter(where, program[body.source].schema)
            return this if merged == where else replace(this, body=replace(body, where=merged))
        case _:
            return this


def _is_chain(node: Expr) -> bool:
    return isinstance(node, Call) and node.function in ("and", "or")


def _in_filter(where: Expr, schema: pa.Schema) -> Expr:
    inner = _inner(where)
    done: set[Expr] = set()  # chains that are merged, and not taken apart by a chain around them

    def rule(node: Expr, new: tuple[Expr, ...]) -> Expr:
        whole = node if new == children(node) else with_children(node, new)
        if node in inner or not (isinstance(whole, Call) and _is_chain(whole)):
            return whole
        merged = _listed(whole, schema, done)
        done.add(merged)
        return merged

    return fold(where, rule)


def _inner(where: Expr) -> set[Expr]:
    """Find the chains that only one chain of the same function reads."""
    reads = [(child, node) for node in walk(where) for child in children(node) if _is_chain(child)]
    times = Counter(child for child, _ in reads)
    return {child for child, node in reads if times[child] == 1 and _same_function(child, node)}


def _same_function(one: Expr, other: Expr) -> bool:
    return isinstance(one, Call) and isinstance(other, Call) and one.function == other.function


def _operands(whole: Call, done: set[Expr]) -> Iterator[Expr]:
    waiting = list(reversed(whole.args))
    while waiting:
        node = waiting.pop()
        if isinstance(node, Call) and node.function == whole.function and node not in done:
            waiting.extend(reversed(node.args))
        else:
            yield node


def _listed(whole: Call, schema: pa.Schema, done: set[Expr]) -> Expr:
    """Replace the comparisons of a chain that list enough values of one column."""
    operands = list(dict.fromkeys(_operands(whole, done)))
    tests = {operand: test for operand in operands if (test := _test(operand, whole.function, schema))}
    values: dict[_Key, dict[Literal, None]] = {}
    for key, found in tests.values():
        values.setdefault(key, {}).update(dict.fromkeys(found))
    long = {
        key: _list(key, found, whole.function)
        for key, found in values.items()
        if len(found) >= FEWEST_COMPARISONS
    }
    if not long:
        return whole
    merged = (long.get(tests[operand][0], operand) if operand in tests else operand for operand in operands)
    parts = tuple(dict.fromkeys(merged))
    return Call(whole.function, parts) if len(parts) > 1 else parts[0]


def _list(key: _Key, values: Iterable[Literal], function: str) -> Expr:
    found = IsIn(key[0], tuple(values))
    return found if function == "or" else Call("not", (found,))


def _test(operand: Expr, function: str, schema: pa.Schema) -> tuple[_Key, tuple[Literal, ...]] | None:
    """Return the column that an operand of a chain compares, and with which values; None if it does something else."""
    comparison = "eq" if function == "or" else "ne"
    match operand:
        case Call(function=name, args=(Column() as column, Literal() as value)) if name == comparison:
            return _listable(column, (value,), schema)
        case Call(function=name, args=(Literal() as value, Column() as column)) if name == comparison:
            return _listable(column, (value,), schema)
        case IsIn(arg=Column() as column, values=values) if function == "or":
            return _listable(column, values, schema)
        case Call(function="not", args=(IsIn(arg=Column() as column, values=values),)) if function == "and":
            return _listable(column, values, schema)
        case _:
            return None


def _listable(
    column: Column, values: tuple[Literal, ...], schema: pa.Schema
) -> tuple[_Key, tuple[Literal, ...]] | None:
    """Accept values that Arrow looks up as they are: of the type of the column, or whole numbers both."""
    dtype = value_type(column_type(column.name, schema))
    types = {value.type for value in values}
    alike = types == {dtype} or {kind_of(dtype) for dtype in (dtype, *types)} <= _WHOLE
    if not alike or len(types) != 1 or any(value.value is None for value in values):
        return None
    return (column, values[0].type), values
