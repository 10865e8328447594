"""The memory of a Spark task: the peak that `explain("spark")` predicts beside the one that a process reaches.

    python -m benchmarks.scale.task_memory --rows 8_000_000

Each query runs as one task, in a process of its own, over one file in random order in which one key has nine rows of ten: the worst
that a task gets. Results are dropped as they come, as by Spark.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as pk
from penstock.api.execute import bind_all
from penstock.spark.planning import planned
from penstock.spark.slices import Neighbours
from penstock.spark.task_memory import UNSET, TaskMemory
from penstock.spark.tasks import run_task, work_on_part

ROWS = 8_000_000
GROUP_ROWS = 500_000
COMMAND = (sys.executable, "-m", "benchmarks.scale.task_memory")
BOUND = 0.3  # the largest error of a prediction

QUERIES: dict[str, Callable[[pk.Stream], pk.Stream]] = {
    "sums of windows by key": lambda s: s.window(10_000, by="k").agg(s=pk.sum("v")),
    "medians of windows": lambda s: s.window(10_000).agg(m=pk.median("v")),
    "the last 10 rows by key": lambda s: s.rolling(pk.rows(10), by="k").agg(s=pk.sum("v")),
    "look-back by key": lambda s: s.rolling(1_000, by="k").agg(s=pk.sum("v")),
    "sessions by key": lambda s: s.window(pk.session(50), by="k").agg(n=pk.count()),
    "signal without keys": lambda s: (s.signal("v").rolling(200).mean() - s.signal("v").rolling(500).mean()).to_stream(
        "m"
    ),
}  # fmt: skip


def write(path: Path, rows: int) -> None:
    """Write times in random order, with one frequent key."""
    random = np.random.default_rng(1)
    keys = np.where(random.random(rows) < 0.9, 0, random.integers(1, 1_000, rows))
    values = random.integers(0, 1_000, rows)
    pq.write_table(
        pa.table({"t": random.permutation(rows), "k": keys, "v": values}), path, row_group_size=GROUP_ROWS
    )


def measure(path: str, name: str, memory: TaskMemory) -> dict[str, int]:
    """Run a query as one task in this process, and return the predicted peak and the one reached."""
    import pyspark.sql  # noqa: F401, PLC0415 - part of what a worker holds

    query = QUERIES[name](pk.scan(path, time="t", name="events"))
    physical = planned(query.compiled(), bind_all(query, None, {}), "one", 1)
    need = physical.need(memory)
    assert need is not None
    work = run_task(query.compiled(), (), memory, "UTC")
    (part,) = physical.parts
    rows = sum(batch.num_rows for batch in work_on_part(work, part, Neighbours((), 0)))
    return {
        "results": rows,
        "predicted": need.peak,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> int:
    """Print a table of all queries; return 1 if a prediction is off by more than BOUND."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--memory", type=int, default=UNSET, help="the budget of the task, in bytes")
    parser.add_argument("--only", default="")
    parser.add_argument("--one", nargs=2, metavar=("PATH", "QUERY"), help="measure in this process")
    given = parser.parse_args()
    if given.one:
        path, name = given.one
        sys.stdout.write(json.dumps(measure(path, name, TaskMemory(given.memory))) + "\n")
        return 0
    off = 0
    with tempfile.TemporaryDirectory(prefix="penstock-memory-") as folder:
        file = Path(folder, "events.parquet")
        write(file, given.rows)
        sys.stdout.write("| query | predicted | reached | predicted / reached |\n|---|---|---|---|\n")
        for name in (name for name in QUERIES if given.only in name):
            command = [*COMMAND, "--memory", str(given.memory), "--one", str(file), name]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            ratio = found["predicted"] / found["peak"]
            off += abs(ratio - 1) > BOUND
            sizes = " | ".join(f"{found[what] / 1e6:,.0f} MB" for what in ("predicted", "peak"))
            sys.stdout.write(f"| {name} | {sizes} | {ratio:.2f} |\n")
            sys.stdout.flush()
    return int(off > 0)


if __name__ == "__main__":
    sys.exit(main())
