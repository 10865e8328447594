"""Let queries run for hours while keys come and go: memory, state and open files must stay flat.

    python -m tests.fault.soak --minutes 120

Two thirds of the time on Spark, files appearing every second; one in this process, batches pushed as fast as they are taken.
With `--slow 5` everything happens a fifth as often, beside other work. In the end all rows must have been counted, once.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa

import penstock as pk
from tests.fault.processes import below
from tests.spark.streaming.feed import Feed

ROWS = 20_000
KEYS = 500  # at a time; after a minute of the data's time all are new
SECOND = 1_000_000
HEAP = "512m"
# From the second quarter of a run to its last: what is warm stays warm, what leaks grows.
LIMITS = {"memory": 1.25, "jvm": 1.4, "state": 1.5, "files": 1.2}
SLACK = {"memory": 64e6, "jvm": 256e6, "state": 100e3, "files": 20.0}


@dataclass
class Samples:
    """What was measured, by name."""

    say: Callable[[str], None]
    found: dict[str, list[float]] = field(default_factory=dict)

    def add(self, **measured: float) -> None:
        for name, value in measured.items():
            self.found.setdefault(name, []).append(value)
        self.say("  ".join(f"{name} {value:,.0f}" for name, value in measured.items()))

    def verdict(self, where: str) -> None:
        """Compare quarters."""
        for name, values in self.found.items():
            quarter = max(len(values) // 4, 1)
            early, late = median(values[quarter : 2 * quarter] or values), median(values[-quarter:])
            self.say(f"{where}: {name} {early:,.0f} -> {late:,.0f} ({len(values)} samples)")
            allowed = early * LIMITS[name] + SLACK[name]
            assert late <= allowed, f"{where}: {name} grew from {early:,.0f} to {late:,.0f}"


def rows(number: int) -> pa.Table:
    """Make a second of events; keys drift, and each is gone for good after a minute."""
    random = np.random.default_rng(number)
    times = number * SECOND + np.sort(random.integers(0, SECOND, ROWS))
    first = number * KEYS // 60
    keys = random.integers(first, first + KEYS, ROWS)
    return pa.table(
        {"ts": pa.array(times).cast(pa.timestamp("us", "UTC")), "k": keys, "v": random.integers(0, 100, ROWS)}
    )


def asked(events: Any) -> pk.Stream:
    made: pk.Stream = events.window(pk.sliding("10s", every="5s"), by="k").agg(
        n=pk.count(), mid=pk.median("v"), total=pk.sum("v")
    )
    return made


def measured(pids: Sequence[int]) -> tuple[float, float]:
    """Tell how much memory processes hold, in bytes, and how many files they have open."""
    memory = files = 0
    for pid in pids:
        try:
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            memory += pages * os.sysconf("SC_PAGESIZE")
            files += len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - entries vanish while they are read
        except OSError:
            continue
    return float(memory), float(files)


def in_this_process(seconds: float, say: Callable[[str], None], slow: float = 0.0) -> None:
    """Push batch after batch."""
    samples, number, counted = Samples(say), 0, 0
    schema = rows(0).schema
    end = time.monotonic() + seconds
    every = seconds / 80
    due = time.monotonic() + every
    with asked(pk.stream("events", schema, time="ts", lateness="1s")).open() as live:
        while time.monotonic() < end:
            for batch in rows(number).to_batches():
                counted += sum(sum(made["n"].to_pylist()) for made in live.push(batch))
            number += 1
            time.sleep(slow / 20)
            if time.monotonic() >= due:
                due += every
                memory, files = measured([os.getpid()])
                samples.add(memory=memory, state=len(live.state().to_bytes()), files=files)
        counted += sum(sum(made["n"].to_pylist()) for made in live.finish())
    assert counted == 2 * number * ROWS, (
        f"{counted} rows in windows, of {number * ROWS} rows in two windows each"
    )
    samples.verdict(f"in this process, {number * ROWS:,} rows")


def on_spark(seconds: float, say: Callable[[str], None], folder: Path, slow: float = 1.0) -> None:
    """Let files appear, and a streaming query read them."""
    spark = pk.spark_session("local[2]", memory=HEAP, config={"spark.sql.shuffle.partitions": 2})
    feed, stop, put = Feed(folder), threading.Event(), 0
    feed.put(0, rows(0))

    def feeding() -> None:
        nonlocal put
        while not stop.wait(slow):
            put += 1
            feed.put(put, rows(put))

    events = pk.scan_stream(folder / "input", time="ts", name="events", lateness="1s")
    writer = asked(events).to_spark(spark).writeStream.foreachBatch(pk.delta_sink(feed.table, "soak"))
    checked = writer.option("checkpointLocation", str(feed.checkpoint))
    query = checked.trigger(processingTime=f"{2 * slow} seconds").start()
    feeder = threading.Thread(target=feeding, daemon=True)
    feeder.start()
    samples, end = Samples(say), time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(min(seconds / 40, 30))
        _sample(samples, query)
    stop.set()
    feeder.join()
    query.processAllAvailable()
    query.stop()
    _check_table(feed, put)
    samples.verdict(f"on Spark, {(put + 1) * ROWS:,} rows")
    spark.stop()


def _sample(samples: Samples, query: Any) -> None:
    if query.exception() is not None:
        raise query.exception()
    progress = query.lastProgress
    if progress is None or not progress.observedMetrics:
        return
    alive = below(os.getpid())
    java = [process.pid for process in alive if "java" in process.command.split(" ")[0]]
    workers = [process.pid for process in alive if process.pid not in java]
    memory, files = measured([os.getpid(), *workers])
    heap, open_in_java = measured(java)
    state = next(iter(progress.observedMetrics.values())).state_bytes or 0
    samples.add(memory=memory, jvm=heap, state=float(state), files=files + open_in_java)


def _check_table(feed: Feed, last: int) -> None:
    """Every window that ended long ago must hold all rows of its time, once."""
    found = deltalake.DeltaTable(feed.table).to_pyarrow_table()
    ends = found["window_end"].cast(pa.int64()).to_numpy()
    counts = found["n"].to_numpy()
    for end in range(10, last - 60, 5):
        assert counts[ends == end * SECOND].sum() == 10 * ROWS, (
            f"rows are missing in the window that ends at {end} s"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--slow", type=float, default=0.0, help="so many seconds between two files")
    given = parser.parse_args(arguments)

    def say(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    in_this_process(given.minutes * 20, say, given.slow)
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as folder:
        on_spark(given.minutes * 40, say, Path(folder), given.slow or 1.0)
    say("flat")


if __name__ == "__main__":
    main()
