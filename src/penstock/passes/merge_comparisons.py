"""Merge long chains of comparisons of one column with literals into a list.

    where k == 1 or k == 2 or … or k == 9         →  where k is in [1, 2, …, 9]
    where k != 1 and k != 2 and … and k != 9      →  where not (k is in [1, 2, …, 9])

A list of any length costs one node, and a long one is looked up in a hash table. Chains shorter than `FEWEST_COMPARISONS` stay.
The operands of `and` and `or` are all evaluated, in any order, and comparisons cannot fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from penstock.expr.nodes import Call, Column, Expr, IsIn, Literal, children, fold, walk, with_children
from penstock.expr.typing import column_type
from penstock.ir.nodes import Attach, Lookback, Object, Program, Reduce, Samples
from penstock.types.arrow import kind_of, value_type

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
