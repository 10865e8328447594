"""Workers emit the overlapping windows that start in their own panes, with copies of those they reach into."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.operators.pane_aggregate import stage as window_stage
from penstock.operators.pane_aggregate.tasks import Tasks

ROWS = 6_000
SCHEMA = pa.schema({"t": pa.int64(), "k": pa.int64(), "name": pa.string(), "i": pa.int64()})

WINDOWS = {
    "3 panes": (30, 10),
    "20 panes": (200, 10),
    "two panes to each slide": (100, 30),
    "more panes than half of all": (15_000, 10),
}
KEYS: dict[str, Any] = {"no key": None, "an integer": "k", "a text": "name"}


def table(disorder: int) -> pa.Table:
    """Make rows two ticks apart, each moved by up to `disorder` ticks."""
    random = np.random.default_rng(5)
    time = np.arange(ROWS) * 2 + random.integers(0, disorder + 1, ROWS)
    key = random.integers(0, 7, ROWS)
    names = np.array([None, "a", "b", "c", "d", "e", "f"], object)[key]
    columns = [pa.array(time), pa.array(key), pa.array(names), pa.array(random.integers(-9, 9, ROWS))]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def query(window: str, key: str, lateness: int = 0) -> pk.Stream:
    size, every = WINDOWS[window]
    events = pk.stream("events", SCHEMA, time="t", lateness=lateness)
    windowed = events.window(pk.sliding(size, every=every), by=KEYS[key])
    return windowed.agg(total=pk.sum("i"), high=pk.max("i"), n=pk.count(), last=pk.max("name"))


@pytest.fixture
def lent(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Note each time panes could be lent, and whether they were; let workers keep to their own tasks."""
    noted: list[bool] = []
    real = window_stage.copy_overlap

    def copy_overlap(runs: Any, reach: int) -> Any:
        found = real(runs, reach)
        noted.append(found is not None)
        return found

    monkeypatch.setattr(window_stage, "copy_overlap", copy_overlap)
    monkeypatch.setattr(
        Tasks, "next", lambda tasks, place: tasks.waiting[place].popleft() if tasks.waiting[place] else None
    )
    return noted


def rows_of(result: pa.Table) -> list[str]:
    return sorted(map(repr, result.to_pylist()))


@pytest.mark.parametrize("disorder", [0, 25])
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("window", WINDOWS)
def test_a_table_collected_on_threads(window: str, key: str, disorder: int, lent: list[bool]) -> None:
    asked, data = query(window, key), table(disorder)
    expected = asked.collect(events=data, engine=pk.Engine(threads=1))
    assert not lent
    found = asked.collect(events=data, engine=pk.Engine(threads=3, task_bytes=10_000))
    assert rows_of(found) == rows_of(expected)
    ends = found["window_end"].to_pylist()
    assert ends == sorted(ends)
    assert lent == [window != "more panes than half of all"]


@pytest.mark.parametrize("key", ["an integer", "a text"])
@pytest.mark.parametrize("window", WINDOWS)
def test_copies_are_not_taken_for_panes_when_more_rows_come(window: str, key: str, lent: list[bool]) -> None:
    """Panes that were lent are still open: later rows, some of them late, go to their owner."""
    asked, data = query(window, key, lateness=25), table(disorder=25)
    batches = data.to_batches(max_chunksize=ROWS // 4)
    alone = list(asked.run(batches, engine=pk.Engine(threads=1)))
    several = list(asked.run(batches, engine=pk.Engine(threads=3, task_bytes=3_000)))
    assert rows_of(pa.Table.from_batches(several)) == rows_of(pa.Table.from_batches(alone))
    assert window.startswith("more") or (all(lent) and len(lent) > 2)
