"""Run a described query in plain Python, row by row: the slowest and most obvious definition."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pyarrow as pa

from tests.oracle import describe as d
from tests.oracle.approx import Approx, mean, total, value_of
from tests.oracle.data import Row, rows_of
from tests.oracle.scalars import (
    Cell,
    Overflow,
    arithmetic,
    compare,
    extreme,
    fits,
    kleene,
    order_key,
    part,
    truncate,
    unary,
)

Cells = dict[str, Cell]
COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
ARITHMETIC = frozenset({"+", "-", "*", "/", "//", "%", "**"})
PARTS = frozenset({"year", "month", "day", "hour", "minute", "second", "weekday"})


class Table:
    """Rows in order, with the name of their time column and what to add to it."""

    def __init__(self, rows: list[Cells], time: str, shift: int = 0) -> None:
        self.rows, self.time, self.shift = rows, time, shift

    def at(self, row: Cells) -> int:
        return row[self.time] + self.shift  # type: ignore[operator, return-value]

    def but(self, rows: list[Cells]) -> Table:
        return Table(rows, self.time, self.shift)


def evaluate(node: d.Node, row: Cells, group: list[Cells] | None = None) -> Cell:
    """Evaluate an expression for one row, or its aggregates over a group."""
    match node:
        case d.Col(name=name):
            return row[name]
        case d.Lit(value=value):
            return value
        case d.Cast(arg=arg, type=dtype):
            return _cast(evaluate(arg, row, group), dtype)
        case d.When(condition=condition, then=then, otherwise=otherwise):
            chosen = then if evaluate(condition, row, group) is True else otherwise
            return evaluate(chosen, row, group)
        case d.IsIn(arg=arg, values=values):
            cell = evaluate(arg, row, group)
            return None if cell is None else any(compare("==", cell, value.value) for value in values)
        case d.Agg():
            assert group is not None
            return aggregate(node, group)
        case d.Op():
            return _operate(node, [evaluate(arg, row, group) for arg in node.args])


def _operate(op: d.Op, args: list[Cell]) -> Cell:
    match op.name:
        case "and" | "or":
            return kleene(op.name, args[0], args[1])
        case "is_null":
            return args[0] is None
        case "fill_null":
            return args[1] if args[0] is None else args[0]
        case "least" | "greatest":
            return extreme(op.name, args)
        case "between":
            low, high = compare_or_null(">=", args[0], args[1]), compare_or_null("<=", args[0], args[2])
            return kleene("and", low, high)
        case _ if any(arg is None for arg in args):
            return None
        case "not":
            return not args[0]
        case "truncate":
            return truncate(args[0], *op.option)  # type: ignore[arg-type, misc]
        case name if name in PARTS:
            return part(name, args[0], op.option)  # type: ignore[arg-type]
        case name if name in COMPARISONS:
            return compare(name, args[0], args[1])
        case name if name in ARITHMETIC:
            return arithmetic(name, args[0], args[1])
        case name:
            return unary(name, args[0])


def compare_or_null(name: str, a: Cell, b: Cell) -> Cell:
    return None if a is None or b is None else compare(name, a, b)


def _cast(cell: Cell, dtype: pa.DataType) -> Cell:
    if cell is None or isinstance(cell, Approx):
        return cell
    if pa.types.is_floating(dtype):
        return float(cell)
    if pa.types.is_boolean(dtype):
        return cell != 0
    return int(cell)


def aggregate(agg: d.Agg, group: list[Cells]) -> Cell:
    rows = [row for row in group if agg.where is None or evaluate(agg.where, row) is True]
    if agg.arg is None:
        return len(rows)
    cells = [cell for cell in (evaluate(agg.arg, row) for row in rows) if cell is not None]
    match agg.function:
        case "count":
            return len(cells)
        case _ if not cells:
            return None
        case "min" | "max":
            return extreme(agg.function, cells)
        case "mean":
            return mean([_number(cell) for cell in cells])
        case "sum" if isinstance(cells[0], float | Approx):
            return total([_number(cell) for cell in cells])
        case _:
            return fits(sum(int(cell) for cell in cells), agg.unsigned)  # type: ignore[arg-type]


def _number(cell: Cell) -> float | Approx:
    return cell if isinstance(cell, Approx) else float(cell)  # type: ignore[arg-type]


def starts(t: int, size: int, every: int, offset: int) -> Iterable[int]:
    """List the starts of the windows that hold `t`."""
    last = (t - offset) // every
    first = -((size - 1 - (t - offset)) // every) if size else last + 1
    return (offset + n * every for n in range(first, last + 1))


def key_cell(cell: Cell) -> object:
    """Canonicalise a key: NaN is one key, -0.0 is 0.0, True is not 1."""
    if isinstance(cell, float):
        return ("float", "nan" if math.isnan(cell) else cell + 0.0)
    return (type(cell).__name__, cell)


def _groups(table: Table, query: d.Window | d.Attach) -> dict[tuple[object, ...], list[Cells]]:
    groups: dict[tuple[object, ...], list[Cells]] = {}
    for row in table.rows:
        keys = tuple(key_cell(row[name]) for name in query.by)
        for start in starts(table.at(row), query.size, query.every, query.offset):
            groups.setdefault((start, *keys), []).append(row)
    return groups


def _fields(fields: d.Fields, group: list[Cells], seen: Cells) -> Cells:
    return {name: evaluate(node, seen, group) for name, node in fields}


def run(query: d.Query, tables: dict[str, pa.Table]) -> Table:
    """Evaluate the whole query."""
    match query:
        case d.Source(name=name):
            rows: list[Row] = [row for row in rows_of(tables[name]) if row["t"] is not None]
            return Table(rows, "t")  # type: ignore[arg-type]
        case d.Union(left=left, right=right):
            first, second = run(left, tables), run(right, tables)
            return first.but(first.rows + second.rows)
        case _:
            return _step(query, run(query.input, tables))


def _step(query: d.Query, table: Table) -> Table:
    match query:
        case d.Filter(predicate=predicate):
            return table.but([row for row in table.rows if evaluate(predicate, row) is True])
        case d.Select(fields=fields):
            return table.but([_project(row, fields, _kept(row, table.time)) for row in table.rows])
        case d.With(fields=fields):
            return table.but([_project(row, fields, row) for row in table.rows])
        case d.Distinct(subset=subset):
            return table.but(_distinct(table, subset))
        case d.Window():
            return _windows(query, table)
        case d.Attach():
            return _attach(query, table)
        case d.Regroup():
            return _regroup(query, table)
        case d.Beside():
            groups = _carried(query, table)
            return table.but([row | _fields(query.fields, g, g[0]) for g in groups for row in g])
        case d.Top():
            return table.but(_top(query, table))
        case _:
            raise AssertionError(query)


def _kept(row: Cells, time: str) -> Cells:
    """List the columns that `select` keeps unasked."""
    return {name: row[name] for name in row if name in ("window_start", "window_end", time)}


def _project(row: Cells, fields: d.Fields, kept: Cells) -> Cells:
    return {**kept, **{name: evaluate(node, row) for name, node in fields}}


def _distinct(table: Table, subset: tuple[str, ...] | None) -> list[Cells]:
    seen: dict[tuple[object, ...], Cells] = {}
    for row in sorted(table.rows, key=table.at):
        seen.setdefault(tuple(key_cell(row[name]) for name in subset or row), row)
    return list(seen.values())


def _windows(query: d.Window, table: Table) -> Table:
    rows: list[Cells] = []
    for (start, *_), group in _groups(table, query).items():
        seen: Cells = {"window_start": start, "window_end": start + query.size}  # type: ignore[dict-item, operator]
        seen |= {name: group[0][name] for name in query.by}
        rows.append(seen | _fields(query.fields, group, seen))
    return Table(rows, "window_end", -1)


def _attach(query: d.Attach, table: Table) -> Table:
    rows: list[Cells] = []
    for (start, *_), group in _groups(table, query).items():
        bounds: Cells = {"window_start": start, "window_end": start + query.size}  # type: ignore[dict-item, operator]
        added = _fields(query.fields, group, group[0])
        rows.extend({**row, **bounds, **added} for row in group)
    return table.but(rows)


def _carried(query: d.Regroup | d.Beside, table: Table) -> list[list[Cells]]:
    """Group rows by the window they carry, and by keys."""
    groups: dict[tuple[object, ...], list[Cells]] = {}
    for row in table.rows:
        names = ("window_start", "window_end", *query.by)
        groups.setdefault(tuple(key_cell(row[name]) for name in names), []).append(row)
    return list(groups.values())


def _regroup(query: d.Regroup, table: Table) -> Table:
    rows = []
    for group in _carried(query, table):
        seen = {name: group[0][name] for name in ("window_start", "window_end", *query.by)}
        rows.append(seen | _fields(query.fields, group, seen))
    return Table(rows, "window_end", -1)


def _top(query: d.Top, table: Table) -> list[Cells]:
    """Keep the k largest rows of each window and those equal to the k-th; nulls are smallest."""
    windows: dict[tuple[Cell, Cell], list[Cells]] = {}
    for row in table.rows:
        windows.setdefault((row["window_start"], row["window_end"]), []).append(row)
    kept: list[Cells] = []
    for rows in windows.values():
        ranks = sorted((_rank(row[query.by]) for row in rows), reverse=True)
        floor = ranks[min(query.k, len(ranks)) - 1]
        kept.extend(row for row in rows if _rank(row[query.by]) >= floor)
    return kept


def _rank(cell: Cell) -> tuple[object, ...]:
    return (0,) if cell is None else (1, *order_key(cell))


__all__ = ["Overflow", "Table", "evaluate", "run", "starts", "value_of"]
