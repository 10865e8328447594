"""The model of a job whose lake is in an object store: latency, rates of connections and nodes, and the limit of requests.

    reading  = groups * requests * latency / connections + bytes / min(connections * rate, node rate / cores)
    task     = latency + max(computing, reading)             rows are read ahead while others are computed
    job      = start + max(tasks in turn on all cores, requests of all tasks / request rate)

Run `python -m benchmarks.scale.object_store` for 100 TB on 1,000 executors.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.scale.model import Model
from benchmarks.scale.plan import cut_by_time
from benchmarks.scale.simulate import Cut, Lake, fragments, makespan
from penstock.sources.fragment import Fragment

REQUESTS = 2  # for a row group: adjacent columns are one range (`tests/storage`)


@dataclass(frozen=True, slots=True)
class Store:
    """An object store as its documentation describes it. Rates are in bytes a second; `requests` is a number a second."""

    latency: float = 0.030
    connection_rate: float = 80e6
    connections: int = 8
    node_rate: float = 1.5e9  # 12.5 Gbit/s
    requests: float = 5_500.0  # of one prefix
    prefixes: int = 16

    def reading(self, groups: float, size: float, cores: int) -> float:
        """Predict how long one task reads, while every core of its node does."""
        waiting = groups * REQUESTS * self.latency / self.connections
        return waiting + size / min(self.connections * self.connection_rate, self.node_rate / cores)

    def task(self, computing: float, groups: float, size: float, cores: int) -> float:
        """Predict one task, which reads ahead.

        >>> round(Store(latency=0.1, connections=1, connection_rate=1e6).task(0.5, 1, 2e6, 4), 2)
        2.3
        """
        return self.latency + max(computing, self.reading(groups, size, cores))

    @property
    def request_rate(self) -> float:
        return self.requests * self.prefixes


@dataclass(frozen=True, slots=True)
class StoreOutcome:
    """A simulated job: seconds with the files at hand and in the store, and what bounds the latter."""

    tasks: int
    requests: int
    at_hand: float
    seconds: float
    bound: str


def simulate_store(
    parts: Sequence[Fragment],
    cut: Cut,
    model: Model,
    store: Store,
    tasks: int,
    executors: int,
    cores: int,
    row_bytes: float,
    results_per_row: float = 0.0,
) -> StoreOutcome:
    """Plan a job and run it on executors of some cores each; `row_bytes` are those of the columns that are read."""
    plan = cut(parts, tasks)
    rows = np.array([sum(fragment.rows or 0 for fragment in task) for task in plan], float)
    groups = np.array([len(task) for task in plan], float)
    luck = np.random.default_rng(1).lognormal(0.0, 0.1, len(rows))
    computing = np.array([model.task_seconds(row, row * results_per_row) for row in rows])
    remote = [
        store.task(own, many, row * row_bytes, cores)
        for own, many, row in zip(computing, groups, rows, strict=True)
    ]
    requests = int(groups.sum()) * REQUESTS
    near, far = (makespan(took * luck, executors * cores) for took in (computing, np.array(remote)))
    asking = requests / store.request_rate
    reading = np.array(remote).sum() > 1.1 * computing.sum()
    bound = "requests" if asking > far else "reading" if reading else "computing"
    return StoreOutcome(len(rows), requests, model.start + near, model.start + max(far, asking), bound)


# The model of Spark that docs/scale.md gives for a quiet machine, and 100 TB in row groups of 128 MB.
QUIET = Model(0.14, 22.7e-9, 0.0, 141e-9, 0.025)
GROUPS, GROUP_ROWS, ROW_BYTES = 745_058, 4_000_000, 32.0
SCENES = {
    "as documented": Store(),
    "100 ms of latency": Store(latency=0.100),
    "20 MB/s a connection": Store(connection_rate=20e6),
    "nodes of 5 Gbit/s": Store(node_rate=0.625e9),
    "one prefix": Store(prefixes=1),
    "one connection a task": Store(connections=1),
}


def main() -> None:
    """Print the table of docs/scale.md."""
    parts = fragments(Lake(GROUPS, GROUP_ROWS))
    planned = cut_by_time(parts, 12_000)
    for read, share in (("all columns", 1.0), ("a quarter of the bytes", 0.25)):
        for name, store in SCENES.items():
            found = simulate_store(
                parts, lambda *_: planned, QUIET, replace(store), 12_000, 1_000, 4, ROW_BYTES * share
            )
            line = f"| {name}, {read} | {found.requests:,} | {found.at_hand:.0f} s | {found.seconds:.0f} s | {found.bound} |"
            sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
