"""What a push of 100 rows costs while 10,000 and 1,000,000 rows are held."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

import penstock as pk
from benchmarks.contenders import PENSTOCK_GROUP
from benchmarks.figures import Case, Figure, ratio
from benchmarks.live.feed import SCHEMA, Feed, buffers_of, rows_of
from benchmarks.live.queries import QUERIES
from benchmarks.measure import Outcome
from benchmarks.workloads import STEP_US

HELD = (10_000, 1_000_000)
BUFFER = 100
PUSHES = 300
FILLING = 100_000
"""Rows of the pushes by which rows come to be held."""
MEDIAN, P99 = 1.5, 5.0
"""At most so much more may a push cost with the most rows held."""


def _within(left: Any, right: Any) -> Any:
    joined = left.join(right, on="key", within=("-1ms", "1ms"))
    return joined.select("join_time", "key", "val", "val_right")


def _asof(left: Any, right: Any) -> Any:
    return left.join_asof(right, by="key").select("ts", "key", "val", "val_right")


def _windowed(left: Any, right: Any) -> Any:
    joined = left.join(right, on="key", window=pk.tumbling("1ms"))
    return joined.select("window_end", "key", "val", "val_right")


def _overlapping(left: Any, right: Any) -> Any:
    joined = left.join(right, on="key", window=pk.sliding("1ms", "500us"))
    return joined.select("window_end", "key", "val", "val_right")


JOINS: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        "interval join": _within,
        "as-of join": _asof,
        "window join": _windowed,
        "overlapping window join": _overlapping,
    }
)
NAMES = ("session", "count", "rolling", "sliding", *JOINS)


def held_query(name: str, held: int) -> Any:
    """Build a query that allows rows to be as late as so many rows take: it holds them."""
    lateness = f"{held * STEP_US}us"
    streams = [pk.stream(side, SCHEMA, time="ts", lateness=lateness) for side in ("left", "right")]
    return JOINS[name](*streams) if name in JOINS else QUERIES[name].make(streams[0])


def holding_cases(progress: Callable[[str], None]) -> Iterator[Case]:
    """Measure each query with few and with many rows held."""
    for name in NAMES:
        costs = {}
        for held in HELD:
            progress(f"{name}, {held:,} rows held")
            costs[held] = push_seconds(name, held)
        few, many = (costs[held] for held in HELD)
        for held, seconds in costs.items():
            outcome = Outcome("Penstock", PENSTOCK_GROUP, 1, rows=BUFFER, agrees=True)
            outcome.seconds = outcome.cpu_seconds = [float(np.median(seconds))]
            figures = tuple(grown(few, many)) if held == HELD[-1] else ()
            yield Case(f"{held:,} held", BUFFER, 1_000, (outcome,), figures, f"100-row pushes, {name}", held)


def grown(few: np.ndarray, many: np.ndarray) -> Iterator[Figure]:
    """Compare the median and the 99th percentile of a push."""
    yield Figure(
        "median, x few held", ratio(float(np.median(many)), float(np.median(few))), MEDIAN, at_least=False
    )
    tails = [float(np.quantile(seconds, 0.99)) for seconds in (many, few)]
    yield Figure("p99, x few held", ratio(*tails), P99, at_least=False)


def push_seconds(name: str, held: int) -> np.ndarray:
    """Push until so many rows are held, then measure pushes of 100 rows, by the processor time of the process."""
    table = rows_of(Feed(rows=2 * held + (PUSHES + 50) * BUFFER))
    live = held_query(name, held).open(engine=pk.Engine(threads=1))
    sides = ("left", "right") if name in JOINS else ("left",)
    for batch in buffers_of(table.slice(0, 2 * held), FILLING):
        live.push(dict.fromkeys(sides, batch))
    seconds = []
    for batch in buffers_of(table.slice(2 * held), BUFFER):
        begin = time.process_time()
        live.push(dict.fromkeys(sides, batch))
        seconds.append(time.process_time() - begin)
    return np.array(seconds[50:])
