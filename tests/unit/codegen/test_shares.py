"""Kernels that go through shares of rows by themselves, on several threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.codegen.native import NativeKernel, compile_kernel
from penstock.codegen.shares import Rounds
from penstock.codegen.tiers import TRIAL, TieredKernel
from penstock.loop.build import KernelBuilder
from penstock.loop.interpret import Interpreted
from penstock.loop.nodes import I64, Kernel
from penstock.loop.shares import Shares


def visits() -> Kernel:
    """Counts how often each row is visited, and stops behind those that are marked, once."""
    k = KernelBuilder("visits")
    marks, out, lo, hi = k.buffer("marks", I64), k.buffer("out", I64), k.scalar("lo"), k.scalar("hi")
    with k.for_(lo, hi) as i:
        k.store(out, i, out[i] + 1)
        with k.if_(marks[i].ne(0)):
            k.store(marks, i, 0)
            k.ret(i + 1)
    k.ret(hi)
    return k.build()


NATIVE, INTERPRETED = compile_kernel(visits()), Interpreted(visits())


def go_through(
    call: NativeKernel | Interpreted | TieredKernel, rows: Shares, values: dict[str, object]
) -> int:
    """Do what workers do: help where it stops, until nothing is left."""
    seen = 0
    while rows.left:
        went = call.over(values, rows)  # type: ignore[arg-type]
        seen += went.rows
        if went.stop is not None:
            done, end = went.stop
            while done < end:
                done = call({**values, "lo": done, "hi": end})  # type: ignore[dict-item]
    return seen


@pytest.mark.parametrize("call", [NATIVE, INTERPRETED], ids=["native", "interpreted"])
@given(
    bounds=st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted),
    size=st.integers(1, 40),
    stops=st.sets(st.integers(0, 29)),
)
def test_every_row_is_visited_once_wherever_a_kernel_stops(
    call: NativeKernel | Interpreted, bounds: list[int], size: int, stops: set[int]
) -> None:
    begin, end = bounds
    marks = np.array([int(row in stops) for row in range(30)])
    out = np.zeros(30, np.int64)
    rows = Shares(begin, end, size)
    assert go_through(call, rows, {"marks": marks, "out": out}) == end - begin
    assert out.tolist() == [int(begin <= row < end) for row in range(30)]
    assert rows.left == 0 and call.over({"marks": marks, "out": out}, rows) == (0, None)


def test_threads_take_each_share_once_and_all_of_them() -> None:
    many = 1_000_003
    marks, out, rows = np.zeros(many, np.int64), np.zeros(many, np.int64), Shares(0, many, 101)
    seen: list[int] = []

    def work() -> None:
        seen.append(go_through(NATIVE, rows, {"marks": marks, "out": out}))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert (out == 1).all()
    assert sum(seen) == many


def test_threads_that_come_first_together_make_the_code_once() -> None:
    loaded: list[object] = []
    barrier, fresh = threading.Barrier(8), Rounds()

    def work() -> None:
        barrier.wait()
        fresh._made()
        loaded.append(fresh._loaded)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(set(map(id, loaded))) == 1 and len(loaded) == 8


def test_a_kernel_that_may_get_better_comes_back_for_better_code() -> None:
    started: list[object] = []
    run = TieredKernel(visits(), patience=0.0, start=started.append)
    rows = Shares(0, 100, 2)
    values = {"marks": np.zeros(100, np.int64), "out": np.zeros(100, np.int64)}
    assert run.over(values, rows) == (2 * TRIAL, None)
    assert (len(started), rows.left) == (1, 50 - TRIAL)
    run.optimise()
    assert run.over(values, rows) == (100 - 2 * TRIAL, None)
    assert values["out"].tolist() == [1] * 100
