"""The live queries in other stream processors: what each is asked, and how its answers are compared.

A peer that is not installed is left out; a query that a peer cannot express is not available there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from benchmarks.answers import agree, normalise
from benchmarks.contenders import PENSTOCK_GROUP
from benchmarks.figures import Case, Figure, ratio
from benchmarks.live.feed import Feed
from benchmarks.live.measure import expected_of
from benchmarks.live.points import Found, Point
from benchmarks.live.queries import QUERIES
from benchmarks.live.suite import SHARES, Contender, Latency, LiveOptions, Report, note
from benchmarks.measure import NOT_AVAILABLE, Outcome
from benchmarks.peers import PEER_GROUP
from benchmarks.workloads import START_US
from penstock.errors import PenstockError

PLAIN = ("start", "end", "key", "value")
PENSTOCK_BUFFERS = (1_000, 100_000)
"""Penstock beside the peers: small buffers, and those at which it is fastest."""
WANTED = 10.0


class PeerError(PenstockError, RuntimeError):
    """A peer cannot be started, or its run failed."""


class Peer(Protocol):
    """A stream processor. `rows` is how many rows it is given; rows a second are compared."""

    @property
    def name(self) -> str: ...

    @property
    def rows(self) -> int: ...

    @property
    def queries(self) -> Sequence[str]: ...

    def answer(self, query: str, feed: Feed, threads: int) -> pa.Table:
        """Return the results as `start, end, key, value`, times in microseconds from the first row."""
        ...

    def throughput(self, query: str, feed: Feed, threads: int) -> Mapping[str, Found]:
        """Measure in a closed loop, by the name of the setting; "" is the only one."""
        ...

    def latency(self, query: str, feed: Feed, threads: int, rate: float) -> Found:
        """Measure in an open loop at a rate in rows a second."""
        ...

    def source(self, feed: Feed, threads: int) -> Found | None:
        """Measure the source alone, whose rate bounds every query; None if rows are there beforehand."""
        ...


Opened = AbstractContextManager[Peer | None]
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PeerRun:
    """How peers are run: which, on how many threads, and over how many rows at most."""

    openers: Sequence[Callable[[], Opened]]
    threads: int
    most_rows: int


def run_peers(
    report: Report, run: PeerRun, options: LiveOptions, ours: Contender | None, progress: Progress
) -> None:
    """Run the peers one after the other, and add what they found to the report."""
    for opener in run.openers:
        with ExitStack() as stack:
            peer = stack.enter_context(opener())
            if peer is not None:
                feed = Feed(rows=min(peer.rows, run.most_rows))
                cases = [
                    peer_case(peer, query, feed, run.threads, ours, progress) for query in options.queries
                ]
                report.cases += cases
                report.figures += source_figures(peer, feed, run.threads)
                if options.latency:
                    report.latencies += peer_latencies(peer, cases, feed, run.threads, progress)


def peer_case(
    peer: Peer, query: str, feed: Feed, threads: int, ours: Contender | None, progress: Progress
) -> Case:
    """Measure a peer on one query, then Penstock over the same rows."""
    outcomes = [*penstock_outcomes(query, feed, ours)]
    if query in peer.queries:
        progress(f"{peer.name}: {query}")
        outcomes += peer_outcomes(peer, query, feed, threads)
    else:
        error = f"{NOT_AVAILABLE}: {peer.name} cannot express {query}"
        outcomes.append(Outcome(peer.name, PEER_GROUP, threads, error=error))
    return Case(
        query, feed.rows, feed.keys, tuple(outcomes), tuple(compared(outcomes)), f"beside {peer.name}"
    )


def source_figures(peer: Peer, feed: Feed, threads: int) -> Iterator[Figure]:
    """Say how fast a peer's source is by itself."""
    try:
        alone = peer.source(feed, threads)
    except PeerError:
        return
    if alone is not None and alone.speed:
        yield Figure(f"{peer.name}: its source alone", alone.speed / 1e6, unit="M rows/s")


def peer_outcomes(peer: Peer, query: str, feed: Feed, threads: int) -> Iterator[Outcome]:
    """Yield an outcome for each setting of a peer; a failure is an outcome too."""
    try:
        agrees = right(query, feed, peer.answer(query, feed, threads))
        found = peer.throughput(query, feed, threads)
    except PeerError as error:
        yield Outcome(peer.name, PEER_GROUP, threads, error=str(error))
        return
    for setting, point in found.items():
        outcome = Outcome(f"{peer.name} {setting}".strip(), PEER_GROUP, threads)
        outcome.agrees = agrees
        outcome.rows, outcome.seconds, outcome.cpu_seconds = point.rows, [point.seconds], [point.cpu_seconds]
        yield outcome


def penstock_outcomes(query: str, feed: Feed, ours: Contender | None) -> Iterator[Outcome]:
    """Measure Penstock in small and in large buffers."""
    if ours is None:
        return
    for buffer in PENSTOCK_BUFFERS:
        threads = ours.point.threads
        outcome = Outcome(f"Penstock {buffer:,}", PENSTOCK_GROUP, threads)
        rows = max(feed.rows, 5 * buffer)
        point = Point(query, Feed(rows=rows), buffer, threads, ours.point.way)
        note(outcome, ours.worker.measure(point))
        yield outcome


def compared(outcomes: Sequence[Outcome]) -> Iterator[Figure]:
    """Compare Penstock's best rate with the peer's best."""
    speeds: dict[str, float] = {}
    for outcome in outcomes:
        if outcome.best and outcome.rows and outcome.agrees:
            speeds[outcome.group] = max(speeds.get(outcome.group, 0.0), outcome.rows / outcome.best)
    yield Figure("x peer", ratio(speeds.get(PENSTOCK_GROUP), speeds.get(PEER_GROUP)), WANTED)


def peer_latencies(
    peer: Peer, cases: Sequence[Case], feed: Feed, threads: int, progress: Progress
) -> Iterator[Latency]:
    """Measure a peer at shares of its own peak."""
    for case in cases:
        speeds = [o.rows / o.best for o in case.outcomes if o.group == PEER_GROUP and o.best and o.rows]
        for share in SHARES if speeds else ():
            rate = max(speeds) * share
            progress(f"{peer.name}: {case.name} at {share:.0%}")
            try:
                found = peer.latency(case.name, feed, threads, rate)
            except PeerError as error:
                found = Found(0, 0.0, 0.0, error=str(error))
            yield Latency(
                peer.name, case.name, 1, share, rate, found.latency, found.completed, True, found.error
            )


# --- answers ------------------------------------------------------------------------------------------------


def right(query: str, feed: Feed, answer: pa.Table) -> bool:
    """Compare a peer's answer with that of `collect`."""
    return agree(normalise(answer.select(list(PLAIN))), normalise(plain(query, expected_of(query, feed))))


def plain(query: str, table: pa.Table) -> pa.Table:
    """Return results of Penstock as `start, end, key, value`; a row that is no window starts and ends at its time.

    >>> table = pa.table({"ts": pa.array([START_US + 3], pa.timestamp("us")), "key": [1], "twice": [8]})
    >>> plain("filter", table).to_pylist()
    [{'start': 3, 'end': 3, 'key': 1, 'value': 8}]
    """
    asked = QUERIES[query]
    end = asked.complete or "ts"
    start = "window_start" if "window_start" in table.column_names else end
    times = {"start": start, "end": end}
    made = {name: ticks(table[column]) for name, column in times.items()}
    return pa.table(made | {"key": table["key"], "value": table[table.column_names[-1]]})


def ticks(times: pa.ChunkedArray) -> pa.Array:
    """Return microseconds from the first row of the feed."""
    counts = times.combine_chunks().view(pa.int64()).to_numpy() - START_US
    return pa.array(counts)
