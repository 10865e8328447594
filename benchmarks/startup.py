"""Measure what a user waits for first: the import, and compiling the first query.

Each figure is taken in a fresh interpreter, with the kernel cache on disk turned off.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import penstock as pk
from benchmarks.figures import Figure
from benchmarks.fresh import fresh

TRIES = 3
PROBES = 7  # what is asked of them is milliseconds: among three, neighbours of the machine could disturb all
DECLARE = "import penstock as pk; pk.col('x') + 1"


def startup_figures() -> tuple[Figure, ...]:
    """Give the figures of starting up; a failing probe gives figures without a value."""
    bare, found = fresh_seconds("pass"), probes()
    return (
        Figure("import penstock", beyond(bare, "import penstock"), 0.2, at_least=False, unit="s"),
        Figure("import penstock and declare a column", beyond(bare, DECLARE), unit="s"),
        Figure("first result of all (modules, LLVM, compiling)", least(found, "load_ms"), unit="ms"),
        Figure("compile a small query", least(found, "compile_ms"), 60, at_least=False, unit="ms"),
        Figure("the same query again", least(found, "warm_ms"), unit="ms"),
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


def probes() -> list[dict[str, float]]:
    """Measure the first result in a few fresh interpreters."""
    outputs = [fresh(["-m", "benchmarks.startup"]) for _ in range(PROBES)]
    return [json.loads(output) for output in outputs if output]


def least(found: list[dict[str, float]], name: str) -> float | None:
    """The least value of one measure; None if no probe succeeded."""
    return min((run[name] for run in found), default=None)


def probe() -> dict[str, float]:
    """Time a first query, which loads LLVM and all modules that the other needs, then that other one, then it again.

    The other query shares no kernel with the first, so its first run less its second is compiling.
    """
    table = pa.table({"t": pa.array([1, 2, 3]), "k": pa.array([1, 2, 1]), "v": pa.array([1.0, 2.0, 3.0])})
    load = seconds_of(lambda: first_query(table))
    first, second = (seconds_of(lambda: small_query(table)) for _ in range(2))
    return {"load_ms": load * 1e3, "compile_ms": (first - second) * 1e3, "warm_ms": second * 1e3}


def first_query(table: pa.Table) -> Any:
    """Do as much, to other columns, so that no module is left to load."""
    return pk.from_arrow(table, time="t").filter(pk.col("k") < 9).window(pk.tumbling(10)).agg(n=pk.max("k"))


def small_query(table: pa.Table) -> Any:
    """Filter, key, window and sum: the shape of most queries."""
    events = pk.from_arrow(table, time="t").filter(pk.col("v") > 0)
    return events.window(pk.tumbling(10), by="k").agg(s=pk.sum("v"))


def seconds_of(query: Callable[[], Any]) -> float:
    """Time a query from writing it to its result."""
    begin = time.perf_counter()
    query().collect()
    return time.perf_counter() - begin


if __name__ == "__main__":
    sys.stdout.write(json.dumps(probe()))
