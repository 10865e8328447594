"""The fields of structs that a query reads, so that files need not decode the others.

    in0 (ts, place struct<city, street>)   ~s1 = ~in0 where place.city = 'b' { v }   →   place: {("city",)}

A struct that some reader takes as a whole, or that reaches a reader whose expressions are not all known here, is not
listed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.expr.nodes import Column, Expr, children, path_of
from penstock.ir.nodes import Attach, Input, Lookback, Object, Program, Reduce, Samples, sources_of
from penstock.types.arrow import member_type

Path = tuple[str, ...]


def narrowed_structs(program: Program) -> dict[str, dict[str, pa.DataType]]:
    """Return, by stream and column, the types of structs without the fields that the query does not read."""
    found: dict[str, dict[str, pa.DataType]] = {}
    seen: set[str] = set()
    for obj in program.objects:
        if isinstance(obj.body, Input):
            narrow = _of_input(obj, program)
            twice = obj.body.stream in seen  # two inputs of one stream: each may read other fields
            seen.add(obj.body.stream)
            found[obj.body.stream] = {} if twice else narrow
    return {stream: types for stream, types in found.items() if types}


def _of_input(this: Object, program: Program) -> dict[str, pa.DataType]:
    structs = {field.name: field.type for field in this.schema if pa.types.is_struct(field.type)}
    if not structs or program.output == this.name:
        return {}
    read: dict[str, set[Path]] = {name: set() for name in structs}
    for reader in (obj for obj in program.objects if this.name in sources_of(obj.body)):
        exprs = _expressions(reader)
        if exprs is None:
            return {}
        for path in (path for expr in exprs for path in _paths(expr)):
            if path[0] in read:
                read[path[0]].add(path[1:])
    return {
        name: narrow
        for name, dtype in structs.items()
        if () not in read[name] and read[name] and (narrow := _narrow(dtype, read[name])) != dtype
    }


def _expressions(this: Object) -> list[Expr] | None:
    """List the expressions over an object's source; None if the body may read more."""
    match this.body:
        case Samples(where=where, fields=fields):
            return [*(field.expr for field in fields), *([] if where is None else [where])]
        case Reduce() | Attach() | Lookback() as body:
            exprs = [field.expr for field in (*body.keys, *body.fields)]
            exprs += [arg for reduction in body.reductions for arg in reduction.args]
            exprs += [reduction.where for reduction in body.reductions if reduction.where is not None]
            return exprs if body.where is None else [*exprs, body.where]
        case _:
            return None


def _paths(expr: Expr) -> Iterator[Path]:
    """Yield the columns that an expression reads, each with the names of the fields it takes; every node is visited once."""
    waiting, seen = [expr], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        path = path_of(node)
        if path is not None:
            yield path
        elif not isinstance(node, Column):
            waiting.extend(children(node))


def _narrow(dtype: pa.DataType, paths: set[Path]) -> pa.DataType:
    """Keep the fields on some paths, in the order of the struct."""
    kept: dict[str, set[Path]] = {}
    for path in paths:
        kept.setdefault(path[0], set()).add(path[1:])
    fields = []
    for field in dtype:
        inside = kept.get(field.name)
        if inside is not None:
            whole = () in inside or member_type(dtype, field.name) is None
            fields.append(field if whole else field.with_type(_narrow(field.type, inside)))
    return pa.struct(fields)
