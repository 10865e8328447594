"""Where chunks of filtered rows are cut: at the ends of windows, as long as rows are in order."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.loop.interpret import Interpreted
from penstock.operators.pane_aggregate.kernels.fold_panes import FOLD_CHUNK, SHORTEST_RUN

ROWS = 3 * FOLD_CHUNK + 77
WIDTHS = [
    1,
    SHORTEST_RUN - 1,
    SHORTEST_RUN,
    SHORTEST_RUN + 1,
    1000,
    FOLD_CHUNK - 1,
    FOLD_CHUNK,
    FOLD_CHUNK + 1,
    4 * FOLD_CHUNK,
]
FEW = 4000  # rows, for kernels that are interpreted


def times(order: str, rows: int = ROWS) -> np.ndarray:
    """Times from below 0 on, one tick apart, in order or not."""
    ordered, random = np.arange(rows, dtype=np.int64) - rows // 2, np.random.default_rng(7)
    match order:
        case "in order":
            return ordered
        case "with gaps":
            return ordered + 5000 * (np.arange(rows) // 3000)
        case "nearly in order":
            return ordered + random.integers(0, 20, rows)
        case "backwards":
            return ordered[::-1].copy()
        case "one pane after the other, but for one row":
            ordered[rows // 2] = ordered[0]
            return ordered
    return random.permutation(ordered)


ORDERS = [
    "in order",
    "with gaps",
    "nearly in order",
    "backwards",
    "one pane after the other, but for one row",
    "mixed",
]


def events(when: np.ndarray) -> pa.Table:
    random = np.random.default_rng(3)
    kind, key = random.integers(0, 3, len(when)), random.integers(0, 5, len(when))
    return pa.table({"t": when, "kind": kind, "k": key})


def counted(table: pa.Table, width: int, engine: pk.Engine) -> Counter[tuple[int, int]]:
    events = pk.from_arrow(table, time="t").filter(pk.col("kind") == 1)
    found = events.window(width, by="k").agg(n=pk.count()).collect(engine=engine).to_pydict()
    return Counter({(s, k): n for s, k, n in zip(found["window_start"], found["k"], found["n"], strict=True)})


def expected(table: pa.Table, width: int) -> Counter[tuple[int, int]]:
    rows = zip(*(table[name].to_pylist() for name in ("t", "kind", "k")), strict=True)
    return Counter((t // width * width, key) for t, kind, key in rows if kind == 1)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("order", ORDERS)
def test_every_row_is_in_its_window(order: str, width: int) -> None:
    table = events(times(order))
    assert counted(table, width, pk.Engine(threads=1)) == expected(table, width)


@pytest.mark.parametrize("order", ORDERS)
def test_so_it_is_where_kernels_are_interpreted(order: str) -> None:
    table = events(times(order, FEW))
    assert counted(table, 100, pk.Engine(threads=1, backend="interpret")) == expected(table, 100)


def test_rows_are_looked_at_about_once_though_windows_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk whose window ended early was once looked at wholly, and again from there: 80 times with windows of 100 rows."""
    read = Counter[str]()
    table = events(times("in order", FEW))

    def over(self: Interpreted, values: dict[str, object], *given: object) -> object:
        watched = {name: _Counting.of(value, name, read) for name, value in values.items()}
        return original(self, watched, *given)

    original = Interpreted.over
    monkeypatch.setattr(Interpreted, "over", over)
    assert counted(table, 100, pk.Engine(threads=1, backend="interpret")) == expected(table, 100)
    assert read, "no column was watched"
    assert max(read.values()) < 2 * FEW


class _Counting(np.ndarray):
    """A column that counts how often it is read."""

    @classmethod
    def of(cls, values: object, name: str, read: Counter[str]) -> object:
        if not isinstance(values, np.ndarray) or len(values) != FEW:
            return values
        watched = values.view(cls)
        watched.name, watched.read = name, read
        return watched

    def __getitem__(self, place: object) -> object:
        self.read[self.name] += 1
        return super().__getitem__(place)
