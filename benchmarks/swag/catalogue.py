"""The questions `python -m benchmarks swag` asks, with the targets of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

import penstock as pk
from benchmarks.figures import Case, Figure, named, ratio
from benchmarks.measure import Contender, compare
from benchmarks.swag import peers
from benchmarks.swag.questions import Peer, Question
from benchmarks.swag.subjects import samples
from benchmarks.swag.sweeps import Progress, whole_query

KHZ_US = 1_000
DENSE_US = 3
MANY_KEYS = 10_000
GAP_MS = 70
"""With 10,000 keys and a row every 3 us, a session holds ten rows on average."""
COUNT = 100

SIGNAL: Callable[[int], pa.Table] = partial(samples, step_us=KHZ_US)
KEYED: Callable[[int], pa.Table] = partial(samples, step_us=DENSE_US, keys=MANY_KEYS)


def answer_only(answer: pa.Table) -> pa.Table:
    """Compare the last column, in the order of rows."""
    return answer.select([answer.column_names[-1]])


def keyed(answer: pa.Table) -> pa.Table:
    """Compare window, key and aggregate."""
    return answer.select(["window_start", "k", "m"])


def rolling(size: str, closed: str, aggregate: str, table: pa.Table) -> Any:
    """Aggregate what each row looks back on."""
    events: Any = pk.from_arrow(table, time="ts")
    return events.rolling(size, closed=closed).agg(m=getattr(pk, aggregate)("x"))


def keyed_sliding(table: pa.Table) -> Any:
    """Average each key over a minute, every second."""
    windows = pk.from_arrow(table, time="ts").window(pk.sliding("60s", every="1s"), by="k")
    return windows.agg(m=pk.mean("x"))


def sessions(table: pa.Table) -> Any:
    """Sum each key's sessions."""
    return pk.from_arrow(table, time="ts").window(pk.session(f"{GAP_MS}ms"), by="k").agg(m=pk.sum("v"))


def counts(table: pa.Table) -> Any:
    """Sum each key's rows, a hundred at a time."""
    return pk.from_arrow(table, time="ts").window(pk.rows(COUNT), by="k").agg(m=pk.sum("v"))


def look_back(name: str, aggregate: str) -> Question:
    """A look-back of ten seconds at 1 kHz, against Polars and pandas."""
    return Question(
        f"rolling {name}, 10 s at 1 kHz",
        SIGNAL,
        partial(rolling, "10s", "right", aggregate),
        answer_only,
        (
            Peer("Polars", peers.polars_rolling(f"rolling_{aggregate}_by", "ts", "10s"), bar=5.0),
            Peer("pandas", peers.pandas_rolling(aggregate, "10s"), bar=3.0),
        ),
        part=2,
    )


QUESTIONS = (
    look_back("mean", "mean"),
    look_back("max", "max"),
    Question(
        "sliding median, 1 s at 1 kHz",
        SIGNAL,
        partial(rolling, "1s", "right", "median"),
        answer_only,
        (
            Peer(
                "Polars rolling_median", peers.polars_rolling("rolling_median", 1_000, min_samples=1), bar=3.0
            ),
            Peer("Polars rolling_median_by", peers.polars_rolling("rolling_median_by", "ts", "1s"), 5, 3.0),
        ),
        part=20,
    ),
    Question(
        "keyed sliding mean, 60 s / 1 s",
        partial(samples, step_us=100, keys=1_000),
        keyed_sliding,
        keyed,
        (Peer("Polars group_by_dynamic", peers.polars_dynamic(60, 1), 10, 30.0),),
        keys=1_000,
        part=2,
    ),
    Question(
        "average over a range frame, 10 s at 1 kHz",
        SIGNAL,
        partial(rolling, "10s", "both", "mean"),
        answer_only,
        (Peer("DuckDB", peers.duckdb_range(10), 20, 50.0),),
        part=2,
    ),
    Question(
        "keyed sessions",
        KEYED,
        sessions,
        keyed,
        (
            Peer("Polars", peers.polars_sessions(GAP_MS), 10),
            Peer("DuckDB", peers.duckdb_sessions(GAP_MS), 10),
        ),
        keys=MANY_KEYS,
        floor=50.0,
    ),
    Question(
        "keyed count windows",
        KEYED,
        counts,
        keyed,
        (Peer("Polars", peers.polars_counts(COUNT), 10), Peer("DuckDB", peers.duckdb_counts(COUNT), 10)),
        keys=MANY_KEYS,
        floor=50.0,
    ),
)


def overlap_case(rows: int, keys: int, threads: int, repeat: int, progress: Progress) -> Case:
    """Tumbling against a thousand overlapping windows over the same rows: overlap must cost little."""
    name = f"overlap, {keys:,} key(s)"
    progress(name)
    table = samples(rows, DENSE_US, keys)
    by = "k" if keys > 1 else None

    def query(every: str) -> Any:
        return (
            pk.from_arrow(table, time="ts").window(pk.sliding("10s", every=every), by=by).agg(m=pk.mean("x"))
        )

    tumbling, sliding = "Penstock tumbling", "Penstock, 1,000 overlapping"
    made = ((tumbling, "10s"), (sliding, "10ms"))
    outcomes = compare(
        [overlap_contender(label, partial(query, every), threads) for label, every in made], repeat
    )
    cost = Figure(
        f"{name}: sliding / tumbling", ratio(named(outcomes, tumbling), named(outcomes, sliding)), 0.7
    )
    return Case(name, rows, keys, tuple(outcomes), (cost,))


def overlap_contender(label: str, query: Callable[[], Any], threads: int) -> Contender:
    """A whole query whose answer nobody else gives."""
    return replace(whole_query(label, query, ["m"], threads), question=label)
