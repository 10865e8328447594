"""Kernels that go through shares of rows by themselves, on several threads."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.codegen import morsel_scheduler, native
from penstock.codegen.llvm import OptimisationLevel
from penstock.codegen.morsel_scheduler import MorselScheduler
from penstock.codegen.native import Argument, NativeKernel, compile_kernel
from penstock.codegen.tiers import TRIAL, TieredKernel
from penstock.loop.build import KernelBuilder
from penstock.loop.interpret import Interpreted
from penstock.loop.nodes import I64, Kernel
from penstock.loop.numbers import Morsels


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
    call: NativeKernel | Interpreted | TieredKernel, rows: Morsels, values: dict[str, object]
) -> int:
    """Do what workers do: help where it stops, until nothing is left."""
    seen = 0
    while rows.left:
        progress = call.over(call.frame(values), rows)  # type: ignore[arg-type]
        seen += progress.rows
        if progress.stop is not None:
            done, end = progress.stop
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
    rows = Morsels(begin, end, size)
    assert go_through(call, rows, {"marks": marks, "out": out}) == end - begin
    assert out.tolist() == [int(begin <= row < end) for row in range(30)]
    assert rows.left == 0 and call.over(call.frame({"marks": marks, "out": out}), rows) == (0, None)  # type: ignore[arg-type]


def test_threads_take_each_share_once_and_all_of_them() -> None:
    many = 1_000_003
    marks, out, rows = np.zeros(many, np.int64), np.zeros(many, np.int64), Morsels(0, many, 101)
    seen: list[int] = []

    def work() -> None:
        seen.append(go_through(NATIVE, rows, {"marks": marks, "out": out}))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (out == 1).all()
    assert sum(seen) == many


@given(
    cuts=st.lists(st.integers(0, 400), min_size=0, max_size=3).map(sorted),
    size=st.integers(1, 60),
    stops=st.sets(st.integers(0, 399), max_size=20),
)
def test_native_threads_visit_every_row_once_and_end_early_if_one_needs_help(
    cuts: list[int], size: int, stops: set[int]
) -> None:
    bounds = [0, *cuts, 400]
    parts = [Morsels(begin, end, size) for begin, end in itertools.pairwise(bounds)]
    marks = np.array([int(row in stops) for row in range(400)])
    out = np.zeros(400, np.int64)
    values: dict[str, object] = {"marks": marks, "out": out}
    seen = 0
    while any(part.left for part in parts):
        frames = [NATIVE.frame(values) for _ in parts]  # type: ignore[arg-type]
        found = NATIVE.together(frames, parts)
        assert found is not None and len(found) == len(parts)
        if all(progress.stop is None for progress in found):
            assert not any(part.left for part in parts)
        for progress in found:
            seen += progress.rows
            done, end = progress.stop or (0, 0)
            while done < end:
                done = NATIVE({**values, "lo": done, "hi": end})  # type: ignore[dict-item]
    assert seen == 400
    assert out.tolist() == [1] * 400


def test_native_threads_work_at_the_same_time() -> None:
    """Two that wait for each other in turns would never end, if one ran after the other."""
    k = KernelBuilder("meet")
    words, own, other = k.buffer("words", I64), k.scalar("own"), k.scalar("other")
    hi = (k.scalar("lo"), k.scalar("hi"))[1]
    k.store(words, own, 1)
    with k.for_(0, 1 << 40) as _, k.if_(words[other].ne(0)):
        k.ret(hi)
    k.ret(-1)
    met = compile_kernel(k.build(), effort=OptimisationLevel.QUICK)
    both = np.zeros(2, np.int64)
    given: list[dict[str, Argument]] = [{"words": both, "own": own, "other": 1 - own} for own in range(2)]
    frames = [met.frame(value) for value in given]
    assert met.together(frames, [Morsels(0, 1, 1), Morsels(0, 1, 1)]) == [
        (1, None),
        (1, None),
    ]


@pytest.mark.parametrize("turns", [1, 20_000_000])
def test_a_thread_is_waited_for_however_long_it_takes(turns: int) -> None:
    """Whether it is seen to be done soon, or slept for: what it wrote is there."""
    k = KernelBuilder("last")
    words, own, other = k.buffer("words", I64), k.scalar("own"), k.scalar("other")
    turns_of, hi = k.scalar("turns"), (k.scalar("lo"), k.scalar("hi"))[1]
    k.store(words, own, 1)
    waited = k.var("waited", 0)
    with k.while_(words[other].eq(0)):  # until both are here, or one could take the share of the other
        k.set(waited, waited + 1)
    with k.for_(0, turns_of) as turn:
        k.store(words, own + 2, turn + 1)
    k.ret(hi)
    kernel = compile_kernel(k.build(), effort=OptimisationLevel.QUICK)
    both = np.zeros(4, np.int64)
    given: list[dict[str, Argument]] = [
        {"words": both, "own": own, "other": 1 - own, "turns": value} for own, value in enumerate((1, turns))
    ]
    frames = [kernel.frame(value) for value in given]
    assert kernel.together(frames, [Morsels(0, 1, 1), Morsels(0, 1, 1)]) == [(1, None), (1, None)]
    assert both.tolist() == [1, 1, 1, turns]


def test_where_there_are_no_native_threads_python_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "HAS_THREADS", False)
    monkeypatch.setattr(morsel_scheduler, "HAS_THREADS", False)
    monkeypatch.setattr(native, "MORSEL_SCHEDULER", MorselScheduler())
    marks, out, rows = np.zeros(9, np.int64), np.zeros(9, np.int64), Morsels(0, 9, 2)
    frame = NATIVE.frame({"marks": marks, "out": out})
    assert NATIVE.together([frame], [rows]) is None
    assert NATIVE.over(frame, rows) == (9, None)


def test_threads_that_come_first_together_make_the_code_once() -> None:
    loaded: list[object] = []
    barrier, fresh = threading.Barrier(8), MorselScheduler()

    def work() -> None:
        barrier.wait()
        fresh._made()
        loaded.append(fresh._loaded)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, loaded))) == 1 and len(loaded) == 8


def test_a_kernel_that_may_get_better_comes_back_for_better_code() -> None:
    started: list[object] = []
    run = TieredKernel(visits(), patience=0.0, start=started.append)
    rows = Morsels(0, 100, 2)
    values = {"marks": np.zeros(100, np.int64), "out": np.zeros(100, np.int64)}
    frame = run.frame(values)
    assert run.over(frame, rows) == (2 * TRIAL, None)
    assert (len(started), rows.left) == (1, 50 - TRIAL)
    run.optimise()
    assert run.over(frame, rows) == (100 - 2 * TRIAL, None)
    assert values["out"].tolist() == [1] * 100
