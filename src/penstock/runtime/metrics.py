"""Metrics of a run: every row read is accounted for, latencies and joins are measured; also as Prometheus text."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from math import frexp
from typing import Any, NamedTuple, Protocol
from weakref import ref

import numpy as np

from penstock.errors import PenstockError
from penstock.runtime.adapt.controller import Adaptation

_STEPS = 16  # buckets to each power of two
_FINEST = -30  # 2 ** -30 s, about a nanosecond, ends the first buckets; the last ones begin at 2 ** 17 s
_BUCKETS = (18 - _FINEST) * _STEPS


class Latency:
    """Latencies of results, in seconds: from the arrival of the rows that completed a result to the result.

    Rows arrive when their push begins, also those that wait in the queue of a background run. If several pushes were
    gathered into one task, the oldest counts. Each task with results counts once.

    >>> latency = Latency()
    >>> for _ in range(99):
    ...     latency.add(0.001)
    >>> latency.add(0.5)
    >>> latency.count, round(latency.p50, 4), round(latency.p99, 4), latency.most
    (100, 0.001, 0.001, 0.5)
    """

    __slots__ = ("_buckets", "count", "most", "total")

    def __init__(self) -> None:
        self._buckets = array("q", bytes(8 * _BUCKETS))
        self.count, self.total, self.most = 0, 0.0, 0.0

    def add(self, seconds: float) -> None:
        """Count one latency."""
        fraction, exponent = frexp(max(seconds, 2.0**_FINEST))
        place = (exponent - 1 - _FINEST) * _STEPS + int((fraction * 2 - 1) * _STEPS)
        self._buckets[min(max(place, 0), _BUCKETS - 1)] += 1
        self.count += 1
        self.total += seconds
        self.most = max(self.most, seconds)

    def quantile(self, share: float) -> float:
        """The latency that this share of the results did not exceed; 0 without results."""
        left = share * self.count
        for place, many in enumerate(self._buckets):
            left -= many
            if many and left <= 0:
                exponent, step = divmod(place, _STEPS)
                return (
                    self.most
                    if place == _BUCKETS - 1
                    else min(2.0 ** (exponent + _FINEST) * (1 + (step + 1) / _STEPS), self.most)
                )
        return self.most

    @property
    def p50(self) -> float:
        """The median."""
        return self.quantile(0.5)

    @property
    def p95(self) -> float:
        """The 95th percentile."""
        return self.quantile(0.95)

    @property
    def p99(self) -> float:
        """The 99th percentile."""
        return self.quantile(0.99)

    def __repr__(self) -> str:
        if not self.count:
            return "Latency(count=0)"
        figures = (f"{name}={getattr(self, name) * 1e3:.3g} ms" for name in ("p50", "p95", "p99", "most"))
        return f"Latency(count={self.count}, {', '.join(figures)})"


_ROWS = {
    "read": "Rows read.",
    "accepted": "Rows that reached a result or the state of an operator.",
    "late": "Rows dropped since all their windows had been emitted.",
    "partly_late": "Accepted rows that some of their windows missed.",
    "malformed": "Rows without a time, and records that could not be read.",
    "filtered": "Rows that a filter rejected.",
    "emitted": "Rows of results.",
}
_QUANTILES = (0.5, 0.95, 0.99)


def prometheus(metrics: Metrics, query: str) -> str:
    """Render the metrics of one query as text."""
    label = f'query="{_escaped(query)}"'
    return "\n".join([*_lines(metrics, label), ""])


def _lines(metrics: Metrics, label: str) -> Iterator[str]:
    for name, says in _ROWS.items():
        yield from _head(f"penstock_rows_{name}_total", says, "counter")
        yield f"penstock_rows_{name}_total{{{label}}} {getattr(metrics, name)}"
    yield from _head("penstock_batches_total", "Batches pushed.", "counter")
    yield f"penstock_batches_total{{{label}}} {metrics.batches}"
    yield from _head("penstock_queue_rows", "Rows that wait in the queue of a background run.", "gauge")
    yield f"penstock_queue_rows{{{label}}} {metrics.queue_rows}"
    yield from _head("penstock_spilled_bytes_total", "Bytes of rows written to temporary files.", "counter")
    yield f"penstock_spilled_bytes_total{{{label}}} {metrics.spilled_bytes}"
    latency = metrics.latency
    yield from _head(
        "penstock_latency_seconds", "From the arrival of rows to the results they complete.", "summary"
    )
    for share in _QUANTILES:
        yield f'penstock_latency_seconds{{{label},quantile="{share}"}} {latency.quantile(share):.9g}'
    yield f"penstock_latency_seconds_sum{{{label}}} {latency.total:.9g}"
    yield f"penstock_latency_seconds_count{{{label}}} {latency.count}"
    yield from _head("penstock_held_rows", "Rows of the state of each operator.", "gauge")
    for name, held in metrics.held.items():
        yield f'penstock_held_rows{{{label},operator="{_escaped(name)}"}} {held.rows}'
    yield from _head("penstock_held_bytes", "Bytes of the state of each operator.", "gauge")
    for name, held in metrics.held.items():
        yield f'penstock_held_bytes{{{label},operator="{_escaped(name)}"}} {held.bytes}'


def _head(name: str, says: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {says}"
    yield f"# TYPE {name} {kind}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


LATENCY_BUCKETS = 64


FINEST = 1e-6  # seconds; bucket b holds latencies below FINEST * 2^(b / 2)


class SeenStatistics(Protocol):
    """Statistics by name: all of them, or those that a tree has read."""

    def __getitem__(self, name: str, /) -> float:
        """The value of a feature."""


@dataclass(frozen=True, slots=True)
class ChosenAlgorithm:
    """The algorithm that joined a window; if a tree chose it, the window's statistics and the path."""

    algorithm: str
    seen: SeenStatistics | None = None
    path: tuple[str, ...] = ()


@dataclass
class JoinMetrics:
    """The metrics of one window: counts and times in seconds, without its rows."""

    rows: int = 0
    pairs: int = 0
    seconds: float = 0.0
    progress: list[tuple[float, int]] = field(default_factory=list)
    buckets: np.ndarray = field(default_factory=lambda: np.zeros(LATENCY_BUCKETS, np.int64))

    @property
    def throughput(self) -> float:
        """Rows per second, until the last pair (or row)."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    def latency(self, quantile: float = 0.95) -> float:
        """Return the seconds within which this fraction of the pairs was emitted, to within a factor of 1.5."""
        if not self.pairs:
            return 0.0
        bucket = int(np.searchsorted(np.cumsum(self.buckets), quantile * self.pairs))
        return float(FINEST * 2 ** (min(bucket, LATENCY_BUCKETS - 1) / 2))

    def time_to(self, part: float) -> float:
        """Return the seconds until this fraction of the pairs had been emitted."""
        return next((at for at, given in self.progress if given >= part * self.pairs), self.seconds)

    def add(self, now: float, waits: np.ndarray) -> None:
        """Record pairs emitted now, and the latency of each."""
        steps = np.ceil(2 * np.log2(np.maximum(waits, FINEST) / FINEST)).astype(np.int64)
        self.buckets += np.bincount(np.minimum(steps, LATENCY_BUCKETS - 1), minlength=LATENCY_BUCKETS)
        self.pairs += len(waits)
        self.seconds = now
        self.progress.append((now, self.pairs))

    def add_all(self, now: float, pairs: int) -> None:
        """Record pairs emitted in one batch, with all rows present from the beginning."""
        step = max(math.ceil(2 * math.log2(max(now, FINEST) / FINEST)), 0)
        self.buckets[min(step, LATENCY_BUCKETS - 1)] += pairs
        self.pairs += pairs
        self.progress.append((now, self.pairs))


@dataclass
class JoinReport:
    """The metrics of all windows of one join: sums, and the progress of the last window.

    `paths` counts windows by algorithm. `chosen` is the last choice made by a tree. `seconds` is the time spent
    on windows.

    >>> report = JoinReport()
    >>> report.add(ChosenAlgorithm("npj"), JoinMetrics(rows=10, pairs=4, seconds=0.5))
    >>> (report.windows, report.throughput, report.paths)
    (1, 20.0, {'npj': 1})
    """

    windows: int = 0
    rows: int = 0
    pairs: int = 0
    seconds: float = 0.0
    paths: dict[str, int] = field(default_factory=dict)
    chosen: ChosenAlgorithm | None = None
    progress: list[tuple[float, int]] = field(default_factory=list)
    buckets: np.ndarray = field(default_factory=lambda: np.zeros(LATENCY_BUCKETS, np.int64))

    def add(self, chosen: ChosenAlgorithm, window: JoinMetrics, windows: int = 1) -> None:
        """Add a complete window, or several that were joined in one call."""
        self.windows += windows
        self.rows += window.rows
        self.pairs += window.pairs
        self.seconds += window.seconds
        self.paths[chosen.algorithm] = self.paths.get(chosen.algorithm, 0) + windows
        self.chosen = self.chosen if chosen.seen is None else chosen
        self.progress = window.progress
        self.buckets = self.buckets + window.buckets

    @property
    def throughput(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    def latency(self, quantile: float = 0.95) -> float:
        """Return the seconds within which this fraction of the pairs was emitted, to within a factor of 1.5."""
        return JoinMetrics(pairs=self.pairs, buckets=self.buckets).latency(quantile)

    @property
    def why(self) -> str:
        """The path of the last decision by a tree; empty if no tree was used."""
        return "" if self.chosen is None else f"{', '.join(self.chosen.path)}: {self.chosen.algorithm}"

    def show(self) -> str:
        """Return a one-line summary."""
        paths = ", ".join(f"{name} {count:,}" for name, count in sorted(self.paths.items()))
        return (
            f"{self.windows:,} windows ({paths}), {self.rows:,} rows, {self.pairs:,} pairs, "
            f"{self.throughput:,.0f} rows a second, 95 % of pairs within {self.latency() * 1e3:.3g} ms"
        )


class StateSize(NamedTuple):
    """The size of an operator's state, in the form in which it is saved."""

    rows: int
    bytes: int


@dataclass
class Metrics:
    """Row counts of one run. `accepted + late + malformed + filtered = read` holds after every batch.

    A row is *malformed* without a time, *late* when every window that holds it has been emitted,
    *filtered* when a filter before the first window rejects it, and *accepted* otherwise. An accepted row is
    also *partly late* when some of the windows that hold it had been emitted. A stream that two branches of a query
    read counts once for each. `ties` counts the rows that only their values order, where the query can detect it: rows
    of a Spark DataFrame that share their time and sequence with another row, of the same batch if it is a stream.
    `joins` has a report on each join in windows, by its name in `explain("ir")`: windows, rows, pairs, throughput,
    latency, progress, and the algorithms used. `adaptations` lists what the run has changed while it ran: when, which
    operator, what from and to, why, and how much faster rows were processed afterwards.

    Of an open query, `latency` has the seconds from the arrival of rows to the results they complete: `p50`, `p95`,
    `p99` and more. `queue_rows` counts the rows that wait in the queue of a background run. `held` measures the state of
    each operator, by its name in `explain("ir")`, each time it is read, which takes as long as saving the state.
    `spilled_bytes` counts what was written to temporary files because of `Engine(memory=)`.

    >>> Metrics(read=3, accepted=2, late=1).balanced
    True
    """

    read: int = 0
    accepted: int = 0
    late: int = 0
    malformed: int = 0
    filtered: int = 0
    emitted: int = 0
    batches: int = 0
    ties: int = 0
    partly_late: int = 0
    spilled_bytes: int = field(default=0, compare=False)
    joins: dict[str, JoinReport] = field(default_factory=dict, compare=False, repr=False)
    latency: Latency = field(default_factory=Latency, compare=False, repr=False)
    queue_rows: int = field(default=0, compare=False, repr=False)
    adaptations: list[Adaptation] = field(default_factory=list, compare=False, repr=False)
    measure: Callable[[], dict[str, StateSize]] | None = field(default=None, compare=False, repr=False)

    @property
    def counts(self) -> dict[str, int]:
        """The row and batch counts by name.

        >>> Metrics(read=3).counts["read"]
        3
        """
        return {column.name: getattr(self, column.name) for column in fields(self) if column.compare}

    @property
    def held(self) -> dict[str, StateSize]:
        """The rows and bytes of each operator's state; empty unless the query is open.

        >>> import penstock as pk
        >>> events = pk.stream("events", {"t": "int64", "k": "string"}, time="t")
        >>> with events.window(10, by="k").agg(n=pk.count()).open() as live:
        ...     _ = live.push([{"t": 1, "k": "a"}, {"t": 2, "k": "b"}])
        ...     sum(held.rows for held in live.metrics.held.values())
        2
        """
        return {} if self.measure is None else self.measure()

    def prometheus(self, query: str = "") -> str:
        """Render the metrics in Prometheus' text format; `query` labels them.

        >>> Metrics(read=3, accepted=3).prometheus("clicks").splitlines()[2]
        'penstock_rows_read_total{query="clicks"} 3'
        """
        return prometheus(self, query)

    def load(self, counts: Mapping[str, int]) -> None:
        """Restore saved counts."""
        for name in self.counts.keys() & counts.keys():
            setattr(self, name, counts[name])

    @property
    def balanced(self) -> bool:
        """Whether every row read is accounted for."""
        return self.accepted + self.late + self.malformed + self.filtered == self.read

    def check(self) -> None:
        """Raise if a row is unaccounted for, which is a bug in Penstock."""
        if not self.balanced:
            raise PenstockError(f"rows are unaccounted for, please report this: {self}")

    def update(self, other: Metrics) -> None:
        """Replace the counts by those of another object, in place."""
        if not isinstance(other, Metrics):
            raise PenstockError(
                f"metrics take over the counts of a pk.Metrics, not of a {type(other).__name__}"
            )
        for column in fields(self):
            setattr(self, column.name, getattr(other, column.name))


class MeasuredRun(Protocol):
    """A run whose state can be measured."""

    def held(self) -> dict[str, StateSize]:
        """Measure the state of each operator."""


def measure_of(run: ref[Any]) -> Callable[[], dict[str, StateSize]]:
    """Return what measures a run (`MeasuredRun`), without keeping it alive."""

    def measure() -> dict[str, StateSize]:
        known: MeasuredRun | None = run()
        return {} if known is None else known.held()

    return measure
