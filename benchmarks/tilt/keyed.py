"""The same applications over many keys and stored times: `collect()` from rows to intervals, beside data frames.

Peers answer at samples only; between them a signal changes too, when samples leave its windows. What is compared is
the value at each sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as pk
from benchmarks.contenders import PENSTOCK_GROUP
from benchmarks.figures import Case, Figure, named, ratio
from benchmarks.measure import Contender, Outcome, compare
from benchmarks.peers import PEER_GROUP, failing
from benchmarks.tilt import applications
from benchmarks.tilt.kernel import floats

KEYS = 1_000
COLLECT = "collect()"
ROWS_PART = 5
"""Rows with a time and a key take three times the memory of bare samples: a fifth of them will do."""

Progress = Callable[[str], None]
Ask = Callable[[pk.Signal], pk.Signal]


@dataclass(frozen=True, slots=True)
class Keyed:
    """An application over rows `t, k, x`, the same in Polars, and what must be reached: times Polars, M rows/s.

    `irregular`: keys come as they like; else they take turns, so that each has a sample at every tick.
    """

    name: str
    signal: Ask
    polars: Callable[[Any, Any], Any]
    irregular: bool = False
    least: float | None = None
    bar: float | None = None


def rows_of(rows: int, irregular: bool) -> pa.Table:
    """Whole numbers, whose sums round nothing: everyone means the same by "greater"."""
    rng = np.random.default_rng(6)
    if irregular:
        times, keys = np.cumsum(rng.integers(1, 3, rows)), rng.integers(0, KEYS, rows)
    else:
        times, keys = np.divmod(np.arange(rows), KEYS)
    return pa.table({"t": times, "k": keys, "x": rng.exponential(50, rows).round()})


def _polars_trend(pl: Any, x: Any) -> Any:
    short, long = (x.rolling_mean_by("t", f"{ticks}i").over("k") for ticks in (30_000, 75_000))
    return (short > long).cast(pl.Float64)


def _polars_rsi(pl: Any, x: Any) -> Any:
    change = x.diff()
    gains = pl.when(change > 0).then(change).otherwise(0.0).rolling_sum(14, min_samples=1)
    moves = change.abs().rolling_sum(14, min_samples=1)
    return pl.when(change.is_not_null() & (moves > 0)).then(100 * gains / moves).over("k")


def _polars_normalise(pl: Any, x: Any) -> Any:
    return ((x - x.mean()) / x.std(ddof=0)).over("k", pl.col("t") // 100)


def _polars_fraud(pl: Any, x: Any) -> Any:
    mean, std = x.rolling_mean(240, min_samples=1), x.rolling_std(240, min_samples=2)
    return (x > (mean + 3 * std).shift(1)).cast(pl.Float64).over("k")


APPLICATIONS = (
    Keyed("trend", lambda x: applications.trend(x, 30_000, 75_000), _polars_trend, True, 3.0, 20.0),
    Keyed("rsi", lambda x: applications.rsi(x, 1, 14), _polars_rsi),
    Keyed("normalise", lambda x: applications.normalise(x, 100), _polars_normalise),
    Keyed("fraud", lambda x: applications.fraud(x, 1, 240), _polars_fraud),
)


def keyed_cases(rows: int, repeat: int, peers: Sequence[str], progress: Progress) -> list[Case]:
    """Every application by 1,000 keys."""
    return [keyed_case(application, rows, repeat, peers, progress) for application in APPLICATIONS]


def keyed_case(asked: Keyed, rows: int, repeat: int, peers: Sequence[str], progress: Progress) -> Case:
    """Penstock by one thread and Polars, whose processor time counts: it takes all threads it finds."""
    progress(f"{asked.name} by key: generate")
    table = rows_of(rows, asked.irregular)
    contenders = [_penstock(asked, table), *_polars(asked, table, peers)]
    outcomes = compare(contenders, repeat, lambda text: progress(f"{asked.name} by key: {text}"))
    name = f"{asked.name}, {KEYS:,} keys"
    return Case(name, rows, KEYS, tuple(outcomes), tuple(_figures(name, asked, rows, outcomes)))


def _penstock(asked: Keyed, table: pa.Table) -> Contender:
    signal = asked.signal(pk.from_arrow(table, time="t").signal("x", by="k"))
    engine = pk.Engine(threads=1)
    return Contender(
        COLLECT,
        lambda: signal.collect(engine=engine),
        lambda found: at_samples(found, table),
        1,
        PENSTOCK_GROUP,
    )


def _polars(asked: Keyed, table: pa.Table, peers: Sequence[str]) -> Iterator[Contender]:
    if "polars" not in peers:
        return
    try:
        import polars as pl  # noqa: PLC0415 - a peer may be absent
    except ImportError as error:
        yield Contender("Polars", failing(error), group=PEER_GROUP)
        return
    frame = pl.DataFrame(pl.from_arrow(table))
    query = asked.polars(pl, pl.col("x")).alias("v")

    def run() -> Any:
        answer = frame.select(query)
        return answer["v"].to_numpy()

    yield Contender("Polars", run, floats, 1, PEER_GROUP)


def at_samples(intervals: pa.Table, samples: pa.Table) -> pa.Table:
    """The value that holds at each sample of its key; NaN where there is none."""
    times, keys = samples["t"].to_numpy(), samples["k"].to_numpy()
    starts, partitions = intervals["start"].to_numpy(), intervals["k"].to_numpy()
    far = int(max(times.max(), starts.max())) + 1
    order = np.argsort(partitions * far + starts)
    place = np.searchsorted((partitions * far + starts)[order], keys * far + times, side="right") - 1
    found = order[np.maximum(place, 0)]
    ends = intervals["end"].fill_null(far).to_numpy()
    holds = (place >= 0) & (partitions[found] == keys) & (times < ends[found])
    values = intervals["value"].cast(pa.float64()).fill_null(np.nan).to_numpy()
    return floats(np.where(holds, values[found], np.nan))


def _figures(name: str, asked: Keyed, rows: int, outcomes: Sequence[Outcome]) -> Iterator[Figure]:
    ours = named(outcomes, COLLECT)
    yield Figure(f"{name}: collect()", rows / ours / 1e6 if ours else None, asked.bar, unit="M/s")
    if any(outcome.name == "Polars" for outcome in outcomes):
        cpu = {outcome.name: outcome.best_cpu for outcome in outcomes}
        yield Figure(
            f"{name}: collect() / Polars, processor time", ratio(cpu["Polars"], cpu[COLLECT]), asked.least
        )
