"""Decimals: rows against exact fractions in Python, queries against the interpreter, over every split and through saved state."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.api.bind import bound
from penstock.errors import OverflowError as DoesNotFit
from penstock.expr.evaluate import evaluator
from penstock.expr.typing import type_of
from penstock.ir.interpret import interpret
from penstock.ir.samples import to_rows
from penstock.translate import to_ir
from penstock.types.time import Time
from tests.oracle.effort import effort

TIME = Time("t", pa.int64(), None)
A, B = pk.col("a"), pk.col("b")


def number(digits: int, scale: int) -> Decimal:
    return Decimal(f"{digits}E{-scale}")


@st.composite
def decimal_types(draw: st.DrawFn, most: int = 38) -> pa.DataType:
    precision = draw(st.integers(1, most))
    return pa.decimal128(precision, draw(st.integers(0, precision)))


def values_of(dtype: pa.DataType) -> st.SearchStrategy[Decimal | None]:
    """Null, small numbers, halves, and the limits."""
    most = 10**dtype.precision - 1
    small = min(most, 2000)
    digits = st.integers(-small, small) | st.integers(-most, most) | st.sampled_from([most, -most, 0])
    return st.none() | digits.map(lambda value: number(value, dtype.scale))


@st.composite
def pairs(draw: st.DrawFn) -> pa.Table:
    first, second = draw(decimal_types()), draw(decimal_types())
    rows = draw(st.lists(st.tuples(values_of(first), values_of(second)), min_size=1, max_size=6))
    columns = {
        "t": pa.array(range(len(rows)), pa.int64()),
        "a": pa.array([row[0] for row in rows], first),
        "b": pa.array([row[1] for row in rows], second),
        "i": pa.array(range(-2, len(rows) - 2), pa.int32()),
    }
    return pa.table(columns).slice(draw(st.integers(0, 1)))


# --- rows: the definition against exact fractions, and kernels against the definition -----------------------


def half_away(value: Fraction, scale: int) -> Fraction:
    scaled = abs(value) * 10**scale
    whole = int(scaled + Fraction(1, 2))
    return Fraction(whole if value >= 0 else -whole, 10**scale)


def floored(value: Fraction) -> int:
    return value.numerator // value.denominator


EXACT: dict[str, tuple[Any, Callable[[Fraction, Fraction, int], Any] | None]] = {
    "add": (A + B, lambda a, b, s: a + b),
    "sub": (A - B, lambda a, b, s: a - b),
    "mul": (A * B, lambda a, b, s: a * b),
    "div": (A / B, lambda a, b, s: None if b == 0 else half_away(a / b, s)),
    "floordiv": (A // B, lambda a, b, s: None if b == 0 else Fraction(floored(a / b))),
    "mod": (A % B, lambda a, b, s: None if b == 0 else a - b * floored(a / b)),
    "less": (A < B, lambda a, b, s: a < b),
    "equal": (A == B, lambda a, b, s: a == b),
    "not below": (A >= B, lambda a, b, s: a >= b),
    "least": (pk.least(A, B), lambda a, b, s: min(a, b)),
    "greatest": (pk.greatest(A, B), lambda a, b, s: max(a, b)),
    "choice": (pk.when(A > B).then(A).otherwise(B), lambda a, b, s: max(a, b)),
    "with a number": (A * 3 - pk.col("i"), None),
    "rounded": (A.round(1), lambda a, b, s: half_away(a, min(1, s) if s else 0)),
    "rounded before the point": (A.round(-2), lambda a, b, s: half_away(a / 100, 0) * 100),
    "floor": (A.floor(), lambda a, b, s: Fraction(floored(a))),
    "ceil": (A.ceil(), lambda a, b, s: Fraction(-floored(-a))),
    "abs": (A.abs(), lambda a, b, s: abs(a)),
    "neg": (-A, lambda a, b, s: -a),
    "sign": (A.sign(), lambda a, b, s: (a > 0) - (a < 0)),
}


def defined(expr: Any, table: pa.Table) -> list[Any] | None:
    """Evaluate row by row by the definition; None if a row is an error."""
    run = evaluator(bound(expr.node, table.schema, TIME), table.schema)
    try:
        return [run(row, ()) for row in to_rows(table)]
    except DoesNotFit:
        return None


def compiled(expr: Any, table: pa.Table) -> list[Any] | None:
    try:
        return list(pk.from_arrow(table, time="t", name="rows").select(x=expr).collect()["x"].to_pylist())
    except DoesNotFit:
        return None


@pytest.mark.parametrize("name", EXACT)
@given(table=pairs())
@effort(12)
def test_rows_are_exact_or_refused(name: str, table: pa.Table) -> None:
    expr, exact = EXACT[name]
    try:
        dtype = type_of(bound(expr.node, table.schema, TIME), table.schema)
    except pk.PenstockError:  # no type of 38 digits holds the scale
        return
    found = defined(expr, table)
    assert compiled(expr, table) == found
    if exact is None or found is None:
        return
    scale = dtype.scale if pa.types.is_decimal(dtype) else 0
    for row, value in zip(to_rows(table), found, strict=True):
        if row["a"] is not None and row["b"] is not None:
            expected = exact(Fraction(row["a"]), Fraction(row["b"]), scale)
            assert (None if value is None else Fraction(value)) == expected


@given(table=pairs())
@effort(12)
def test_a_result_is_refused_only_where_it_has_too_many_digits(table: pa.Table) -> None:
    for name in ("add", "sub", "mul"):
        expr, exact = EXACT[name]
        assert exact is not None
        try:
            dtype = type_of(bound(expr.node, table.schema, TIME), table.schema)
        except pk.PenstockError:
            continue
        known = [row for row in to_rows(table) if row["a"] is not None and row["b"] is not None]
        results = [exact(Fraction(row["a"]), Fraction(row["b"]), dtype.scale) for row in known]
        too_large = any(abs(value) * 10**dtype.scale >= 10**dtype.precision for value in results)
        assert (compiled(expr, table) is None) == too_large


@given(table=pairs(), target=decimal_types())
@effort(15)
def test_casts_are_those_of_the_definition(table: pa.Table, target: pa.DataType) -> None:
    for expr in (
        A.cast(target),
        pk.col("i").cast(target),
        A.cast(pa.float64()),
        A.cast(pa.string()),
        A.cast(pa.int64()),
    ):
        assert compiled(expr, table) == defined(expr, table)
    whole = compiled(A.cast(target), table)
    if whole is not None:
        for row, value in zip(to_rows(table), whole, strict=True):
            assert row["a"] is None or Fraction(value) == half_away(Fraction(row["a"]), target.scale)


@given(table=pairs())
@effort(12)
def test_text_and_back_is_the_same_decimal(table: pa.Table) -> None:
    dtype = table.schema.field("a").type
    assert compiled(A.cast(pa.string()).cast(dtype), table) == table["a"].to_pylist()


# --- queries ------------------------------------------------------------------------------------------------

D, W = pk.col("d"), pk.col("w")
AGGREGATES = {
    "total": pk.sum("d"), "wide": pk.sum("w"), "mean": pk.mean("d"), "mid": pk.mean("w"), "low": pk.min("d"),
    "lowest": pk.min("w"), "high": pk.max("d"), "highest": pk.max("w"), "n": pk.count("w"),
    "some": pk.sum("d", where=W > 0), "turnover": pk.sum(D * 2 + 1), "ratio": pk.sum("d") / pk.count(),
    "at": pk.min_by("d", "w"), "by": pk.max_by("w", "d"),
}  # fmt: skip
OTHERS = {
    "first": pk.first("d"), "last": pk.last("w"), "kinds": pk.count_distinct("d"), "wide_kinds": pk.count_distinct("w"),
    "mode": pk.mode("d"), "wide_mode": pk.mode("w"), "total": pk.sum("w"),
}  # fmt: skip
QUERIES: dict[str, Callable[[Any], Any]] = {
    "tumbling": lambda s: s.window(5).agg(**AGGREGATES),
    "by a decimal": lambda s: s.window(5, by="d").agg(**AGGREGATES),
    "by a wide decimal": lambda s: s.window(5, by="w").agg(**AGGREGATES),
    "by several": lambda s: s.window(5, by=["k", "w", "d"]).agg(n=pk.count(), total=pk.sum("w")),
    "sliding": lambda s: s.window(6, every=2, by="k").agg(**AGGREGATES),
    "holistic": lambda s: s.window(5, by="k").agg(**OTHERS),
    "session": lambda s: s.window(pk.session(3), by="d").agg(**AGGREGATES),
    "session by a wide decimal": lambda s: s.window(pk.session(3), by="w").agg(**OTHERS),
    "session of a few": lambda s: s.window(pk.session(3), by="d").agg(n=pk.count(), low=pk.min("d")),
    "last rows of a few": lambda s: s.rolling(pk.rows(3), by="d").agg(n=pk.count(), total=pk.sum("d")),
    "rows": lambda s: s.window(pk.rows(2), by="k").agg(**AGGREGATES),
    "rolling": lambda s: s.rolling(5, by="d").agg(**AGGREGATES),
    "rolling rows": lambda s: s.rolling(pk.rows(3), by="w").with_columns(**OTHERS),
    "unbounded": lambda s: s.window(pk.unbounded(), by="k").agg(**AGGREGATES),
    "having": lambda s: s.window(5, by="k").agg(total=pk.sum("d")).filter(pk.col("total") > Decimal("0.5")),
    "twice": lambda s: s.window(5, by="k").agg(x=pk.sum("d")).window(10).agg(total=pk.sum("x"), most=pk.max("x")),
    "filter": lambda s: s.filter((Decimal("-0.05") < D) & (W <= 2) & (D != W)).select("t", x=D + W),
    "membership": lambda s: s.filter(D.is_in([Decimal("0.1"), 1]) | W.is_in([Decimal("1.0")])).select("t", "d", "w"),
    "distinct": lambda s: s.distinct(["d", "w"]).select("t", "d", "w"),
    "signal": lambda s: s.signal("d", by="k", resolve="max").rolling(4).mean().to_stream("x"),
    "derived signal": lambda s: (s.signal("d", by="k", resolve="max") * 2 - 1).to_stream("x"),
    "wide signal": lambda s: s.signal("w", by="k", resolve="max").rolling(4).max().to_stream("x"),
    "join": lambda s: s.join(s.select("t", "d", "w", z="k"), on="d", window=pk.tumbling(5)),
    "join of wide decimals": lambda s: s.join(s.select("t", "w", z="d"), on="w", within=(-3, 3), how="left"),
}  # fmt: skip
NARROW, WIDE = pa.decimal128(7, 2), pa.decimal128(38, 3)
SCHEMA = pa.schema({"t": pa.int64(), "k": pa.string(), "d": NARROW, "w": WIDE})
ROWS = pk.stream("rows", SCHEMA, time="t")


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    close = st.sampled_from([number(digits, 2) for digits in (-5, 5, 10, 100, 9999999, -9999999)])
    far = st.sampled_from([number(digits, 3) for digits in (1, -1, 500, 1000, 10**33, -(10**33), 10**32)])
    row = st.tuples(st.none() | st.sampled_from("ab"), st.none() | close, st.none() | far)
    rows = draw(st.lists(row, max_size=12))
    times = sorted(draw(st.lists(st.integers(-8, 12), min_size=len(rows), max_size=len(rows))))
    cells = [[cells[place] for cells in rows] for place in range(3)]
    table = pa.table([pa.array(times, pa.int64()), *map(pa.array, cells, SCHEMA.types[1:])], schema=SCHEMA)
    return table.slice(draw(st.integers(0, 2)))


def shown(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


@pytest.mark.parametrize("name", QUERIES)
@given(data=st.data())
@effort(5)
def test_a_query_gives_what_the_interpreter_gives(name: str, data: st.DataObject) -> None:
    table = data.draw(tables())
    query = QUERIES[name](ROWS)
    expected = shown(interpret(to_ir(query.plan), {"rows": to_rows(table)}))
    assert shown(to_rows(query.collect(table))) == expected
    assert shown(to_rows(query.collect(table, engine=pk.Engine(threads=2, task_bytes=64)))) == expected
    run = query.run(table.to_batches(max_chunksize=data.draw(st.integers(1, 4))))
    assert shown([row for batch in run for row in to_rows(pa.table(batch))]) == expected


@pytest.mark.parametrize("name", QUERIES)
def test_state_saved_between_two_pushes_goes_on(name: str, tmp_path: Path) -> None:
    cells = [
        (place // 2, "ab"[place % 2], number(place * 7 - 30, 2), number(place % 3 * 10**33, 3))
        for place in range(24)
    ]
    table = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in cells], SCHEMA)
    query = QUERIES[name](ROWS)
    with query.open() as live:
        found = [*live.push(table.slice(0, 9)), *live.push(table.slice(9, 1))]
        live.save(tmp_path / "state")
    with query.open(state=tmp_path / "state") as live:
        found += [*live.push(table.slice(10)), *live.finish()]
    assert shown([row for batch in found for row in to_rows(pa.table(batch))]) == shown(
        to_rows(query.collect(table))
    )


def test_a_sum_of_38_digits_may_leave_them_in_between() -> None:
    most = Decimal(10**38 - 1)
    least = most.copy_negate()  # a minus sign would round
    cells = [most, most, most, least, least, Decimal(-7)]
    table = pa.table({"t": pa.array(range(6), pa.int64()), "x": pa.array(cells, pa.decimal128(38, 0))})
    rows = pk.from_arrow(table, time="t", name="rows")
    assert rows.window(pk.unbounded()).agg(x=pk.sum("x")).collect()["x"].to_pylist() == [Decimal(10**38 - 8)]
    with pytest.raises(DoesNotFit):
        rows.filter(pk.col("t") < 2).window(pk.unbounded()).agg(x=pk.sum("x")).collect()


def test_sums_and_means_are_those_of_duckdb() -> None:
    cells = [number((place * 7919) % 100_000_007 - 50_000_000, 2) for place in range(20_000)]
    table = pa.table(
        {
            "t": pa.array(range(len(cells)), pa.int64()),
            "k": pa.array([place % 7 for place in range(len(cells))]),
            "x": pa.array(cells, pa.decimal128(18, 2)),
        }
    )
    rows = pk.from_arrow(table, time="t", name="rows")
    found = (
        rows.window(5000, by="k")
        .agg(s=pk.sum("x"), low=pk.min("x"), high=pk.max("x"), p=pk.sum(pk.col("x") * pk.col("x")))
        .collect()
    )
    asked = duckdb.sql(
        'select t // 5000 * 5000, k, sum(x), min(x), max(x), sum(x * x) from "table" group by 1, 2'
    )
    expected = sorted(asked.fetchall())
    names = ("window_start", "k", "s", "low", "high", "p")
    assert sorted(tuple(row[name] for name in names) for row in found.to_pylist()) == expected


# --- types and texts of errors --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "dtype"),
    [
        ("select d * 1.5 as x from rows", pa.decimal128(10, 3)),
        ("select 2.25 + d as x from rows", pa.decimal128(8, 2)),
        ("select w / 2.5 as x from rows", pa.decimal128(38, 6)),
        ("select cast(t as decimal(12, 3)) as x from rows", pa.decimal128(12, 3)),
        ("select cast(d as numeric(5)) as x from rows", pa.decimal128(5, 0)),
        ("select t * 1.5 as x from rows", pa.float64()),
        ("select d * 1e0 as x from rows", pa.float64()),
        ("select cast(d as double) as x from rows", pa.float64()),
    ],
)
def test_sql_literals_are_decimals_beside_decimals_only(query: str, dtype: pa.DataType) -> None:
    assert pk.sql(query, rows=ROWS).schema.field("x").type == dtype


def test_sql_compares_decimals_with_literals_exactly() -> None:
    table = pa.table(
        {
            "t": [1, 2, 3],
            "k": ["a"] * 3,
            "d": pa.array([Decimal("0.10"), Decimal("0.30"), None], NARROW),
            "w": pa.nulls(3, WIDE),
        },
        SCHEMA,
    )
    for where in (
        "d = 0.30",
        "d between 0.2 and 0.4",
        "d in (0.30, 7)",
        "d > 0.1",
        "d % 0.2 = 0.1 and d > 0.2",
    ):
        found = pk.sql(
            f"select t, d from rows where {where}", rows=pk.from_arrow(table, time="t", name="rows")
        ).collect()
        assert found["d"].to_pylist() == [Decimal("0.30")]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ROWS.select(x=W * W * W * W * W * W * W * W * W * W * W * W * W), "takes numbers"),
        (lambda: ROWS.select(x=D + pk.lit("1")), "takes numbers"),
        (lambda: ROWS.select(x=D + Decimal("NaN")), "no number of at most 38 digits"),
        (lambda: pk.stream("s", {"t": "int64", "x": "decimal256(50, 2)"}, time="t").select(x=pk.col("x") + 1), "decimal256"),
        (lambda: pk.sql("select cast(d as decimal(39, 2)) as x from rows", rows=ROWS), "up to 38 digits"),
        (lambda: pk.sql("select cast(k as varchar(3)) as x from rows", rows=ROWS), "types but decimals have no sizes"),
    ],
)  # fmt: skip
def test_what_cannot_be_computed_exactly_is_refused_before_any_row(
    make: Callable[[], Any], message: str
) -> None:
    with pytest.raises(pk.PenstockError, match=message):
        make()


def test_values_that_do_not_fit_a_cast_are_an_overflow_without_the_value() -> None:
    table = pa.table(
        {"t": [1], "k": ["a"], "d": pa.array([Decimal("12345.67")], NARROW), "w": pa.nulls(1, WIDE)}, SCHEMA
    )
    with pytest.raises(pk.OverflowError) as caught:
        ROWS.select("t", x=D.cast("decimal(4, 1)")).collect(table)
    assert "12345" not in str(caught.value)


def test_decimals_of_256_bits_are_computed_with_after_a_cast() -> None:
    big = pa.table({"t": [1, 2], "x": pa.array([Decimal("1.25"), None], pa.decimal256(50, 2))})
    rows = pk.from_arrow(big, time="t", name="rows")
    assert rows.select(x=pk.col("x").cast("decimal(20, 1)")).collect()["x"].to_pylist() == [
        Decimal("1.3"),
        None,
    ]
