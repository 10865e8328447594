"""Measure what a user waits for first: the import, and compiling the first query.

Each figure is taken in a fresh interpreter, with the kernel cache on disk turned off.
"""

from __future__ import annotations

import json
import sys
import time

import pyarrow as pa

import penstock as pk
from penstock.bench.figures import Figure
from penstock.bench.fresh import fresh
from penstock.codegen import target

TRIES = 3
DECLARE = "import penstock as pk; pk.col('x') + 1"


def startup_figures() -> tuple[Figure, ...]:
    """Give the figures of starting up; a failing probe gives figures without a value."""
    bare = fresh_seconds("pass")
    return (
        Figure("import penstock", beyond(bare, "import penstock"), 0.2, at_least=False, unit="s"),
        Figure("import penstock and declare a column", beyond(bare, DECLARE), unit="s"),
        Figure("compile the first small query", first_result_ms(), 60, at_least=False, unit="ms"),
    )


def beyond(bare: float | None, statement: str) -> float | None:
    """How much longer an interpreter takes with a statement than without."""
    seconds = fresh_seconds(statement)
    return None if seconds is None or bare is None else max(0.0, seconds - bare)


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
