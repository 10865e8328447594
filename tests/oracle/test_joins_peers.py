"""Joins = DuckDB and Polars, which know nothing of ours, on more rows than the interpreter can take."""

from __future__ import annotations

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import penstock as pk

KEYS = {
    "unique": lambda rng, n: rng.permutation(n),
    "duplicates": lambda rng, n: rng.integers(0, max(n // 20, 1), n),
    "zipf": lambda rng, n: np.minimum(rng.zipf(1.5, n), 500),
    "equal": lambda rng, n: np.zeros(n, np.int64),
    "sparse": lambda rng, n: rng.integers(0, max(n // 4, 1), n) * 1_000_003_141,
}
SIZES = {"level": (400, 300), "flood": (20, 900), "none": (300, 0)}


def stream(rng: np.random.Generator, keys: str, rows: int, value: str, *, texts: bool = False) -> pa.Table:
    own = KEYS[keys](rng, rows).astype(np.int64)
    column = pa.array([f"k{item}" for item in own], pa.string()) if texts else pa.array(own)
    null = rng.random(rows) < 0.05
    column = pa.array(
        [None if gone else item.as_py() for item, gone in zip(column, null, strict=True)], column.type
    )
    times = np.sort(rng.integers(-500, 500, rows))
    return pa.table({"t": times, "k": column, value: np.arange(rows)})


def answers(query: pk.Stream, sql: str, a: pa.Table, b: pa.Table) -> tuple[list[tuple], list[tuple]]:
    """What we and DuckDB say, row by row, in one order."""
    connection = duckdb.connect()
    connection.register("a", a)
    connection.register("b", b)
    other = connection.sql(sql).to_arrow_table()
    mine = query.collect().select(other.column_names)
    return rows(mine), rows(other)


def rows(table: pa.Table) -> list[tuple]:
    found = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return sorted(found, key=lambda row: [(value is not None, value) for value in row])


WINDOW = "floor({0}.t / 50.0)"
PAIRS = {
    "window": (lambda a, b, how: a.join(b, on="k", window=pk.tumbling(50), how=how),
               "a.k = b.k and floor(a.t / 50.0) = floor(b.t / 50.0)"),
    "where": (lambda a, b, how: a.join(b, on="k", window=pk.tumbling(50), how=how, where=pk.left("x") < pk.right("y")),
              "a.k = b.k and floor(a.t / 50.0) = floor(b.t / 50.0) and x < y"),
    "interval": (lambda a, b, how: a.join(b, on="k", within=(-20, 5), how=how),
                 "a.k = b.k and b.t - a.t between -20 and 5"),
    "band": (lambda a, b, how: a.join(
        b, window=pk.tumbling(50), how=how, where=(pk.right("y") > pk.left("x") - 3) & (pk.right("y") <= pk.left("x"))),
        "floor(a.t / 50.0) = floor(b.t / 50.0) and y > x - 3 and y <= x"),
    "shifted band": (lambda a, b, how: a.join(
        b, on="k", window=pk.tumbling(50), how=how, where=(pk.left("x") >= pk.right("y") - 3) & (pk.left("x") < pk.right("y") + 2)),
        "a.k = b.k and floor(a.t / 50.0) = floor(b.t / 50.0) and x >= y - 3 and x < y + 2"),
}  # fmt: skip


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
@pytest.mark.parametrize("pairing", PAIRS)
@pytest.mark.parametrize(
    ("keys", "size"),
    [
        ("unique", "level"),
        ("duplicates", "level"),
        ("zipf", "flood"),
        ("sparse", "level"),
        ("equal", "flood"),
        ("duplicates", "none"),
    ],
)
def test_pairs_are_those_of_duckdb(keys: str, size: str, pairing: str, how: str) -> None:
    rng = np.random.default_rng(7)
    first, second = SIZES[size]
    a, b = (
        stream(rng, keys, first, "x"),
        stream(
            rng,
            keys,
            second,
            "y",
        ),
    )
    join, condition = PAIRS[pairing]
    query = join(pk.from_arrow(a, time="t", name="a"), pk.from_arrow(b, time="t", name="b"), how)
    columns = "x" if how in ("semi", "anti") else "x, y, a.t as t, b.t as t_right"
    mine, other = answers(query, f"select {columns} from a {how} join b on {condition}", a, b)
    assert mine == other


@pytest.mark.parametrize("texts", [False, True])
def test_sliding_windows_are_those_of_duckdb(texts: bool) -> None:
    rng = np.random.default_rng(8)
    a, b = (stream(rng, "duplicates", 300, value, texts=texts) for value in ("x", "y"))
    query = pk.from_arrow(a, time="t", name="a").join(
        pk.from_arrow(b, time="t", name="b"), on="k", window=pk.sliding(35, every=10)
    )
    sql = """
        select w.s as window_start, w.s + 35 as window_end, x, y, greatest(a.t, b.t) as join_time
        from (select unnest(range(-600, 600, 10)) as s) w
        join a on a.t >= w.s and a.t < w.s + 35 join b on b.t >= w.s and b.t < w.s + 35 and a.k = b.k
    """
    mine, other = answers(query, sql, a, b)
    assert mine == other


@pytest.mark.parametrize("direction", ["backward", "forward"])
@pytest.mark.parametrize("tolerance", [None, 4])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("texts", [True, False])
def test_the_nearest_row_is_that_of_polars(
    direction: str, tolerance: int | None, exact: bool, texts: bool
) -> None:
    rng = np.random.default_rng(9)
    a, b = (stream(rng, "duplicates", 500, value, texts=texts).drop_null() for value in ("x", "y"))
    b = (
        b.group_by(["k", "t"])
        .aggregate([("y", "max")])
        .rename_columns({"y_max": "y"})
        .sort_by("t")
        .select(["t", "k", "y"])
    )
    query = pk.from_arrow(a, time="t", name="a").join_asof(
        pk.from_arrow(b, time="t", name="b"),
        by="k", direction=direction, tolerance=tolerance, allow_exact_matches=exact,
    )  # fmt: skip
    other = pl.from_arrow(a).join_asof(
        pl.from_arrow(b), on="t", by="k", strategy=direction, tolerance=tolerance,
        allow_exact_matches=exact, check_sortedness=False,
    )  # fmt: skip
    assert query.collect().select(["x", "y"]).to_pydict() == other.select("x", "y").to_arrow().to_pydict()


def test_aggregates_around_rows_are_those_of_duckdb() -> None:
    rng = np.random.default_rng(10)
    a, b = (stream(rng, "duplicates", 600, value) for value in ("x", "y"))
    query = pk.from_arrow(a, time="t", name="a").join_rolling(
        pk.from_arrow(b, time="t", name="b"), by="k", within=(-40, 7)
    ).agg(n=pk.count(), s=pk.sum("y"), lo=pk.min("y"), hi=pk.max("y"), med=pk.median("y"))  # fmt: skip
    sql = """
        select x, count(y) as n, sum(y)::bigint as s, min(y) as lo, max(y) as hi, median(y) as med
        from a left join b on a.k = b.k and b.t - a.t between -40 and 7 group by x
    """
    mine, other = answers(query, sql, a, b)
    assert mine == other


@pytest.mark.parametrize(
    "algorithm", ["auto", "npj", "prj", "mway", "mpass", "shj_jm", "shj_jb", "pmj_jm", "pmj_jb"]
)
@pytest.mark.parametrize(("keys", "how"), [("unique", "inner"), ("zipf", "full"), ("equal", "inner")])
def test_every_algorithm_gives_the_same_in_the_same_order(keys: str, how: str, algorithm: str) -> None:
    rng = np.random.default_rng(11)
    a, b = (stream(rng, keys, 300, value) for value in ("x", "y"))
    left, right = pk.from_arrow(a, time="t", name="a"), pk.from_arrow(b, time="t", name="b")
    wanted = left.join(right, on="k", window=pk.tumbling(250), how=how).collect()
    found = left.join(right, on="k", window=pk.tumbling(250), how=how, algorithm=algorithm).collect()
    assert found.to_pydict() == wanted.to_pydict()


def test_large_windows_are_joined_by_an_algorithm_that_chooses() -> None:
    rng = np.random.default_rng(12)
    a, b = (stream(rng, "duplicates", 6000, value) for value in ("x", "y"))
    query = pk.from_arrow(a, time="t", name="a").join(
        pk.from_arrow(b, time="t", name="b"), on="k", window=pk.tumbling(500), how="left"
    )
    condition = "a.k = b.k and floor(a.t / 500.0) = floor(b.t / 500.0)"
    mine, other = answers(query, f"select x, y from a left join b on {condition}", a, b)
    assert mine == other
    assert [row["x"] for row in query.collect().to_pylist()] == sorted(x for x, _ in other)
