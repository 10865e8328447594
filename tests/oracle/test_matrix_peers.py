"""Look-backs, sessions and windows of rows are those of DuckDB, written in plain SQL."""

from __future__ import annotations

import math
import random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from tests.oracle.effort import effort

# Ours beside DuckDB's; quantiles and deviations of small whole numbers agree but for rounding.
AGGREGATES: dict[str, tuple[Any, str]] = {
    "n": (pk.count(), "count(*)"),
    "s": (pk.sum("v"), "sum(v)"),
    "low": (pk.min("v"), "min(v)"),
    "high": (pk.max("v"), "max(v)"),
    "mean": (pk.mean("v"), "avg(v)"),
    "std": (pk.std("v"), "stddev_samp(v)"),
    "half": (pk.median("v"), "quantile_cont(v, 0.5)"),
    "most": (pk.quantile("v", 0.9), "quantile_cont(v, 0.9)"),
    "kinds": (pk.count_distinct("v"), "count(distinct v)"),
    "one": (pk.first("i"), "first(i)"),
    "end": (pk.last("i"), "last(i)"),
}
OURS = {name: ours for name, (ours, _) in AGGREGATES.items()}
IN_ORDER = ("one", "end")

ROWS = st.lists(
    st.tuples(st.integers(-20, 40), st.sampled_from([None, 1, 2]), st.none() | st.integers(-5, 5)),
    min_size=1,
    max_size=30,
)


def table_of(rows: list[tuple[int, int | None, int | None]]) -> pa.Table:
    """Make a table whose rows, of one time too, have an order: their number."""
    t, k, v = ([row[place] for row in rows] for place in range(3))
    types = {"t": pa.int64(), "k": pa.int64(), "v": pa.int64()}
    columns = {name: pa.array(cells, types[name]) for name, cells in (("t", t), ("k", k), ("v", v))}
    return pa.table({**columns, "i": pa.array(range(len(rows)), pa.int64())})


def stream_of(table: pa.Table) -> Any:
    return pk.from_arrow(table, time="t", sequence="i")


def asked(text: str, table: pa.Table) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        connection.register("events", table)
        return sorted(connection.execute(text).fetchall(), key=repr)


def assert_same(result: pa.Table, rows: list[tuple[Any, ...]]) -> None:
    found = sorted((tuple(row.values()) for row in result.to_pylist()), key=lambda row: _key(row, result))
    rows = sorted(rows, key=lambda row: _key(row, result))
    assert len(found) == len(rows)
    for ours, theirs in zip(found, rows, strict=True):
        assert all(map(_close, ours, theirs)), (ours, theirs)


def _key(row: tuple[Any, ...], table: pa.Table) -> list[str]:
    exact = [place for place, field in enumerate(table.schema) if not pa.types.is_floating(field.type)]
    return [repr(None if row[place] is None else int(row[place])) for place in exact]


def _close(ours: Any, theirs: Any) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    return math.isclose(ours, theirs, rel_tol=1e-12, abs_tol=1e-12)


FRAMES = {
    "right": "range between {last} preceding and current row",
    "left": "range between {size} preceding and 1 preceding",
    "both": "range between {size} preceding and current row",
    "none": "range between {last} preceding and 1 preceding",
}


@pytest.mark.parametrize("closed", FRAMES)
@effort(6)
@given(rows=ROWS, size=st.integers(1, 12))
def test_look_backs_over_time_are_range_frames(closed: str, rows: list[Any], size: int) -> None:
    """Times are whole numbers: (t - size, t] begins at t - size + 1."""
    names = [name for name in AGGREGATES if name not in IN_ORDER]
    table, frame = table_of(rows), FRAMES[closed].format(size=size, last=size - 1)
    wanted = ", ".join(f"{AGGREGATES[name][1]} over w as {name}" for name in names)
    text = f"select t, k, {wanted} from events window w as (partition by k order by t {frame})"
    ours = stream_of(table).rolling(size, by="k", closed=closed).agg(**{name: OURS[name] for name in names})
    if size == 1 and closed == "none":
        return  # SQL has no frame of no rows
    assert_same(ours.collect(), asked(text, table))


@effort(12)
@given(rows=ROWS, size=st.integers(1, 5), closed=st.sampled_from(["right", "left"]))
def test_look_backs_over_rows_are_row_frames(rows: list[Any], size: int, closed: str) -> None:
    table = table_of(rows)
    frame = (
        f"{size} preceding and 1 preceding" if closed == "left" else f"{size - 1} preceding and current row"
    )
    wanted = ", ".join(f"{theirs} over w as {name}" for name, (_, theirs) in AGGREGATES.items())
    text = (
        f"select t, k, {wanted} from events window w as (partition by k order by t, i rows between {frame})"
    )
    ours = stream_of(table).rolling(pk.rows(size), by="k", closed=closed).agg(**OURS)
    assert_same(ours.collect(), asked(text, table))


def _grouped(numbered: str, window: str) -> str:
    """Aggregate the groups that a numbering of rows makes."""
    wanted = ", ".join(
        f"{theirs[:-1]} order by t, i)" if name in IN_ORDER else theirs
        for name, (_, theirs) in AGGREGATES.items()
    )
    return f"with numbered as ({numbered}) select {window}, k, {wanted} from numbered group by k, number"


def _sessions_of(gap: int) -> str:
    apart = "t - lag(t) over (partition by k order by t, i)"
    numbered = f"""
        select *, sum(begins) over (partition by k order by t, i rows unbounded preceding) as number
        from (select *, case when {apart} <= {gap} then 0 else 1 end as begins from events)"""
    return _grouped(numbered, f"min(t), max(t) + {gap}")


@effort(12)
@given(rows=ROWS, gap=st.integers(1, 9))
def test_sessions_are_gaps_and_islands(rows: list[Any], gap: int) -> None:
    table = table_of(rows)
    ours = stream_of(table).window(pk.session(gap), by="k").agg(**OURS)
    assert_same(ours.collect(), asked(_sessions_of(gap), table))


@effort(12)
@given(rows=ROWS, size=st.integers(1, 5))
def test_windows_of_rows_are_groups_of_row_numbers(rows: list[Any], size: int) -> None:
    table = table_of(rows)
    numbered = (
        f"select *, (row_number() over (partition by k order by t, i) - 1) // {size} as number from events"
    )
    ours = stream_of(table).window(pk.rows(size, partial=True), by="k").agg(**OURS)
    assert_same(ours.collect(), asked(_grouped(numbered, "min(t), max(t) + 1"), table))


def _many(seed: int) -> pa.Table:
    """Make rows enough for sorting by digits and for several threads, in no order, of a few hundred keys."""
    rng = random.Random(seed)
    return table_of(
        [
            (
                rng.randrange(-9_000, 60_000),
                rng.choice([None, *range(300)]),
                rng.choice([None, *range(-5, 900)]),
            )
            for _ in range(30_000)
        ]
    )


def test_many_rows_out_of_order_have_the_look_backs_and_sessions_of_duckdb() -> None:
    table = _many(1)
    by_rows, engine = stream_of(table).rolling(pk.rows(20), by="k").agg(**OURS), pk.Engine(threads=2)
    wanted = ", ".join(f"{theirs} over w as {name}" for name, (_, theirs) in AGGREGATES.items())
    frame = "partition by k order by t, i rows between 19 preceding and current row"
    assert_same(
        by_rows.collect(engine=engine),
        asked(f"select t, k, {wanted} from events window w as ({frame})", table),
    )
    sessions = stream_of(table).window(pk.session(200), by="k").agg(**OURS)
    assert_same(sessions.collect(engine=engine), asked(_sessions_of(200), table))
