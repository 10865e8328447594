"""The questions: five operators, eight applications, and the reduced YSB query, over one value per tick.

The applications are those of `examples/`, which a test holds against these; the package does not contain them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import penstock as pk

Tables = Sequence[pa.Table]


@dataclass(frozen=True, slots=True)
class Application:
    """A signal over tables, and what it must reach: M events a second by one thread.

    `reference` names the C++ loop that does the same; `sequential` ones run on one thread.
    """

    name: str
    tables: Callable[[int], Tables]
    signal: Callable[[Tables], pk.Signal]
    bar: float
    reference: str | None = None
    sequential: bool = False


def uniform(rows: int, seed: int = 1) -> pa.Table:
    """One float for every tick, in [-50, 50)."""
    return pa.table({"x": np.random.default_rng(seed).uniform(-50, 50, rows)})


def plain(rows: int) -> Tables:
    return [uniform(rows)]


def pair(rows: int) -> Tables:
    return [uniform(rows), uniform(rows, seed=2)]


def gappy(rows: int) -> Tables:
    """One in ten samples is missing."""
    values = uniform(rows)["x"].chunk(0)
    missing = np.random.default_rng(3).random(rows) < 0.1
    return [pa.table({"x": pa.array(values.to_numpy(), mask=missing)})]


def whole(rows: int) -> Tables:
    """Whole numbers, on which recursive filters round nothing: answers stay comparable, however long."""
    return [pa.table({"x": np.random.default_rng(5).integers(-50, 50, rows).astype(np.float64)})]


def small(rows: int) -> Tables:
    """The three columns of ysb-reduced."""
    rng = np.random.default_rng(4)
    names = "event_type", "user_id", "page_id"
    return [pa.table({name: rng.integers(1, 6, rows) for name in names})]


def read(table: pa.Table, period: str | int = 1, column: str = "x") -> pk.Signal:
    return pk.from_arrow(table, time=pk.every(period)).signal(column)


# --- operators ----------------------------------------------------------------------------------------------


def select(tables: Tables) -> pk.Signal:
    return read(tables[0]) + 3


def where(tables: Tables) -> pk.Signal:
    return read(tables[0]).where(lambda v: v > 0)


def window_sum(tables: Tables) -> pk.Signal:
    return read(tables[0]).rolling(1000).sum()


def join(tables: Tables) -> pk.Signal:
    return read(tables[0]) + read(tables[1])


def outer_join(tables: Tables) -> pk.Signal:
    left, right = read(tables[0]).where(lambda v: v > 0), read(tables[1])
    return left.or_else(0 * right) + right


# --- applications -------------------------------------------------------------------------------------------


def trend(price: pk.Signal, short: str | int, long: str | int) -> pk.Signal:
    return price.rolling(short).mean() > price.rolling(long).mean()


def rsi(price: pk.Signal, step: str | int, span: str | int) -> pk.Signal:
    change = price - price.shift(step)
    gains = change.map(lambda v: pk.when(v > 0).then(v).otherwise(0.0)).rolling(span).sum()
    moves = change.abs().rolling(span).sum()
    return (100 * gains / moves).where(moves > 0)


def normalise(x: pk.Signal, size: str | int) -> pk.Signal:
    stretch = x.per(size)
    return (x - stretch.mean()) / stretch.std(ddof=0)


def impute(x: pk.Signal, size: str | int) -> pk.Signal:
    return x.or_else(x.per(size).mean())


def vibration(x: pk.Signal, size: str | int) -> pk.Signal:
    rms = (x * x).per(size).mean().sqrt()
    crest = x.abs().per(size).max() / rms
    return pk.align(kurtosis=x.per(size).kurtosis(fisher=False), rms=rms, crest=crest)


def fraud(amount: pk.Signal, tick: str | int, span: str | int) -> pk.Signal:
    before = amount.rolling(span)
    return amount > (before.mean() + 3 * before.std()).shift(tick)


def energy(ecg: pk.Signal) -> pk.Signal:
    def old(x: pk.Signal, by: str) -> pk.Signal:
        return x.shift(by).or_else(0 * x)

    low = pk.feedback(lambda y: 2 * y - y[2] + (ecg - 2 * old(ecg, "30ms") + old(ecg, "60ms")))
    kept = old(low, "80ms") - old(low, "85ms") - low / 32 + old(low, "160ms") / 32
    high = pk.feedback(lambda y: y + kept)
    slope = (2 * high + old(high, "5ms") - old(high, "15ms") - 2 * old(high, "20ms")) / 8
    return (slope * slope).rolling("150ms").mean()


def views(events: pk.Signal) -> pk.Signal:
    return events.per(100).agg(pk.count(where=pk.col("value") == 1))


APPLICATIONS = (
    Application("select", plain, select, 300),
    Application("where", plain, where, 250),
    Application("window-sum", plain, window_sum, 400),
    Application("join", pair, join, 150),
    Application("outer join", pair, outer_join, 150),
    Application("normalise", plain, lambda t: normalise(read(t[0]), 10_000), 150, "normalise"),
    Application("impute", gappy, lambda t: impute(read(t[0]), 10_000), 150),
    Application("resample", plain, lambda t: read(t[0], 4).resample(every=5), 150, "resample"),
    Application("trend", plain, lambda t: trend(read(t[0]), 20, 50), 120, "trend"),
    Application("vibration", plain, lambda t: vibration(read(t[0]), 100), 120),
    Application("fraud", plain, lambda t: fraud(read(t[0], "1h"), "1h", "10d"), 100),
    Application("rsi", plain, lambda t: rsi(read(t[0]), 1, 14), 80),
    Application("pan-tompkins", whole, lambda t: energy(read(t[0], "5ms")), 40, sequential=True),
    Application("ysb-reduced", small, lambda t: views(read(t[0], column="event_type")), 700),
)
