"""Run a streaming query over files that are there already, and take its times batch by batch."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.streaming.processors import tree_seconds
from penstock.spark.streaming.frame import OBSERVATION


@dataclass(slots=True)
class Batches:
    """A sink that keeps what every batch gave, when it was done, and how much work all processes had done by then."""

    tables: list[pa.Table] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)
    work: list[float] = field(default_factory=list)

    def __call__(self, frame: Any, number: int) -> None:
        del number
        self.tables.append(frame.toArrow())
        self.clock.append(time.perf_counter())
        self.work.append(tree_seconds())


@dataclass(frozen=True, slots=True)
class Ran:
    """A run: seconds by the clock and of processors that its last batches with data took, those that count.

    `durations` are those of all batches with data, in seconds; `state` is the largest state that shards had.
    """

    seconds: float
    processors: float
    answer: pa.Table
    durations: Sequence[float]
    state: int


def run_stream(frame: Any, batches: int, first: int = 1) -> Ran:
    """Run a query that has data for so many batches, to its end; the first ones do not count."""
    sink = Batches()
    with tempfile.TemporaryDirectory(prefix="penstock-stream-") as folder:
        writer = frame.writeStream.option("checkpointLocation", str(Path(folder) / "checkpoint"))
        started = writer.foreachBatch(sink).trigger(availableNow=True).start()
        started.awaitTermination()
        progress = started.recentProgress[:batches]
    last = batches - 1
    return Ran(
        sink.clock[last] - sink.clock[first - 1],
        sink.work[last] - sink.work[first - 1],
        pa.concat_tables(sink.tables),
        [report.batchDuration / 1000 for report in progress],
        max((_state(value) for value in progress), default=0),
    )


def _state(progress: Any) -> int:
    rows = (row for name, row in progress.observedMetrics.items() if name.startswith(OBSERVATION))
    return max((int(row.state_bytes or 0) for row in rows), default=0)
