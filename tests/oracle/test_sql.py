"""Generated SQL = the same query in Python = DuckDB, over generated rows."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import duckdb
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from tests.oracle.effort import effort

SCHEMA = pa.schema({"t": pa.int64(), "k": pa.string(), "g": pa.int64(), "v": pa.int64(), "x": pa.float64()})
rows = st.lists(
    st.tuples(
        st.integers(-30, 60),
        st.sampled_from(["a", "b", "it's", None]),
        st.integers(0, 2),
        st.none() | st.integers(-50, 50),
        st.none() | st.sampled_from([0.5, -1.25, 3.0, 1e6, 0.1]),
    ),
    max_size=25,
)


def table_of(given_rows: list[tuple]) -> pa.Table:
    columns = list(zip(*given_rows, strict=True)) or [()] * len(SCHEMA)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


@dataclass(frozen=True)
class Value:
    """An expression three times: as both SQLs write it, as Python does, and as only DuckDB does if that differs."""

    sql: str
    api: pk.Expr
    duck: str | None = None

    @property
    def peer(self) -> str:
        return self.duck or self.sql


def numbers(depth: int = 2) -> st.SearchStrategy[Value]:
    leaves = st.sampled_from(
        [
            Value("v", pk.col("v")),
            Value("g", pk.col("g")),
            Value("7", pk.lit(7)),
            Value("x", pk.col("x")),
            Value("-2", pk.lit(-2)),
        ]
    )
    if depth == 0:
        return leaves
    inner = numbers(depth - 1)
    return leaves | st.builds(_arithmetic, st.sampled_from("+-*"), inner, inner) | st.builds(_choice, conditions(depth - 1), inner, inner) | inner.map(
        lambda a: Value(f"coalesce({a.sql}, 0)", a.api.fill_null(0), f"coalesce({a.peer}, 0)")
    ) | inner.map(lambda a: Value(f"abs({a.sql})", a.api.abs(), f"abs({a.peer})"))  # fmt: skip


def _arithmetic(sign: str, a: Value, b: Value) -> Value:
    made = {"+": a.api + b.api, "-": a.api - b.api, "*": a.api * b.api}[sign]
    return Value(f"({a.sql} {sign} {b.sql})", made, f"({a.peer} {sign} {b.peer})")


def _choice(condition: Value, a: Value, b: Value) -> Value:
    whens = [
        f"case when {condition.sql} then {a.sql} else {b.sql} end",
        f"case when {condition.peer} then {a.peer} else {b.peer} end",
    ]
    return Value(whens[0], pk.when(condition.api).then(a.api).otherwise(b.api), whens[1])


def conditions(depth: int = 1) -> st.SearchStrategy[Value]:
    simple = st.sampled_from(
        [
            Value("k = 'it''s'", pk.col("k") == "it's"),
            Value("k in ('a', 'b')", pk.col("k").is_in(["a", "b"])),
            Value("v is null", pk.col("v").is_null()),
            Value("v between -10 and 20", pk.col("v").between(-10, 20)),
            Value("k like 'a%'", pk.col("k").str.starts_with("a")),
            Value("x <> 3.0", pk.col("x") != 3.0),
            Value("v / 3 > 2", (pk.col("v") / 3).cast("int64") > 2, "v // 3 > 2"),
        ]
    )
    if depth == 0:
        return simple
    inner = conditions(depth - 1)
    return simple | st.builds(
        lambda a, b: Value(f"({a.sql} and not {b.sql})", a.api & ~b.api, f"({a.peer} and not {b.peer})"), inner, inner
    ) | st.builds(lambda a, b: Value(f"({a.sql} or {b.sql})", a.api | b.api, f"({a.peer} or {b.peer})"), inner, inner)  # fmt: skip


def aggregates() -> st.SearchStrategy[Value]:
    plain = {
        "sum": pk.sum,
        "avg": pk.mean,
        "min": pk.min,
        "max": pk.max,
        "count": pk.count,
        "median": pk.median,
    }
    return st.builds(
        lambda name, value: Value(f"{name}({value.sql})", plain[name](value.api), f"{name}({value.peer})"),
        st.sampled_from(sorted(plain)),
        numbers(1),
    ) | st.sampled_from(
        [
            Value("count(*)", pk.count()),
            Value("count(distinct k)", pk.count_distinct("k")),
            Value("sum(v) filter (where g > 0)", pk.sum("v", where=pk.col("g") > 0)),
            Value("max(v) - min(v)", pk.max("v") - pk.min("v")),
        ]
    )


def bag(table: pa.Table) -> Counter:
    return Counter(tuple(_rounded(value) for value in row.values()) for row in table.to_pylist())


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else float(f"{value:.9g}") + 0.0
    return int(value) if isinstance(value, bool) else value


def duck(sql: str, table: pa.Table) -> Counter:
    connection = duckdb.connect()
    connection.register("e", table)
    return bag(connection.sql(sql).to_arrow_table())


@effort(24)
@given(
    rows,
    conditions(),
    st.lists(aggregates(), min_size=1, max_size=3),
    st.sampled_from([(), ("k",), ("g",), ("k", "g")]),
    st.sampled_from([(10, 10), (10, 5), (7, 3)]),
    st.sampled_from([None, 1, 2]),
)
def test_windows_and_groups(
    given_rows: list[tuple],
    where: Value,
    values: list[Value],
    keys: tuple[str, ...],
    window: tuple[int, int],
    having: int | None,
) -> None:
    table = table_of(given_rows)
    size, every = window
    names = [f"c{place}" for place in range(len(values))]
    head = ", ".join(
        ["timestamp", *keys, *(f"{value.sql} as {name}" for value, name in zip(values, names, strict=True))]
    )
    more = f" having count(*) > {having}" if having else ""
    by = f" group by {', '.join(keys)}" if keys else ""
    sql = f"select {head} from e [range {size} slide {every}] where {where.sql}{by}{more}"
    events = pk.from_arrow(table, time="t", name="e")
    ours = pk.sql(sql, e=events).collect()

    reduced = events.filter(where.api).window(size, every=every, by=list(keys)).agg(
        **{name: value.api for value, name in zip(values, names, strict=True)}, rows=pk.count()
    )  # fmt: skip
    fluent = reduced.filter(pk.col("rows") > (having or 0)).collect().select(["window_end", *keys, *names])
    assert bag(ours) == bag(fluent), sql

    peer = ", ".join(
        ["s", *keys, *(f"{value.peer} as {name}" for value, name in zip(values, names, strict=True))]
    )
    other = f"""select {peer} from e, (select unnest(range(-60, 120, {every})) as s) w
                where (e.t >= s - {size} and e.t < s) and ({where.peer}) group by {", ".join(["s", *keys])}{more}"""
    aligned = other.replace("range(-60", f"range({-60 // every * every + size % every}")
    assert bag(ours) == duck(aligned, table), sql


@effort(24)
@given(rows, conditions(), st.lists(numbers(), min_size=1, max_size=3))
def test_rows(given_rows: list[tuple], where: Value, values: list[Value]) -> None:
    table = table_of(given_rows)
    head, peer = (
        ", ".join(f"{text} as c{place}" for place, text in enumerate(texts))
        for texts in ([value.sql for value in values], [value.peer for value in values])
    )
    sql = f"select k, {head} from e where {where.sql}"
    events = pk.from_arrow(table, time="t", name="e")
    ours = pk.sql(sql, e=events).collect()
    fluent = (
        events.filter(where.api)
        .select("k", **{f"c{place}": value.api for place, value in enumerate(values)})
        .drop("t")
    )
    assert bag(ours) == bag(fluent.collect()), sql
    assert bag(ours) == duck(f"select k, {peer} from e where {where.peer}", table), sql


@effort(16)
@given(rows, rows, st.sampled_from(["inner", "left"]), st.sampled_from([">=", ">", "<=", "<"]))
def test_intervals_and_nearest_rows(first: list[tuple], second: list[tuple], how: str, sign: str) -> None:
    """Times of the right differ from each other, so that the nearest row is one row in DuckDB too."""
    a, b = table_of(first), table_of(list({row[0]: row for row in second}.values()))
    streams = {name: pk.from_arrow(table, time="t", name=name) for name, table in (("a", a), ("b", b))}
    connection = duckdb.connect()
    connection.register("a", a)
    connection.register("b", b)
    head = "select a.t, a.k, a.v, b.t as bt, b.v as bv from a"
    for text in (
        f"{head} {how} join b on a.k = b.k and b.t between a.t - 7 and a.t + 3",
        f"{head} {how} join b on a.k = b.k and b.t > a.t - 7 and a.t + 3 >= b.t and a.g <= b.g",
        f"{head} asof {how if how == 'left' else ''} join b on a.k = b.k and a.t {sign} b.t",
    ):
        assert bag(pk.sql(text, **streams).collect()) == bag(connection.sql(text).to_arrow_table()), text


@effort(16)
@given(
    rows,
    rows,
    st.sampled_from(["inner", "left", "full"]),
    st.sampled_from([None, "a.v < b.v", "a.g + b.g > 1"]),
)
def test_joins(first: list[tuple], second: list[tuple], how: str, further: str | None) -> None:
    a, b = table_of(first), table_of(second)
    more = f" and {further}" if further else ""
    sql = (
        f"select a.k, b.k as bk, a.v, b.v as bv from a [range 20] {how} join b [range 20] on a.k = b.k{more}"
    )
    streams = {name: pk.from_arrow(table, time="t", name=name) for name, table in (("a", a), ("b", b))}
    ours = pk.sql(sql, **streams).collect()
    connection = duckdb.connect()
    connection.register("a", a)
    connection.register("b", b)
    peer = sql.replace(" [range 20]", "") + " and floor(a.t / 20.0) = floor(b.t / 20.0)"
    assert bag(ours) == bag(connection.sql(peer).to_arrow_table()), sql
