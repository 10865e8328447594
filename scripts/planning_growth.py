"""Measure how planning grows with columns, aggregates, predicates, verbs and shared parts of a query.

Each case runs in a process of its own and prints its processor seconds, without imports, and its peak memory:

    python scripts/planning_growth.py [limit in seconds] [case …]
"""

from __future__ import annotations

import operator
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import reduce
from tempfile import NamedTemporaryFile
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as pk


def table(columns: int, kind: pa.DataType | None = None) -> pa.Table:
    values = {f"c{i}": pa.array([row % 7 for row in range(100)], kind or pa.int64()) for i in range(columns)}
    return pa.table({"t": range(100), **values})


def rows(columns: int = 3, kind: pa.DataType | None = None) -> pk.Stream:
    return pk.from_arrow(table(columns, kind), time="t")


def in_file(columns: int, kind: pa.DataType | None = None) -> pk.Stream:
    with NamedTemporaryFile(suffix=".parquet", delete=False) as file:
        pq.write_table(table(columns, kind), file.name)
    return pk.scan(file.name, time="t")


def doubled(times: int, first: Any, combine: Callable[[Any, Any], Any] = operator.add) -> Any:
    return reduce(lambda each, _: combine(each, each), range(times), first)


def sums(stream: pk.Stream, n: int, **window: Any) -> pk.Stream:
    return stream.window(10, **window).agg(**{f"a{i}": pk.sum(f"c{i}") for i in range(n)})


def nested(n: int) -> pk.Expr:
    return reduce(lambda e, i: pk.when(e > i).then(e + 1).otherwise(e - 1), range(n), pk.col("c0") + 0)


def ctes(n: int) -> pk.Stream:
    parts = ["a0 as (select t, c0 from e)"]
    parts += [
        f"a{i} as (select t, c0 from a{i - 1} union all select t, c0 from a{i - 1})" for i in range(1, n + 1)
    ]
    return pk.sql(f"with {', '.join(parts)} select count(*) as n from a{n} [range 10 slide 10]", e=rows())


def chained(n: int, verb: Callable[[pk.Stream, int], pk.Stream]) -> pk.Stream:
    return reduce(verb, range(n), rows())


Ran = Callable[[int], object]
C0 = pk.col("c0").cast("float64")
CASES: dict[str, tuple[Ran, tuple[int, ...]]] = {
    "filter of columns": (lambda n: rows(n).filter(pk.col("c1") > 3).collect(), (2_000, 10_000)),
    "filter of a file": (lambda n: in_file(n).filter(pk.col("c1") > 3).collect(), (2_000, 10_000)),
    "projections": (lambda n: rows(n).select(**{f"d{i}": pk.col(f"c{i}") * 2 for i in range(n)}).collect(), (1_000,)),
    "sums": (lambda n: sums(rows(n, pa.float64()), n).collect(), (250, 1_000)),
    "sums by key": (lambda n: sums(rows(n), n, by="c0").collect(), (250, 1_000)),
    "sliding sums": (lambda n: sums(rows(n, pa.float64()), n, every=5).collect(), (300,)),
    "means of a file": (
        lambda n: in_file(2_000, pa.float64()).window(10).agg(**{f"a{i}": pk.mean(f"c{i}") for i in range(n)}).collect(),
        (300,),
    ),
    "doubled CTEs": (lambda n: str(ctes(n).explain()), (8, 20)),
    "doubled unions": (lambda n: str(doubled(n, rows(), pk.Stream.union).explain()), (8, 20)),
    "doubled sum": (lambda n: rows().select(x=doubled(n, C0)).collect(), (12, 30)),
    "doubled product": (lambda n: rows().select(x=doubled(n, C0, operator.mul)).collect(), (12, 30)),
    "doubled signal": (lambda n: doubled(n, rows().signal("c0")).collect(), (8, 20)),
    "plan as text": (lambda n: doubled(n, rows(), pk.Stream.union).to_json(), (12, 20)),
    "nested when": (lambda n: rows().select(x=nested(n)).collect(), (6, 20)),
    "or": (lambda n: rows().filter(reduce(operator.or_, [pk.col("c0") == i for i in range(n)])).collect(), (90, 500)),
    "is_in": (lambda n: rows().filter(pk.col("c0").is_in(range(3, n))).collect(), (5_000,)),
    "filters": (lambda n: chained(n, lambda s, i: s.filter(pk.col("c0") != i + 5)).collect(), (100, 1_000)),
    "with_columns": (lambda n: chained(n, lambda s, _: s.with_columns(c0=pk.col("c0") + 1)).collect(), (100, 500)),
    "union of many": (lambda n: rows().union(*[rows() for _ in range(n)]).window(10).agg(n=pk.count()).collect(), (500,)),
}  # fmt: skip


def one(name: str, size: int) -> None:
    """Run one case, and print what it takes; a query before it loads modules and LLVM."""
    rows().filter(pk.col("c0") > 1).collect()
    started = time.process_time()
    try:
        CASES[name][0](size)
        outcome = ""
    except (pk.PenstockError, RecursionError) as error:
        outcome = f"{type(error).__name__}: {error}"[:80]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{time.process_time() - started:7.2f} s {memory:6.0f} MB  {outcome}")


def main(limit: float, chosen: list[str]) -> None:
    """Run each size of each case in a process of its own, for at most `limit` seconds."""
    for name in chosen or CASES:
        for size in CASES[name][1]:
            command = [sys.executable, __file__, "--one", name, str(size)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
                result = done.stdout.strip() or done.stderr.strip()[-100:]
            except subprocess.TimeoutExpired:
                result = f"> {limit:g} s"
            print(f"{name:20s}{size:7d} {result}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2], int(sys.argv[3]))
    else:
        main(float(sys.argv[1]) if sys.argv[1:] else 60, sys.argv[2:])
