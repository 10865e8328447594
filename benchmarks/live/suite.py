"""Choose the points of a run, and measure them with all builds in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from benchmarks.contenders import PENSTOCK_GROUP
from benchmarks.figures import Case, Figure, ratio
from benchmarks.live.builds import CURRENT, Worker
from benchmarks.live.feed import Feed
from benchmarks.live.points import Found, Point
from benchmarks.live.pushing import PUSH
from benchmarks.live.queries import QUERIES
from benchmarks.measure import Outcome

Progress = Callable[[str], None]

BUFFERS = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
QUICK_BUFFERS = (100, 1_000, 10_000)
VARIANTS: Mapping[str, Feed] = MappingProxyType(
    {
        "uniform": Feed(),
        "zipf": Feed(zipf=True),
        "100k keys": Feed(keys=100_000),
        "disorder": Feed(disorder_us=3_000),
    }
)
SHARES = (0.1, 0.5, 0.8)
LEAST_ROWS, QUICK_ROWS = 100_000, 40_000
"""The fewest rows of a point: three windows of 100 ms, or one and a part."""
MOST_PUSHES = 2_000
LEAST_PUSHES = 5
LATENCY_SECONDS = 2.0
GAINS: Mapping[str, float] = MappingProxyType({"session": 20, "count": 20, "rolling": 20, "signal": 15})
GAIN = 6.0
GAIN_BUFFERS = (100, 1_000)
"""What pushes of these sizes must gain over the baseline of issue 27 (commit 33ed3a6)."""


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """What a run asks: queries, variants of the feed, buffers, threads; rounds; whether latency is measured."""

    rows: int = 2_000_000
    queries: Sequence[str] = tuple(QUERIES)
    variants: Sequence[str] = tuple(VARIANTS)
    buffers: Sequence[int] = BUFFERS
    threads: Sequence[int] = (1, 2)
    repeat: int = 3
    latency: bool = True
    quick: bool = False


@dataclass(frozen=True, slots=True)
class Latency:
    """Latency of one contender at a share of its own peak at this buffer size."""

    contender: str
    query: str
    buffer: int
    share: float
    rate: float
    seconds: Mapping[str, float]
    completed: int
    agrees: bool | None = None
    error: str = ""


@dataclass(slots=True)
class Report:
    """Everything that one run found: a case for each query, variant and buffer, and latencies."""

    cases: list[Case] = field(default_factory=list)
    latencies: list[Latency] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)


def run_live(options: LiveOptions, workers: Sequence[Worker], progress: Progress) -> Report:
    """Measure throughput at all points, then latency over uniform keys."""
    report = Report()
    add_throughput(report, options, workers, progress)
    if options.latency:
        report.latencies += latencies(report.cases, options, workers, progress)
    return report


def add_throughput(
    report: Report, options: LiveOptions, workers: Sequence[Worker], progress: Progress
) -> None:
    """Measure throughput at all points."""
    for variant in options.variants:
        for query in options.queries:
            for buffer in options.buffers:
                progress(f"{query}, {variant}, buffers of {buffer:,}")
                report.cases.append(throughput_case(query, variant, buffer, options, workers))


def sized(feed: Feed, buffer: int, options: LiveOptions) -> Feed:
    """Give a feed as many rows as a point over these buffers needs, and may have."""
    least = QUICK_ROWS if options.quick else LEAST_ROWS
    rows = max(least, LEAST_PUSHES * buffer, min(MOST_PUSHES * buffer, options.rows))
    return replace(feed, rows=rows)


def contenders_of(point: Point, options: LiveOptions, workers: Sequence[Worker]) -> Iterator[Contender]:
    """Yield every build with every number of threads and every way to push."""
    for worker in workers:
        for threads in options.threads:
            for way in worker.ways:
                yield Contender(worker, replace(point, threads=threads, way=way))


@dataclass(frozen=True, slots=True)
class Contender:
    """A build that is asked for a point."""

    worker: Worker
    point: Point

    @property
    def name(self) -> str:
        way = "" if self.point.way == PUSH else f" {self.point.way}"
        return f"{self.worker.build.name}{way} {self.point.threads}t"


def throughput_case(
    query: str, variant: str, buffer: int, options: LiveOptions, workers: Sequence[Worker]
) -> Case:
    """Measure one point with every contender, in turns, forwards and backwards."""
    feed = sized(VARIANTS[variant], buffer, options)
    contenders = list(contenders_of(Point(query, feed, buffer), options, workers))
    outcomes = {
        contender.name: Outcome(contender.name, PENSTOCK_GROUP, contender.point.threads)
        for contender in contenders
    }
    for turn in range(options.repeat):
        for contender in contenders if turn % 2 == 0 else reversed(contenders):
            outcome = outcomes[contender.name]
            if not outcome.error:
                note(outcome, contender.worker.measure(contender.point))
    found = tuple(outcomes.values())
    sweep = f"{query}, {variant}"
    figures = tuple(gains(query, buffer, found, options.threads, workers))
    return Case(f"{buffer:,}", feed.rows, feed.keys, found, figures, sweep, buffer)


def note(outcome: Outcome, found: Found) -> None:
    """Add what a contender found to what it did before; one wrong answer makes the outcome wrong."""
    if found.error:
        outcome.error = found.error
        return
    outcome.rows = found.rows
    outcome.seconds.append(found.seconds)
    outcome.cpu_seconds.append(found.cpu_seconds)
    outcome.agrees = bool(found.agrees) and outcome.agrees is not False


def gains(
    query: str, buffer: int, outcomes: Sequence[Outcome], threads: Sequence[int], workers: Sequence[Worker]
) -> Iterator[Figure]:
    """Compare the code at hand with the baseline: by the clock, and by processor time."""
    by_name = {outcome.name: outcome for outcome in outcomes}
    wanted = GAINS.get(query, GAIN) if buffer in GAIN_BUFFERS else None
    for worker in workers[1:]:
        for count in threads:
            ours, theirs = by_name[f"{CURRENT} {count}t"], by_name[f"{worker.build.name} {count}t"]
            title = f"x {worker.build.name}, {count}t"
            yield Figure(title, ratio(theirs.best, ours.best), wanted if count == 1 else None)
            yield Figure(f"{title}, processor time", ratio(theirs.best_cpu, ours.best_cpu))


# --- latency ------------------------------------------------------------------------------------------------


def latencies(
    cases: Sequence[Case], options: LiveOptions, workers: Sequence[Worker], progress: Progress
) -> Iterator[Latency]:
    """Measure each contender at shares of its own peak, over uniform keys."""
    peaks = {(case.sweep, case.point, o.name): o for case in cases for o in case.outcomes}
    for query in options.queries:
        for buffer in options.buffers:
            point = Point(query, Feed(), buffer)
            for contender in contenders_of(point, options, workers):
                peak = peaks.get((f"{query}, uniform", buffer, contender.name))
                if peak is not None and peak.best is not None and peak.rows:
                    progress(f"latency: {query}, buffers of {buffer:,}, {contender.name}")
                    yield from latency_shares(contender, peak.rows / peak.best, options)


def latency_shares(contender: Contender, peak: float, options: LiveOptions) -> Iterator[Latency]:
    """Measure a contender at each share of its peak, in rows a second."""
    for share in SHARES:
        rate = peak * share
        point = replace(contender.point, feed=latency_feed(contender.point, rate, options), rate=rate)
        found = contender.worker.measure(point)
        yield Latency(
            contender.name,
            point.query,
            point.buffer,
            share,
            rate,
            found.latency,
            found.completed,
            found.agrees,
            found.error,
        )


def latency_feed(point: Point, rate: float, options: LiveOptions) -> Feed:
    """Give a feed as many rows as an open loop of some seconds sends, within the bounds of a point."""
    most = sized(point.feed, point.buffer, options).rows
    least = max(QUICK_ROWS, LEAST_PUSHES * point.buffer)
    return replace(point.feed, rows=min(max(int(rate * LATENCY_SECONDS), least), max(most, least)))
