"""Translate a described query to DuckDB SQL over plain tables (temporal columns as ticks).

Written from the description alone. What DuckDB means differently (square roots of negative numbers,
calendar parts of ticks) raises `Inexpressible`.
"""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from tests.oracle import describe as d
from tests.oracle.data import Row, Value, plain_table, plain_type, rows_of


class Inexpressible(Exception):
    """DuckDB has no equal of this expression."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A SQL text, its columns in order, and the expression of a row's time in ticks."""

    text: str
    columns: tuple[str, ...]
    time: str


RESERVED = frozenset({"t", "window_start", "window_end"})
COMPARE = {"==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
UNARY = {name: name for name in ("abs", "floor", "ceil", "round", "sqrt", "exp")} | {"neg": "-"}


def spelled(name: str) -> str:
    """Spell a name so that DuckDB, which ignores case, keeps `T` and `t` apart."""
    return name if name in RESERVED else "n" + name.encode().hex()


def unspelled(name: str) -> str:
    return name if name in RESERVED else bytes.fromhex(name[1:]).decode()


def quoted(name: str) -> str:
    return f'"{spelled(name)}"'


def text_literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def literal(lit: d.Lit) -> str:
    match lit.value:
        case None:
            return "NULL"
        case bool(value):
            return "TRUE" if value else "FALSE"
        case int(value):
            return f"({value})::HUGEINT"
        case float(value):
            text = "nan" if math.isnan(value) else repr(value)
            return f"'{text}'::DOUBLE"
        case str(value):
            return text_literal(value)


def expression(node: d.Node) -> str:
    match node:
        case d.Col(name=name):
            return quoted(name)
        case d.Lit():
            return literal(node)
        case d.Cast(arg=arg, type=dtype):
            return f"CAST({expression(arg)} AS {_sql_type(dtype)})"
        case d.When(condition=condition, then=then, otherwise=otherwise):
            return (
                f"CASE WHEN {expression(condition)} THEN {expression(then)} ELSE {expression(otherwise)} END"
            )
        case d.IsIn(arg=arg, values=values):
            return f"({expression(arg)} IN ({', '.join(literal(value) for value in values)}))"
        case d.Agg():
            return aggregate(node)
        case d.Op():
            return operation(node.name, [expression(arg) for arg in node.args], node)


def operation(name: str, args: list[str], op: d.Op) -> str:
    match name:
        case "floor" | "round" if op.option == "int":
            return args[0]
        case "+" if op.option == "bool":
            return f"(CAST({args[0]} AS HUGEINT) + {args[1]})"
        case "+" | "-" | "*":
            return f"({args[0]} {name} {args[1]})"
        case "**":
            return f"pow({args[0]}, {args[1]})"
        case "/":
            return f"(CAST({args[0]} AS DOUBLE) / CAST({args[1]} AS DOUBLE))"
        case "//" | "%":
            return _floor_division(name, args[0], args[1], op)
        case "and" | "or":
            return f"({args[0]} {name.upper()} {args[1]})"
        case "not":
            return f"(NOT {args[0]})"
        case "is_null":
            return f"({args[0]} IS NULL)"
        case "fill_null":
            return f"coalesce({args[0]}, {args[1]})"
        case "between":
            return f"({args[0]} >= {args[1]} AND {args[0]} <= {args[2]})"
        case "truncate" if op.option[2] not in (None, "UTC"):
            raise Inexpressible("the clock of another zone")
        case "truncate":
            return f"({_floor_ticks(args[0], int(op.option[0]))})"
        case "least" | "greatest":
            return f"{name}({', '.join(args)})"
        case _ if name in COMPARE:
            return f"({args[0]} {COMPARE[name]} {args[1]})"
        case _ if name in UNARY:
            return f"({UNARY[name]}({args[0]}))"
        case _:
            raise Inexpressible(name)


def _floor_division(name: str, a: str, b: str, op: d.Op) -> str:
    """Spell Python's integer `//` and `%` out; DuckDB's truncate, and floats differ by zero."""
    if not all(_is_integer(arg) for arg in op.args):
        raise Inexpressible("floor division of floats")
    rest = f"((({a}) % ({b}) + ({b})) % ({b}))"
    whole = rest if name == "%" else f"((({a}) - {rest}) // ({b}))"
    return f"CASE WHEN ({b}) = 0 THEN NULL ELSE {whole} END"


def _is_integer(node: d.Node) -> bool:
    match node:
        case d.Lit(type=dtype) | d.Cast(type=dtype):
            return bool(pa.types.is_integer(dtype))
        case d.Op(name=name, args=args):
            return name in ("+", "-", "*", "//", "%", "neg", "abs") and all(_is_integer(arg) for arg in args)
        case _:
            return False


def _floor_ticks(value: str, every: int) -> str:
    return f"({value}) - ((({value}) % {every} + {every}) % {every})"


def _sql_type(dtype: pa.DataType) -> str:
    if pa.types.is_floating(dtype):
        return "DOUBLE"
    return "BOOLEAN" if pa.types.is_boolean(dtype) else "HUGEINT"


def aggregate(agg: d.Agg) -> str:
    where = "" if agg.where is None else f" FILTER (WHERE {expression(agg.where)})"
    if agg.arg is None:
        return f"count(*){where}"
    arg = expression(agg.arg)
    if agg.function == "mean":
        return f"avg(CAST({arg} AS DOUBLE)){where}"
    return f"{agg.function}({arg}){where}"


def _source_columns(schema: pa.Schema) -> str:
    """Widen every number, because DuckDB adds two TINYINTs as TINYINTs."""
    return ", ".join(f"{_widened(field)} AS {quoted(field.name)}" for field in schema)


def _widened(field: pa.Field) -> str:
    name, dtype = quoted(field.name), plain_type(field.type)
    if pa.types.is_integer(dtype):
        return f"CAST({name} AS HUGEINT)"
    return f"CAST({name} AS DOUBLE)" if pa.types.is_floating(dtype) else name


def translate(query: d.Query, tables: dict[str, pa.Table]) -> Relation:
    match query:
        case d.Source(name=name):
            schema = tables[name].schema
            text = f"SELECT {_source_columns(schema)} FROM {quoted(name)} WHERE t IS NOT NULL"
            return Relation(text, tuple(schema.names), "t")
        case d.Union(left=left, right=right):
            a, b = translate(left, tables), translate(right, tables)
            return Relation(f"({a.text}) UNION ALL ({b.text})", a.columns, a.time)
        case _:
            return _step(query, translate(query.input, tables))


def _step(query: d.Query, source: Relation) -> Relation:
    match query:
        case d.Filter(predicate=predicate):
            text = f"SELECT * FROM ({source.text}) WHERE {expression(predicate)}"
            return Relation(text, source.columns, source.time)
        case d.Select(fields=fields):
            kept = [name for name in source.columns if name in ("window_start", "window_end", source.time)]
            return _project(source, {name: d.Col(name) for name in kept} | dict(fields))
        case d.With(fields=fields):
            return _project(source, {name: d.Col(name) for name in source.columns} | dict(fields))
        case d.Window():
            if source.time == "window_end" and any("window_" in expression(node) for _, node in query.fields):
                raise Inexpressible("the bounds of the inner window, hidden behind those of the outer one")
            return _window(query, _exploded(query, source))
        case d.Regroup():
            return _window(query, source)
        case d.Top(k=k, by=by):
            order = (
                f"rank() OVER (PARTITION BY window_start, window_end ORDER BY {quoted(by)} DESC NULLS LAST)"
            )
            text = f"SELECT * FROM ({source.text}) QUALIFY {order} <= {k}"
            return Relation(text, source.columns, source.time)
        case _:
            raise Inexpressible(type(query).__name__)


def _project(source: Relation, fields: dict[str, d.Node]) -> Relation:
    chosen = ", ".join(f"{expression(node)} AS {quoted(name)}" for name, node in fields.items())
    return Relation(f"SELECT {chosen} FROM ({source.text})", tuple(fields), source.time)


def _time(source: Relation) -> str:
    return "window_end - 1" if source.time == "window_end" else quoted(source.time)


def _exploded(query: d.Window, source: Relation) -> Relation:
    """Copy each row once per window: the definition Spark and Flink run literally."""
    size, every, offset = query.size, query.every, query.offset
    last = f"(pk_time - {offset} - (((pk_time - {offset}) % {every} + {every}) % {every}))"
    copies = -(-size // every)
    kept = ", ".join(quoted(name) for name in source.columns if not name.startswith("window_"))
    inner = f"SELECT *, {_time(source)} AS pk_time FROM ({source.text})"
    starts = f"SELECT *, {last} + {offset} - pk_n * {every} AS pk_start FROM ({inner}), range({copies}) AS pk(pk_n)"
    held = f"pk_start <= pk_time AND pk_time < pk_start + {size}"
    bounds = f"pk_start AS window_start, pk_start + {size} AS window_end"
    text = f"SELECT {kept}{', ' if kept else ''}{bounds} FROM ({starts}) WHERE {held}"
    return Relation(text, source.columns, "window_end")


def _window(query: d.Window | d.Regroup, source: Relation) -> Relation:
    keys = ["window_start", "window_end", *query.by]
    outputs = ", ".join(f"{expression(node)} AS {quoted(name)}" for name, node in query.fields)
    grouped = ", ".join(quoted(name) for name in keys)
    canonical = ", ".join(f"{quoted(key)} AS {quoted(key)}" for key in keys)
    text = f"SELECT {canonical}, {outputs} FROM ({source.text}) GROUP BY {grouped}"
    return Relation(text, (*keys, *(name for name, _ in query.fields)), "window_end")


def run(query: d.Query, tables: dict[str, pa.Table]) -> list[Row]:
    """Run the query in DuckDB and list its rows as plain values."""
    relation = translate(query, tables)
    with duckdb.connect(config={"threads": "1"}) as connection:
        for name, table in tables.items():
            connection.register(spelled(name), plain_table(table).rename_columns(_spellings(table)))
        return _plain(connection.sql(relation.text).to_arrow_table())


def _spellings(table: pa.Table) -> list[str]:
    return [spelled(name) for name in table.column_names]


def _plain(table: pa.Table) -> list[Row]:
    """Turn DuckDB's HUGEINT results (doubles or decimals in Arrow) back into integers."""
    rows = rows_of(table)
    return [{unspelled(name): _integer(value) for name, value in row.items()} for row in rows]


def _integer(value: Value | decimal.Decimal) -> Value:
    return int(value) if isinstance(value, decimal.Decimal) else value
