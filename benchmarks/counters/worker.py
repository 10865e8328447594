"""One contender under callgrind: everything before the measured call runs uncounted, so that compiling and caches are warm."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import penstock as pk
from benchmarks.contenders import penstock_query
from benchmarks.peers import duckdb_contenders, limit_polars_threads, polars_contenders
from benchmarks.reference import Reference, declare
from benchmarks.workloads import VIEW, YsbKeyed, ysb_keyed

KEYS = 10_000


@dataclass(frozen=True, slots=True)
class Asked:
    """Which contender, over how many rows; the libraries that switch counting on and off, and hold the C++."""

    name: str
    rows: int
    switch: str
    reference: str


def runs(asked: Asked) -> Mapping[str, Callable[[], Callable[[], object]]]:
    """Return what prepares each contender."""
    table = ysb_keyed(YsbKeyed(asked.rows, KEYS)).combine_chunks()

    def penstock(adaptive: bool) -> Callable[[], object]:
        query, engine = penstock_query(table, VIEW), pk.Engine(threads=1, adaptive=adaptive)
        return lambda: query.collect(engine=engine)

    def by_hand() -> Callable[[], object]:
        reference = Reference(declare(ctypes.CDLL(asked.reference)), "")
        return lambda: reference.ysb_keyed(table, KEYS, 1)

    def polars() -> Callable[[], object]:
        limit_polars_threads(1)
        return polars_contenders(table, 1, VIEW)[1].run

    return {
        "Penstock": lambda: penstock(True),
        "Penstock, generic": lambda: penstock(False),
        "C++ by hand": by_hand,
        "Polars": polars,
        "DuckDB": lambda: duckdb_contenders(table, 1, VIEW)[-1].run,
    }


def main(asked: Asked) -> None:
    """Warm up uncounted, then count one call."""
    run, switch = runs(asked)[asked.name](), ctypes.CDLL(asked.switch)
    for _ in range(3):
        run()
    switch.start()
    run()
    switch.stop()


if __name__ == "__main__":
    given = sys.argv[1:]
    main(Asked(given[0], int(given[1]), given[2], given[3]))
