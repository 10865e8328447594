"""Rows at both ends of 64-bit time: operators give the interpreter's answer, or say which windows lie beyond."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from penstock.ir.interpret import interpret
from penstock.ir.samples import to_rows
from penstock.translate import to_ir
from penstock.types.windows import JOIN_KINDS

Run = Callable[[Any, dict[str, pa.Table]], list[str]]
LEAST, MOST = -(1 << 63), (1 << 63) - 1
BEYOND = "a window reaches beyond the range of 64-bit times"
SCHEMA = pa.schema({"t": pa.int64(), "k": pa.int64(), "v": pa.int64()})
A, B = (pk.stream(name, SCHEMA, time="t") for name in "ab")
NEAR = 30  # no window or offset is longer
TIMES = {
    "first": [LEAST],
    "second": [LEAST + 1],
    "early": [LEAST, LEAST + 5, LEAST + 8],
    "one size from the first": [LEAST + 9, LEAST + 10],
    "clear of the first": [LEAST + NEAR, LEAST + NEAR + 4],
    "last": [MOST],
    "late": [MOST - 8, MOST - 5, MOST],
    "one size from the last": [MOST - 10, MOST - 9],
    "clear of the last": [MOST - NEAR - 4, MOST - NEAR],
    "both": [LEAST, MOST],
    "all": [LEAST, 0, MOST],
    "far apart": [LEAST + NEAR, MOST - NEAR],
    "usual": [-5, 5],
}
# These compare times, and add nothing to a result's.
EXACT: dict[str, Any] = {
    "distinct": A.distinct("k"),
    "distinct within": A.distinct("k", within=10),
    "distinct within, last": A.distinct("k", within=10, keep="last"),
    "rolling rows": A.rolling(pk.rows(2), by="k").agg(n=pk.count()),
    "join_rolling": A.join_rolling(B, by="k", within=(-10, 10)).agg(n=pk.count()),
    **{f"interval join, {how}": A.join(B, on="k", within=(-10, 10), how=how) for how in JOIN_KINDS},
    **{f"later, {how}": A.join(B, on="k", within=(3, 10), how=how) for how in JOIN_KINDS},
    **{f"earlier, {how}": A.join(B, on="k", within=(-10, -3), how=how) for how in JOIN_KINDS},
    **{
        f"as of, {direction}, {tolerance}, {exact}": A.join_asof(
            B, by="k", direction=direction, tolerance=tolerance, allow_exact_matches=exact
        )
        for direction in ("backward", "forward", "nearest")
        for tolerance in (None, 5)
        for exact in (True, False)
    },
}
# Results, or what is compared, are windows with bounds.
WINDOWS: dict[str, Any] = {
    "tumbling": A.window(10).agg(n=pk.count()),
    "tumbling with an offset": A.window(pk.tumbling(10, offset=3)).agg(n=pk.count()),
    "tumbling with an offset before": A.window(pk.tumbling(10, offset=-3)).agg(n=pk.count()),
    "sliding by one": A.window(10, every=1).agg(n=pk.count()),
    "sliding by one, keys": A.window(10, every=1, by="k").agg(t=pk.sum("v")),
    "sliding by two": A.window(7, every=2).agg(n=pk.count()),
    "sliding by three": A.window(10, every=3, offset=2).agg(n=pk.count()),
    "sliding with gaps": A.window(1, every=2).agg(n=pk.count()),
    "median": A.window(10, every=1).agg(m=pk.median("v")),
    "sessions": A.window(pk.session(10), by="k").agg(n=pk.count()),
    "counts": A.window(pk.rows(2), by="k").agg(n=pk.count()),
    "attached": A.window(10, every=5).with_columns(n=pk.count()),
    "rolling": A.rolling(10, by="k").agg(n=pk.count()),
    "rolling, left": A.rolling(10, closed="left").agg(n=pk.count()),
    "rolling, both": A.rolling(10, closed="both").agg(n=pk.count()),
    "rolling, delayed": A.rolling(10, delay=5).agg(n=pk.count()),
    "windows of windows": A.window(10).agg(n=pk.count()).window(20).agg(m=pk.sum("n")),
    "window join": A.join(B, on="k", window=pk.tumbling(10, offset=3)),
    "sliding join": A.join(B, on="k", window=pk.sliding(10, 3), how="full"),
    "session join": A.join(B, on="k", window=pk.session(10), how="left"),
}


def rows(times: list[int]) -> pa.Table:
    return pa.table({"t": times, "k": [1] * len(times), "v": [1] * len(times)}, schema=SCHEMA)


def sources(query: Any, times: list[int]) -> list[dict[str, pa.Table]]:
    """The same times on both sides, neighbouring ones, and the ends."""
    others = [times, [max(time - 1, LEAST) for time in times], [min(time + 4, MOST) for time in times]]
    others += [[LEAST], [0], [MOST]]
    if len(query.names) == 1:
        return [{"a": rows(times)}]
    return [{"a": rows(times), "b": rows(other)} for other in others]


def shown(found: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(tuple(row.values())) for row in found)


def collected(query: Any, data: dict[str, pa.Table]) -> list[str]:
    return shown(query.collect(data).to_pylist())


def pushed(query: Any, data: dict[str, pa.Table]) -> list[str]:
    """Push row by row, in order of time."""
    times = [
        (time, name, place)
        for name, batch in data.items()
        for place, time in enumerate(batch["t"].to_pylist())
    ]
    with query.open() as live:
        found = [
            batch
            for _, name, place in sorted(times)
            for batch in live.push({name: data[name].slice(place, 1)})
        ]
        found += live.finish()
        assert live.metrics.late == 0
    return shown([row for batch in found for row in batch.to_pylist()])


def answer(run: Run, query: Any, data: dict[str, pa.Table]) -> list[str] | str:
    """What a run gives, or what it says where it refuses to."""
    try:
        return run(query, data)
    except pk.OverflowError as error:
        return str(error)


def wanted(query: Any, data: dict[str, pa.Table]) -> list[str] | None:
    """What the interpreter gives; None if that does not fit 64 bits."""
    found = interpret(to_ir(query.plan), {name: to_rows(value) for name, value in data.items()})
    values = [value for row in found for value in row.values() if isinstance(value, int)]
    return shown(found) if all(LEAST <= value <= MOST for value in values) else None


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("name", EXACT)
def test_what_compares_times_is_right_at_both_ends(name: str, times: str) -> None:
    for data in sources(EXACT[name], TIMES[times]):
        expected = wanted(EXACT[name], data)
        assert collected(EXACT[name], data) == expected
        assert pushed(EXACT[name], data) == expected


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_at_both_ends_are_right_or_refused(name: str, times: str) -> None:
    for data in sources(WINDOWS[name], TIMES[times]):
        expected = wanted(WINDOWS[name], data)
        present = [time for batch in data.values() for time in batch["t"].to_pylist()]
        clear = min(present) >= LEAST + NEAR and max(present) <= MOST - NEAR
        for run in (collected, pushed):
            found = answer(run, WINDOWS[name], data)
            assert (BEYOND in found and not clear) if isinstance(found, str) else found == expected


@pytest.mark.parametrize("span", ["rolling", "rolling, left", "rolling, both", "rolling, delayed"])
@pytest.mark.parametrize("times", TIMES)
def test_look_backs_work_at_both_ends(span: str, times: str) -> None:
    data = {"a": rows(TIMES[times])}
    assert collected(WINDOWS[span], data) == pushed(WINDOWS[span], data) == wanted(WINDOWS[span], data)


NEXT_TO_ENDS = [LEAST, LEAST + 1, LEAST + 2, LEAST + 3, MOST - 3, MOST - 2, MOST - 1, MOST]


@pytest.mark.parametrize("closed", ["right", "left", "both", "none"])
@pytest.mark.parametrize(("size", "delay"), [(3, 0), (3, 2), (1 << 62, 0), (1 << 62, 1 << 62), (1, 0)])
def test_look_backs_of_rows_at_both_ends_do_not_depend_on_batches(closed: str, size: int, delay: int) -> None:
    query = A.rolling(size, closed=closed, delay=delay).with_columns(n=pk.count())
    data = {"a": rows([*NEXT_TO_ENDS[:4], -(1 << 62), -1, 0, 1 << 62, *NEXT_TO_ENDS[4:]])}
    assert collected(query, data) == pushed(query, data) == wanted(query, data)


def test_look_backs_of_many_rows_and_keys_at_both_ends() -> None:
    query = A.rolling(90, by="k").agg(n=pk.count())
    early, late = range(LEAST, LEAST + 300), range(MOST - 299, MOST + 1)
    table = pa.table({"t": [*early, *late] * 3, "k": [k for k in range(3) for _ in range(600)]})
    found = query.collect({"a": table.append_column("v", table["k"]).cast(SCHEMA).sort_by("t")})
    counts = [*range(1, 91), *[90] * 210] * 6
    assert found.sort_by([("k", "ascending"), ("t", "ascending")])["n"].to_pylist() == counts
