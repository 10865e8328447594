"""Kernels that put rows into partitions, interpreted and compiled."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.algorithms.sort import kernels
from penstock.algorithms.sort.kernels import fill_many_partitions, fill_partitions
from penstock.algorithms.sorted_partitions import partitions as at_run_time
from penstock.loop.nodes import F64, I64, Kernel
from tests.unit.algorithms.running import run

COLUMNS = (I64, F64)


def filled(kernel: Kernel, partitions: np.ndarray, lo: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Carry row numbers, and halves of them, of the rows from `lo` on."""
    rows, groups = len(partitions), (int(partitions.max()) >> kernels.GROUP_BITS) + 1
    counts = np.bincount(partitions[lo:], minlength=int(partitions.max()) + 1)
    given = {"partitions": partitions, "places": np.cumsum(counts) - counts, "lo": lo, "hi": rows}
    given |= {"in": np.arange(rows), "in.1": np.arange(rows) / 2}
    given |= {"out": np.zeros(rows, np.int64), "out.1": np.zeros(rows)}
    if kernel.name == "fill_many_partitions":
        given |= {
            "held": np.zeros(rows, np.int64),
            "held.1": np.zeros(rows, np.int64),
            "held.2": np.zeros(rows),
        }
        given |= {"groups": groups, "ends": np.zeros(groups, np.int64)}
    _, memory = run(kernel, given)
    return memory["out"], memory["out.1"]


@pytest.mark.parametrize("chunk", [1, 7, 64, 1 << 16])
@pytest.mark.parametrize("lo", [0, 5])
def test_rows_by_way_of_groups_lie_as_those_that_go_at_once(
    chunk: int, lo: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "PARTITION_CHUNK", chunk)
    partitions = np.random.default_rng(chunk).integers(0, 300, 200)
    order = lo + np.argsort(partitions[lo:], kind="stable")
    for kernel in (fill_partitions(COLUMNS), fill_many_partitions(COLUMNS)):
        numbers, halves = filled(kernel, partitions, lo)
        assert numbers[: len(order)].tolist() == order.tolist()
        assert halves[: len(order)].tolist() == (order / 2).tolist()


@pytest.mark.parametrize("threads", [1, 2])
def test_sessions_of_many_keys_are_those_of_few_keys_at_a_time(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(3)
    table = pa.table(
        {"t": np.arange(300_000), "k": random.integers(0, 9_000, 300_000), "v": random.random(300_000)}
    )
    query = pk.from_arrow(table, time="t").window(pk.session(20_000), by="k").agg(s=pk.sum("v"), n=pk.count())
    grouped = query.collect(engine=pk.Engine(threads=threads))
    monkeypatch.setattr(at_run_time, "FEWEST_LINES", 1 << 40)
    assert query.collect(engine=pk.Engine(threads=threads)).equals(grouped)
