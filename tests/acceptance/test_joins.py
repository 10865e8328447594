"""Joins worked out by hand: which columns they have, who meets whom, and what nulls and ties do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk

LEFT = pk.from_arrow(
    pa.table({"t": [1, 5, 12, 13], "k": ["a", "b", "a", None], "x": [1, 2, 3, 4]}), time="t", name="left"
)
RIGHT = pk.from_arrow(
    pa.table({"t": [2, 3, 11, 14], "k": ["a", "a", "b", None], "y": [10, 20, 30, 40]}), time="t", name="right"
)
IN_WINDOWS = ["window_start", "window_end", "k", "t", "x", "t_right", "y", "join_time"]
PAIRS = [(0, 10, "a", 1, 1, 2, 10, 2), (0, 10, "a", 1, 1, 3, 20, 3)]
ALONE_LEFT = [
    (0, 10, "b", 5, 2, None, None, 5),
    (10, 20, "a", 12, 3, None, None, 12),
    (10, 20, None, 13, 4, None, None, 13),
]
ALONE_RIGHT = [(10, 20, "b", None, None, 11, 30, 11), (10, 20, None, None, None, 14, 40, 14)]


def _rows(query: pk.Stream) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in query.collect().to_pylist()), key=str)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", PAIRS),
        ("left", PAIRS + ALONE_LEFT),
        ("right", PAIRS + ALONE_RIGHT),
        ("full", PAIRS + ALONE_LEFT + ALONE_RIGHT),
    ],
)
def test_keys_are_coalesced_and_null_keys_meet_nobody(how: str, expected: list[tuple[Any, ...]]) -> None:
    joined = LEFT.join(RIGHT, on="k", window=pk.tumbling(10), how=how)
    assert joined.schema.names == IN_WINDOWS
    assert _rows(joined) == sorted(expected, key=str)


@pytest.mark.parametrize(
    ("how", "expected"), [("semi", [(1, "a", 1)]), ("anti", [(12, "a", 3), (13, None, 4), (5, "b", 2)])]
)
def test_semi_and_anti_joins_have_the_left_columns(how: str, expected: list[tuple[Any, ...]]) -> None:
    joined = LEFT.join(RIGHT, on="k", window=pk.tumbling(10), how=how)
    assert joined.schema.names == ["t", "k", "x"]
    assert _rows(joined) == sorted(expected, key=str)


def test_both_ends_of_an_interval_count() -> None:
    """Right less left: 2 - 12 = -10 and 11 - 5 = 6."""
    joined = LEFT.join(RIGHT, on="k", within=(-10, 6))
    assert joined.schema.names == IN_WINDOWS[2:]
    assert _rows(joined) == sorted(
        [
            ("a", 1, 1, 2, 10, 2),
            ("a", 1, 1, 3, 20, 3),
            ("a", 12, 3, 2, 10, 12),
            ("a", 12, 3, 3, 20, 12),
            ("b", 5, 2, 11, 30, 11),
        ],
        key=str,
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1, 2, None]),
        ({"direction": "forward"}, [1, 3, None]),
        ({"direction": "nearest"}, [1, 3, None]),
        ({"allow_exact_matches": False}, [None, 2, None]),
        ({"tolerance": 0}, [1, None, None]),
    ],
)
def test_as_of_joins_keep_every_left_row(options: dict[str, Any], expected: list[int | None]) -> None:
    trades = pk.from_arrow(pa.table({"t": [1, 5, 10], "k": ["a", "a", None]}), time="t", name="trades")
    table = pa.table({"t": [1, 4, 6, 9], "k": ["a", "a", "a", None], "y": [1, 2, 3, 4]})
    joined = trades.join_asof(pk.from_arrow(table, time="t", name="quotes"), by="k", **options).collect()
    assert joined.column_names == ["t", "k", "t_right", "y"]
    assert joined["y"].to_pylist() == expected


def test_every_left_row_aggregates_the_right_ones_around_it() -> None:
    around = LEFT.join_rolling(RIGHT, by="k", within=(-10, 2)).agg(n=pk.count(), most=pk.max("y"))
    assert around.collect().to_pydict() == {
        "t": [1, 5, 12, 13],
        "k": ["a", "b", "a", None],
        "x": [1, 2, 3, 4],
        "n": [2, 0, 2, 0],
        "most": [20, None, 20, None],
    }


@pytest.mark.parametrize("name", ["join_time", "window_start", "window_end"])
def test_a_column_of_the_users_own_does_not_vanish_in_a_join(name: str) -> None:
    own = pk.from_arrow(pa.table({"t": [1], "k": [1], name: [7]}), time="t", name="own")
    other = pk.from_arrow(pa.table({"u": [2], "k": [1]}), time="u", name="other")
    with pytest.raises(pk.SchemaMismatchError, match=name):
        own.join(other, on="k", window=10)
    assert other.join(own, on="k", window=10).collect()[name + "_right"].to_pylist() == [7]
    assert own.join(other, on="k", window=10, how="semi").collect()[name].to_pylist() == [7]


SECONDS = pa.table({"ts": pa.array([1, 2], pa.timestamp("s")), "k": ["a", "a"], "v": [1, 2]})
NANOS = pa.table({"ts": pa.array([10**9, 15 * 10**8], pa.timestamp("ns")), "k": ["a", "a"], "w": [1, 2]})
UNITS: dict[str, Callable[[pk.Stream, pk.Stream], pk.Stream]] = {
    "window": lambda a, b: a.join(b, on="k", window="1s"),
    "interval": lambda a, b: a.join(b, on="k", within=("-1s", "500ms")),
    "as of": lambda a, b: a.join_asof(b, by="k", tolerance="1s"),
    "rolling": lambda a, b: a.join_rolling(b, by="k", within=("-2s", "0s")).agg(n=pk.count()),
    "filtered": lambda a, b: a.filter(pk.col("v") > 1).select("k", "v").join_asof(b, by="k"),
    "the other way": lambda a, b: b.join_asof(a, by="k"),
    "again": lambda a, b: a.join_asof(b, by="k").join_asof(a, by="k", suffix="_again"),
}


@pytest.mark.parametrize("name", UNITS)
def test_times_of_different_units_meet_in_the_finer_one(name: str) -> None:
    cast = SECONDS.set_column(0, "ts", SECONDS["ts"].cast(pa.timestamp("ns")))
    right = pk.from_arrow(NANOS, time="ts", name="right")
    coarse, fine = (pk.from_arrow(value, time="ts", name="left", lateness="1s") for value in (SECONDS, cast))
    assert UNITS[name](coarse, right).collect().equals(UNITS[name](fine, right).collect())
    assert UNITS[name](coarse, right).schema == UNITS[name](fine, right).schema


@pytest.mark.parametrize(
    "counted",
    [
        lambda s: s.filter(pk.col("ts").dt.second() > 0),
        lambda s: s.with_columns(hour=pk.col("ts").dt.truncate("1h")),
        lambda s: s.window("1s", by="k").agg(n=pk.count()),
    ],
)
def test_times_that_were_counted_with_keep_their_unit(counted: Callable[[pk.Stream], pk.Stream]) -> None:
    left, right = (
        pk.from_arrow(batch, time="ts", name=str(batch.column_names)) for batch in (SECONDS, NANOS)
    )
    with pytest.raises(pk.SchemaMismatchError, match="count differently"):
        counted(left).join_asof(right, by="k")
