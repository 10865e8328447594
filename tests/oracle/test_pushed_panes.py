"""Windows in panes, pushed bit by bit: what an open query keeps for speed never shows in an answer.

A program of pushes, advances and restarts runs as compiled code, in small and in large batches, and in plain Python: a
row enters those of its windows that were not complete when it came.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from tests.oracle.effort import effort

START = -(1 << 63)
Row = tuple[int, int | None, int | None]
Results = dict[tuple[int, int | None], tuple[Any, ...]]

# (size, every): tumbling, overlapping, overlapping by many panes, uneven, with gaps
WINDOWS = {"tumbling": (10, 10), "few": (20, 10), "many": (64, 4), "uneven": (27, 6), "gaps": (4, 7)}
ENGINES = {
    "one thread": pk.Engine(threads=1),
    "two threads": pk.Engine(threads=2, task_bytes=32),
    "stacks": pk.Engine(threads=1, aggregator="two-stacks"),
    "general": pk.Engine(threads=1, adaptive=False),
}
LATENESS = (0, 9)


@dataclass(frozen=True)
class Push:
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Advance:
    by: int


@dataclass(frozen=True)
class Restart:
    pass


def query(window: str, lateness: int) -> Any:
    size, every = WINDOWS[window]
    stream = pk.stream("s", {"t": "int64", "k": "int64", "v": "int64"}, time="t", lateness=lateness)
    v = pk.col("v")
    return (
        stream.filter(v != 5)
        .window(size, every=every, by="k")
        .agg(n=pk.count(), total=pk.sum("v"), least=pk.min("v"), third=pk.sum(v / 3), last=pk.last("v"))
    )


QUERIES = {(window, lateness): query(window, lateness) for window in WINDOWS for lateness in LATENESS}

KEYS = st.sampled_from(
    [
        st.integers(0, 3),
        st.integers(0, 3) | st.none(),
        st.sampled_from([0, 1, 70_000, 1 << 40]),
        st.integers(-200, 200),
    ]
)


@st.composite
def programs(draw: st.DrawFn) -> list[Push | Advance | Restart]:
    """Times go on by and by; some rows lag behind, a little or far."""
    keys, steps = draw(KEYS), draw(st.sampled_from([1, 3, 30]))
    values = draw(
        st.sampled_from(
            [st.integers(-9, 9), st.integers(-9, 9) | st.none(), st.sampled_from([1 << 62, -1, 7])]
        )
    )
    lags = draw(st.sampled_from([st.just(0), st.integers(0, 8), st.sampled_from([0, 0, 0, 0, 5, 40])]))
    time, program = draw(st.integers(-50, 50)), []
    for _ in range(draw(st.integers(2, 14))):
        match draw(st.sampled_from(["push"] * 8 + ["advance", "restart"])):
            case "push":
                rows = []
                for _ in range(draw(st.integers(0, 12))):
                    time += draw(st.integers(0, steps))
                    rows.append((time - draw(lags), draw(keys), draw(values)))
                program.append(Push(tuple(rows)))
            case "advance":
                time += draw(st.integers(0, 40))
                program.append(Advance(time))
            case "restart":
                program.append(Restart())
    return program


def in_plain_python(program: list[Push | Advance | Restart], window: str, lateness: int) -> Results:
    size, every = WINDOWS[window]
    mark, held = START, defaultdict(list)
    for step in program:
        match step:
            case Advance(by=time):
                mark = max(mark, time)
            case Push(rows=rows):
                for time, key, value in rows:
                    mark = max(mark, time - lateness)
                    first = (time - size) // every + 1
                    for number in range(first, time // every + 1):
                        if number * every + size > mark and value is not None and value != 5:
                            held[number * every, key].append(value)
    return {group: reduced(values) for group, values in held.items()}


def reduced(values: list[int]) -> tuple[Any, ...]:
    return len(values), sum(values), min(values), math.fsum(value / 3 for value in values), values[-1]


def run(
    program: list[Push | Advance | Restart], query: Any, engine: pk.Engine
) -> tuple[Results, list[int], pk.Metrics]:
    """The results, and the ends of their windows in the order in which they came."""
    live, batches = query.open(engine=engine), []
    for step in program:
        match step:
            case Push(rows=rows):
                columns = list(zip(*rows, strict=True)) or [(), (), ()]
                batch = pa.record_batch(
                    [pa.array(column, pa.int64()) for column in columns], names=["t", "k", "v"]
                )
                batches += live.push(batch)
            case Advance(by=time):
                batches += live.advance(time)
            case Restart():
                live = query.open(state=live.state(), engine=engine)
    batches += live.finish()
    found = pa.Table.from_batches(batches, query.schema).to_pylist()
    results = {
        (row["window_start"], row["k"]): (row["n"], row["total"], row["least"], row["third"], row["last"])
        for row in found
    }
    assert len(results) == len(found), "each window and key has one result"
    return results, [row["window_end"] for row in found], live.metrics


def compare(found: Results, expected: Results) -> None:
    assert found.keys() == expected.keys()
    for group, (n, total, least, third, _) in expected.items():
        assert found[group][:3] == (n, total, least), group
        assert math.isclose(found[group][3], third, rel_tol=1e-9, abs_tol=1e-3), group


def fits(results: Results) -> bool:
    return all(abs(total) < 1 << 63 for _, total, *_ in results.values())


@pytest.mark.filterwarnings("ignore::penstock.errors.LateRowsWarning")
@pytest.mark.parametrize("window", WINDOWS)
@effort(25)
@given(program=programs(), lateness=st.sampled_from(LATENESS), engine=st.sampled_from(sorted(ENGINES)))
def test_pushes_equal_plain_python(
    window: str, program: list[Push | Advance | Restart], lateness: int, engine: str
) -> None:
    expected = in_plain_python(program, window, lateness)
    if not fits(expected):
        return
    found, ends, metrics = run(program, QUERIES[window, lateness], ENGINES[engine])
    compare(found, expected)
    assert ends == sorted(ends)
    assert metrics.balanced


@pytest.mark.filterwarnings("ignore::penstock.errors.LateRowsWarning")
@effort(10)
@given(program=programs(), window=st.sampled_from(sorted(WINDOWS)))
def test_pushes_equal_interpreted_kernels(program: list[Push | Advance | Restart], window: str) -> None:
    if not fits(in_plain_python(program, window, 0)):
        return
    interpreted = pk.Engine(threads=1, backend="interpret")
    found, ends, metrics = run(program, QUERIES[window, 0], pk.Engine(threads=1))
    other, other_ends, other_metrics = run(program, QUERIES[window, 0], interpreted)
    assert found == other, "floats too: the order of additions is the same"
    assert (ends, metrics) == (other_ends, other_metrics)


@effort(15)
@given(program=programs(), window=st.sampled_from(sorted(WINDOWS)), size=st.integers(1, 9))
def test_rows_in_order_give_what_collect_gives(
    program: list[Push | Advance | Restart], window: str, size: int
) -> None:
    rows = sorted(
        (row for step in program if isinstance(step, Push) for row in step.rows), key=lambda row: row[0]
    )
    pushes: list[Push | Advance | Restart] = [
        Push(tuple(rows[begin : begin + size])) for begin in range(0, len(rows), size)
    ]
    if not rows or not fits(in_plain_python(pushes, window, 0)):
        return
    columns = [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)]
    whole = QUERIES[window, 0].collect(pa.table(columns, names=["t", "k", "v"]), engine=pk.Engine(threads=1))
    found, _, _ = run(pushes, QUERIES[window, 0], pk.Engine(threads=1))
    expected = {
        (row["window_start"], row["k"]): (row["n"], row["total"], row["least"], row["third"], row["last"])
        for row in whole.to_pylist()
    }
    compare(found, expected)
    assert {group: pair[4] for group, pair in found.items()} == {
        group: pair[4] for group, pair in expected.items()
    }
