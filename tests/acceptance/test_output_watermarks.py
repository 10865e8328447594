"""Windows behind every operator leave as time advances, whichever key has fallen silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from penstock.types.windows import JOIN_KINDS

Operator = Callable[[Any, Any], Any]
SCHEMA = pa.schema({"t": pa.int64(), "k": pa.int64(), "v": pa.int64()})
SIZE, LAST = 10, 2_000
FAR = 1_000_000
KEYS = {"a": (1, 2, 3), "b": (1, 2)}  # the first of them falls silent, the last never meets a partner
NAMES = pk.table(pa.table({"k": [1, 2], "name": ["a", "b"]}), name="names")


def joined(**options: Any) -> Operator:
    return lambda a, b: a.join(b, on="k", **options)


def as_of(**options: Any) -> Operator:
    return lambda a, b: a.join_asof(b, by="k", **options)


def attached(window: Any) -> Operator:
    return lambda a, _: a.window(window, by="k").with_columns(n=pk.count())


def reduced(window: Any) -> Operator:
    return lambda a, _: a.window(window, by="k").agg(n=pk.count())


OPERATORS: dict[str, Operator] = {
    "rows": lambda a, _: a.filter(pk.col("v") >= 0),
    "union": lambda a, b: a.union(b),
    "lookup": lambda a, _: a.join(NAMES, on="k"),
    "as of": as_of(),
    "as of, left open": as_of(allow_exact_matches=False),
    "as of, tolerance": as_of(tolerance=30),
    "as of, forward": as_of(direction="forward", tolerance=30),
    "as of, nearest": as_of(direction="nearest", tolerance=30),
    "rolling join": lambda a, b: a.join_rolling(b, by="k", within=(-30, 20)).agg(n=pk.count()),
    **{f"interval join, {how}": joined(within=(-30, 20), how=how) for how in JOIN_KINDS},
    **{f"window join, {how}": joined(window=pk.tumbling(20), how=how) for how in JOIN_KINDS},
    **{f"sliding join, {how}": joined(window=pk.sliding(20, 5), how=how) for how in JOIN_KINDS},
    "join in windows with gaps": joined(window=pk.sliding(5, 20)),
    "session join": joined(window=pk.session(3), how="full"),
    "distinct": lambda a, _: a.distinct(["k", "t"]),
    "distinct within": lambda a, _: a.distinct("k", within=30),
    "distinct within, last": lambda a, _: a.distinct("k", within=30, keep="last"),
    "tumbling": reduced(pk.tumbling(20)),
    "sliding": reduced(pk.sliding(20, 5)),
    "sliding with gaps": reduced(pk.sliding(5, 20)),
    "sessions": reduced(pk.session(3)),
    "counts": reduced(pk.rows(5)),
    "overlapping counts": reduced(pk.rows(5, every=2)),
    "median": lambda a, _: a.window(20, every=5, by="k").agg(m=pk.median("v")),
    "apply": lambda a, _: a.window(20, by="k").apply(lambda rows: {"n": [rows.num_rows]}, {"n": "int64"}),
    "attached": attached(pk.tumbling(20)),
    "attached, sliding": attached(pk.sliding(20, 5)),
    "attached, sessions": attached(pk.session(3)),
    "attached, one row": attached(pk.rows(1)),
    "regrouped": lambda a, _: a.window(20, by="k").agg(n=pk.count()).window().agg(m=pk.max("n")),
    "top_k": lambda a, _: a.window(20, by="k").agg(n=pk.count()).top_k(1, by="n"),
    "top_k of rows": lambda a, _: a.window(20).with_columns(n=pk.count()).top_k(2, by="v"),
    "look-back": lambda a, _: a.rolling(30, by="k").agg(n=pk.count()),
    "look-back, delayed": lambda a, _: a.rolling(30, by="k", delay=10).agg(n=pk.count()),
    "look-back on rows": lambda a, _: a.rolling(pk.rows(5), by="k").with_columns(n=pk.count()),
}
# A row of the silent key may still give its own time to a result: time cannot pass it (docs/limits.md).
HELD_UP: dict[str, Operator] = {
    "as of, forward without a tolerance": as_of(direction="forward", allow_exact_matches=False),
    "counts that end with the stream": reduced(pk.rows(4, partial=True)),
    "attached counts": attached(pk.rows(4)),
    "attached counts with gaps": attached(pk.rows(1, every=4)),
    "attached to all": attached(pk.unbounded()),
    "all": reduced(pk.unbounded()),
    "last of all": lambda a, _: a.distinct("k", keep="last"),
}


def rows(since: int, until: int, keys: tuple[int, ...]) -> pa.Table:
    """Rows every two ticks, so that sessions with a gap of three go on; a pause every hundred ticks ends them."""
    times = [t for t in range(since, until, 2) if t % 100 < 90 for _ in keys]
    columns = {"t": times, "k": list(keys) * (len(times) // len(keys)), "v": [t % 7 for t in times]}
    return pa.table(columns, schema=SCHEMA)


def windows_of(operator: Operator) -> tuple[int, int, int]:
    """How many windows leave while rows come, at an `advance`, and at the end."""
    a, b = (pk.stream(name, SCHEMA, time="t") for name in "ab")
    query = operator(a, b).window(SIZE).agg(rows=pk.count())
    counts = [0, 0, 0]
    with query.open() as live:
        for since in range(0, LAST, 50):
            for name in query.names:
                keys = KEYS[name] if since == 0 else KEYS[name][1:]
                part = rows(since, since + 50, keys)
                counts[0] += sum(batch.num_rows for batch in live.push({name: part}))
        counts[1] = sum(batch.num_rows for batch in live.advance(FAR))
        counts[2] = sum(batch.num_rows for batch in live.finish())
    return counts[0], counts[1], counts[2]


@pytest.mark.parametrize("name", OPERATORS)
def test_windows_leave_while_rows_come_though_a_key_is_silent(name: str) -> None:
    coming, advanced, last = windows_of(OPERATORS[name])
    assert coming > 0.9 * (coming + advanced + last) > 0
    assert last == 0


@pytest.mark.parametrize("name", HELD_UP)
def test_windows_wait_where_the_silent_key_may_still_have_an_old_result(name: str) -> None:
    coming, advanced, last = windows_of(HELD_UP[name])
    assert coming <= 5  # those before the row that waits
    assert advanced == 0
    assert last > 0


def test_a_join_as_of_passes_on_the_time_of_its_left_rows() -> None:
    left, right = (pk.stream(name, SCHEMA, time="t") for name in ("left", "right"))
    query = left.join_asof(right, by="k").window(10).agg(n=pk.count())
    with query.open() as live:
        live.push({"right": rows(0, 1, (1, 2))})
        found = []
        for since in range(0, 100, 10):
            live.push({"right": rows(since, since + 10, (2,))})
            found += live.push({"left": rows(since, since + 10, (2,))})
        # The last left row is at 88.
        assert [row["window_end"] for batch in found for row in batch.to_pylist()] == [*range(10, 90, 10)]


def test_windows_behind_one_of_all_rows_hold_its_result_though_time_has_passed_it() -> None:
    stream = pk.stream("a", SCHEMA, time="t")
    query = stream.window(pk.unbounded(), by="k").agg(n=pk.count()).window(10).agg(rows=pk.count())
    with query.open() as live:
        live.push(a=rows(0, 4, (1, 2)))
        assert live.advance(FAR) == []
        assert [batch.to_pylist() for batch in live.finish()] == [
            [{"window_start": 0, "window_end": 10, "rows": 2}]
        ]
