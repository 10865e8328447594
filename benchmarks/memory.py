"""Measure the memory a query needs beyond its input and output.

Taken in a fresh interpreter: a first run compiles the kernel and starts the threads, then the kernel's
own high-water mark is reset, so that what is left is the tables of the second run. Linux only.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import penstock as pk
from benchmarks.contenders import penstock_query
from benchmarks.figures import Figure
from benchmarks.fresh import fresh
from benchmarks.workloads import STEP_US, VIEW, YsbKeyed, ysb_keyed

SPEC = YsbKeyed(rows=10_000_000, keys=1_000_000)
WINDOW_ROWS = 10_000_000 // STEP_US
STATE_BYTES = 16
"""An exact sum of 64-bit integers takes 128 bits."""
THREADS = 2


def memory_figures() -> tuple[Figure, ...]:
    """Working memory against panes x keys x state, per thread; no value where it cannot be taken."""
    output = fresh(["-m", "benchmarks.memory"])
    found = json.loads(output) if output else {}
    return (
        Figure("working memory / (panes x keys x state) per thread", found.get("ratio"), 2.0, at_least=False),
        Figure("working memory", found.get("working_mb"), unit="MB"),
    )


def probe() -> dict[str, float]:
    """Run the query twice and look at the second run's high-water mark."""
    table = ysb_keyed(SPEC)
    engine = pk.Engine(threads=THREADS)
    penstock_query(table.slice(0, 100_000), VIEW).collect(engine=engine)
    before = reset_peak()
    answer = penstock_query(table, VIEW).collect(engine=engine)
    working = status_bytes("VmHWM") - before - answer.nbytes
    panes = SPEC.rows // WINDOW_ROWS + 1
    return {
        "working_mb": working / 1e6,
        "ratio": working / (panes * SPEC.keys * STATE_BYTES * THREADS),
    }


def reset_peak() -> int:
    """Bring the high-water mark down to what is resident now, and give that."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return status_bytes("VmRSS")


def status_bytes(field: str) -> int:
    """Read one size from `/proc/self/status`."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    sizes = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(next(sizes)) * 1024


if __name__ == "__main__":
    sys.stdout.write(json.dumps(probe()))
