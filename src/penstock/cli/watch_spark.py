"""Monitor a query on Spark: the same metrics, from Spark's report of each batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

import penstock as pk
from penstock.cli.guard import CommandError
from penstock.cli.load import load_query
from penstock.cli.watch import Snapshot, mark_and_lag, show_snapshots
from penstock.plan.schema import sources_of
from penstock.types.time import Time

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
