"""Monitor a running query: rate, lag, watermark, state, late and malformed rows, time per batch. Prints lines without a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

import penstock as pk
from penstock.cli.guard import CommandError
from penstock.cli.load import load_query
from penstock.cli.output import is_number
from penstock.plan.schema import sources_of
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME
from penstock.sources.side_output import put_next
from penstock.types.time import NANOSECONDS, Time

_EVERY = 1.0  # seconds between two samples
_STATE_SHARE = 0.05  # share of time for measuring the state


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One sample of the metrics. Counts are totals; `rate` covers the time since the previous sample."""

    counts: pk.Metrics
    rate: float
    watermark: str
    lag: str
    state_bytes: int | None
    batch_seconds: float

    def figures(self) -> dict[str, str]:
        """Return the displayed metrics by name, in order."""
        return {
            "rows/s": f"{self.rate:,.0f}",
            "lag": self.lag,
            "watermark": self.watermark,
            "state": "-" if self.state_bytes is None else _bytes(self.state_bytes),
            "late": f"{self.counts.late:,}",
            "bad": f"{self.counts.malformed:,}",
            "batch": f"{self.batch_seconds * 1000:,.1f} ms",
            **self._latencies(),
            **self._queue(),
            "read": f"{self.counts.read:,}",
            "results": f"{self.counts.emitted:,}",
        }

    def _latencies(self) -> dict[str, str]:
        """Return latencies from the arrival of rows to results, which Spark does not measure."""
        latency = self.counts.latency
        shares = {"p50": latency.p50, "p99": latency.p99} if latency.count else {}
        return {name: f"{seconds * 1000:,.1f} ms" for name, seconds in shares.items()}

    def _queue(self) -> dict[str, str]:
        """Return the rows that wait for a worker in the background, while there are any."""
        waiting = self.counts.queue_rows
        return {"queue": f"{waiting:,} rows"} if waiting else {}


@dataclass
class Watch:
    """Sample a run periodically. `now` is the monotonic clock, `wall` the wall clock."""

    run: Any
    clock: Time
    now: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    latest: pa.RecordBatch | None = None
    _seen: tuple[float, int] = field(init=False)
    _state: tuple[float, int | None] = field(default=(float("-inf"), None), init=False)

    def __post_init__(self) -> None:
        self._seen = self.now(), 0

    def snapshots(self, every: float = _EVERY) -> Iterator[tuple[Sequence[pa.RecordBatch], Snapshot | None]]:
        """Run, and yield the results of each batch, with a sample when one is due and one at the end."""
        took = 0.0
        begun = self.now()
        for made in self.run.pushes():
            ended = self.now()
            took = max(took, ended - begun) if made else took
            self.latest = next((batch for batch in reversed(made) if batch.num_rows), self.latest)
            due = ended - self._seen[0] >= every
            yield made, self._snapshot(took, ended) if due else None
            took = 0.0 if due else took
            begun = self.now()
        yield (), self._snapshot(took, self.now())

    def _snapshot(self, took: float, now: float) -> Snapshot:
        before, read = self._seen
        counts = self.run.metrics
        self._seen = now, counts.read
        rate = (counts.read - read) / (now - before) if now > before else 0.0
        mark = self.run.watermark
        text, lag = mark_and_lag(mark, self.clock, self.wall())
        return Snapshot(counts, rate, text, lag, self._state_bytes(now), took)

    def _state_bytes(self, now: float) -> int | None:
        """Measure the state, within a fixed share of the running time."""
        due, known = self._state
        if now < due:
            return known
        try:
            known = len(self.run.state().to_bytes())
        except pk.StateError:  # the run has ended
            known = None
        took = self.now() - now
        self._state = now + took / _STATE_SHARE, known
        return known


def mark_and_lag(mark: int | None, clock: Time, wall: float) -> tuple[str, str]:
    """Format a watermark and its lag behind the wall clock, where the two are comparable.

    >>> mark_and_lag(END_OF_TIME, Time("t", pa.int64(), None), 0.0)
    ('the end', '-')
    """
    if mark is None or mark == START_OF_TIME:
        return "-", "-"
    if mark == END_OF_TIME:
        return "the end", "-"
    if not pa.types.is_timestamp(clock.type):
        return f"{mark:,}", "-"
    seconds = mark * NANOSECONDS[clock.type.unit] / 1e9
    try:
        text = datetime.fromtimestamp(seconds, UTC).isoformat(" ", "milliseconds").removesuffix("+00:00")
    except (ValueError, OverflowError, OSError):
        text = f"{mark:,}"
    return text, _duration(wall - seconds)


def _duration(seconds: float) -> str:
    for size, unit in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "m")):
        if abs(seconds) >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.1f} s"


def _bytes(many: float) -> str:
    for unit in ("B", "kB", "MB"):
        if many < 1000:
            return f"{many:,.0f} {unit}" if unit == "B" else f"{many:,.1f} {unit}"
        many /= 1000
    return f"{many:,.1f} GB"


def as_line(snapshot: Snapshot) -> str:
    """Format a sample as one line.

    >>> as_line(Snapshot(pk.Metrics(read=5), 2.0, "7", "-", 1500, 0.002))
    'rows/s 2  lag -  watermark 7  state 1.5 kB  late 0  bad 0  batch 2.0 ms  read 5  results 0'
    """
    return "  ".join(f"{name} {value}" for name, value in snapshot.figures().items())


def as_view(snapshot: Snapshot, latest: pa.RecordBatch | None, limit: int) -> Group:
    """Render a sample and the last results."""
    view = Table(show_edge=False, pad_edge=False)
    figures = snapshot.figures()
    for name in figures:
        view.add_column(name, justify="right")
    view.add_row(*map(Text, figures.values()))
    if latest is None:
        return Group(view)
    results = Table(show_edge=False, pad_edge=False, title="latest results", title_justify="left")
    for column in latest.schema:
        results.add_column(Text(column.name), justify="right" if is_number(column.type) else "left")
    for row in latest.slice(max(latest.num_rows - limit, 0)).to_pylist():
        results.add_row(*(Text("null" if cell is None else str(cell)) for cell in row.values()))
    return Group(view, Text(), results)


def watch_query(
    target: str, flags: Sequence[str], output: Path | None, limit: int, threads: int | None
) -> None:
    """Run a query until its data ends, and display its metrics. `output` is a folder for results."""
    query = load_query(target, flags)
    run = query.run() if threads is None else query.run(engine=pk.Engine(threads=threads))
    watch = Watch(run, sources_of(query.plan)[0].time)
    show(watch, Console(), output, limit)


class Watched(Protocol):
    """An object with the latest results."""

    latest: pa.RecordBatch | None


def show(watch: Watch, console: Console, output: Path | None, limit: int) -> None:
    """Display samples until the run ends or is interrupted."""
    show_snapshots(watch.snapshots(), watch, console, output, limit)


def show_snapshots(
    snapshots: Iterable[tuple[Sequence[pa.RecordBatch], Snapshot | None]],
    watch: Watched,
    console: Console,
    output: Path | None,
    limit: int,
) -> None:
    """Display samples as they arrive, and write results to the output, if there is one."""
    live = Live(console=console, auto_refresh=False) if console.is_terminal else None
    context: AbstractContextManager[Any] = nullcontext() if live is None else live
    known = 0
    try:
        with context:
            for made, snapshot in snapshots:
                _kept(made, output)
                if snapshot is not None:
                    known = print_changes(snapshot.counts, known, console)
                if snapshot is not None and live is None:
                    console.print(as_line(snapshot), markup=False, highlight=False, soft_wrap=True)
                elif snapshot is not None and live is not None:
                    live.update(as_view(snapshot, watch.latest, limit), refresh=True)
    except KeyboardInterrupt:
        console.print("stopped", style="dim")


def print_changes(metrics: pk.Metrics, known: int, console: Console) -> int:
    """Print what the run has changed since `known` changes; return their number."""
    for change in metrics.adaptations[known:]:
        console.print(Text(str(change)), soft_wrap=True, style="dim")
    return len(metrics.adaptations)


def _kept(made: Sequence[pa.RecordBatch], output: Path | None) -> None:
    if made and output is not None:
        put_next(str(output), "results", pa.Table.from_batches(made))


# --- Monitor a query on Spark: the same metrics, from Spark's report of each batch.

_WAIT, _WAITS = 0.1, 100  # seconds, and number of attempts


@dataclass
class SparkWatch:
    """Sample a streaming query periodically. `heard` is the listener that sums its row counts."""

    query: Any
    heard: Any
    clock: Time
    now: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    latest: pa.RecordBatch | None = None
    _seen: tuple[float, int] = field(init=False)

    def __post_init__(self) -> None:
        self._seen = self.now(), 0

    def snapshots(self, every: float = 1.0) -> Iterator[tuple[Sequence[pa.RecordBatch], Snapshot | None]]:
        """Yield a sample every `every` seconds, and one at the end. An error of the query is raised."""
        while self.query.isActive:
            self.sleep(every)
            yield (), self.snapshot()
        problem = pk.streaming_problem(self.query)
        if problem is not None:
            raise problem
        self._hear_out()
        yield (), self.snapshot()

    def _hear_out(self) -> None:
        """Poll for the events of the last batches, which may arrive after the end."""
        for _ in range(_WAITS):
            if self.heard.over(str(self.query.id)):
                return
            self.sleep(_WAIT)

    def snapshot(self) -> Snapshot:
        """Take one sample."""
        found = self.heard.totals(str(self.query.id))
        names = ("read", "accepted", "late", "malformed", "filtered", "emitted", "batches", "partly_late")
        counts = pk.Metrics(**{name: found.get(name, 0) for name in names})
        (before, read), now = self._seen, self.now()
        self._seen = now, counts.read
        rate = (counts.read - read) / (now - before) if now > before else 0.0
        text, lag = mark_and_lag(found.get("watermark"), self.clock, self.wall())
        last = self.query.lastProgress
        took = 0.0 if last is None else last.batchDuration / 1000
        return Snapshot(counts, rate, text, lag, found.get("state_bytes"), took)


def watch_on_spark(
    target: str, flags: Sequence[str], output: Path | None, checkpoint: Path | None, once: bool
) -> None:
    """Run a query as a Spark stream, into a Delta table if there is an output, and display its metrics."""
    if checkpoint is None:
        raise CommandError("--spark needs --checkpoint FOLDER, where the stream goes on after a stop")
    query = load_query(target, flags)
    spark, heard = pk.spark_session(), pk.StreamingMetrics()
    spark.streams.addListener(heard)
    sink = _nowhere if output is None else pk.delta_sink(output, query_id=target)
    writer = query.to_spark(spark).writeStream.option("checkpointLocation", str(checkpoint))
    timed = writer.trigger(availableNow=True) if once else writer.trigger(processingTime="1 second")
    started = timed.foreachBatch(sink).start()
    try:
        watch = SparkWatch(started, heard, sources_of(query.plan)[0].time)
        show_snapshots(watch.snapshots(), watch, Console(), None, 0)
    finally:
        started.stop()


def _nowhere(frame: Any, batch: int) -> None:
    """Compute a batch, which updates the state, and discard it."""
    del batch
    frame.write.format("noop").mode("overwrite").save()
