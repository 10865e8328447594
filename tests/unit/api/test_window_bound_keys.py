"""Bounds of windows among the keys: results that carry windows meet in equal ones, and are grouped by them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import penstock as pk

TABLE = pa.table({"t": [1, 2, 3, 11, 12, 25], "k": list("aababb"), "v": [1, 2, 4, 4, 5, 6]})
EVENTS = pk.from_arrow(TABLE, time="t", name="e")
TOTALS = EVENTS.window(10, by="k").agg(s=pk.sum("v"))
MOST = TOTALS.filter(pk.col("window_end") > 10).window().agg(most=pk.max("s"))
BOUNDS = ["window_start", "window_end"]


PAIRS = [(10, 20, "a", 4, 5, 19), (10, 20, "b", 5, 5, 19), (20, 30, "b", 6, 6, 29)]
ALONE = [(0, 10, "a", 3, None, 9), (0, 10, "b", 4, None, 9)]


def found(made: pk.Stream) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in made.collect().to_pylist())


@pytest.mark.parametrize(
    ("how", "expected"),
    {
        "inner": PAIRS,
        "left": ALONE + PAIRS,
        "right": PAIRS,
        "full": ALONE + PAIRS,
        "semi": [pair[:4] for pair in PAIRS],
        "anti": [row[:4] for row in ALONE],
    }.items(),
)
def test_results_meet_on_the_bounds_of_their_windows(how: str, expected: list[tuple[Any, ...]]) -> None:
    made = TOTALS.join(MOST, on=BOUNDS, how=how)
    assert made.schema.names == [*BOUNDS, "k", "s", "most", "join_time"][: len(expected[0])]
    assert found(made) == expected
    columns = [pk.col(name) for name in BOUNDS]
    assert found(TOTALS.join(MOST, left_on=columns, right_on=BOUNDS, how=how)) == expected


def test_further_keys_and_conditions_go_with_the_bounds() -> None:
    largest = [pair for pair in PAIRS if pair[3] == pair[4]]
    by_key = TOTALS.join(MOST, left_on=[*BOUNDS, "s"], right_on=[*BOUNDS, "most"]).drop("join_time")
    assert found(by_key) == sorted((start, end, s, k) for start, end, k, s, *_ in largest)
    assert found(TOTALS.join(MOST, on=BOUNDS, where=pk.left("s") == pk.right("most"))) == largest
    assert found(TOTALS.join(MOST, on=BOUNDS).filter(pk.col("s") == pk.col("most"))) == largest


def test_one_bound_is_enough_where_windows_have_one_size() -> None:
    assert found(TOTALS.join(MOST, on="window_end").drop("window_start_right")) == PAIRS
    longer = EVENTS.window(20, every=10).agg(n=pk.count())
    with pytest.raises(pk.WindowError, match=r"'window_end' alone.*name window_start and window_end"):
        TOTALS.join(longer, on="window_end")


def test_results_are_grouped_by_bounds_that_are_named() -> None:
    assert TOTALS.window(by=BOUNDS).agg(n=pk.count()).plan == TOTALS.window().agg(n=pk.count()).plan
    by_key = TOTALS.window(by=[*BOUNDS, "k"]).agg(n=pk.count())
    assert by_key.plan == TOTALS.window(by="k").agg(n=pk.count()).plan


HOT = """
    with c as (select window_start, window_end, k, sum(v) as s from e [range 10] group by k),
         m as (select window_start, window_end, max(s) as most from c group by window_start, window_end)
    select c.window_start, k, s from c {join}
"""


@pytest.mark.parametrize(
    "join",
    [
        "join m on c.window_start = m.window_start and c.window_end = m.window_end and c.s >= m.most",
        "join m using (window_start, window_end) where s = most",
        "join m on c.window_end = m.window_end where s = most",
        "left semi join m on c.window_start = m.window_start and m.window_end = c.window_end and c.s = m.most",
    ],
)
def test_sql_joins_on_bounds_as_flink_writes_it(join: str) -> None:
    assert found(pk.sql(HOT.format(join=join), e=EVENTS)) == [(0, "b", 4), (10, "b", 5), (20, "b", 6)]
