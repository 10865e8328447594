"""Measure what a user waits for first: the import, and compiling the first query.

Each figure is taken in a fresh interpreter, with the kernel cache on disk turned off.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pyarrow as pa

import penstock as pk
from penstock.bench.figures import Figure
from penstock.codegen import target

TRIES = 3
NO_DISK_CACHE = {"PENSTOCK_CACHE_DIR": ""}


def startup_figures() -> tuple[Figure, ...]:
    """Give the figures of starting up; a failing probe gives figures without a value."""
    imports = fresh_seconds("import penstock"), fresh_seconds("pass")
    known = None if None in imports else imports[0] - imports[1]  # type: ignore[operator]
    compile_ms = first_result_ms()
    return (
        Figure("import penstock", known, 0.2, at_least=False, unit="s"),
        Figure("compile the first small query", compile_ms, 60, at_least=False, unit="ms"),
    )


def fresh(arguments: list[str]) -> str | None:
    """Run a fresh interpreter that finds the same packages; None if it fails."""
    path = os.pathsep.join(part for part in sys.path if part)
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | NO_DISK_CACHE | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout if done.returncode == 0 else None


def fresh_seconds(statement: str) -> float | None:
    """Time a fresh interpreter running one statement, as it sees it from outside."""
    times: list[float] = []
    for _ in range(TRIES):
        begin = time.perf_counter()
        if fresh(["-c", statement]) is None:
            return None
        times.append(time.perf_counter() - begin)
    return min(times)


def first_result_ms() -> float | None:
    """Compile time of the first result: the best of a few fresh interpreters."""
    outputs = [fresh(["-m", "penstock.bench.startup"]) for _ in range(TRIES)]
    found = [json.loads(output)["compile_ms"] for output in outputs if output]
    return min(found, default=None)


def probe() -> dict[str, float]:
    """Time the first and second `collect` of a small query, LLVM loaded before: the rest is compiling."""
    target.host()  # loads LLVM
    table = pa.table({"t": pa.array([1, 2, 3]), "k": pa.array([1, 2, 1]), "v": pa.array([1.0, 2.0, 3.0])})

    def small() -> float:
        begin = time.perf_counter()
        events = pk.from_arrow(table, time="t")
        events.filter(pk.col("v") > 0).window(pk.tumbling(10), by="k").agg(s=pk.sum("v")).collect()
        return time.perf_counter() - begin

    first, second = small(), small()
    return {"compile_ms": (first - second) * 1e3, "first_ms": first * 1e3, "warm_ms": second * 1e3}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(probe()))
