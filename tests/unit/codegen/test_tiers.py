"""Kernels start quick and are replaced by fast ones when it pays."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count

import numpy as np

from penstock.codegen.cache import KernelCache
from penstock.codegen.llvm import OptimisationLevel
from penstock.codegen.native import compile_kernel
from penstock.codegen.tiers import LARGEST_OPTIMISED, ORDINARY, TieredKernel, best_level
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, Kernel


def total(unused: int = 0) -> Kernel:
    """Sum a buffer, after so many statements that do nothing."""
    k = KernelBuilder("total")
    x, n = k.buffer("x", I64), k.scalar("n")
    t = k.var("t", 0)
    for _ in range(unused):
        k.set(t, 0)
    with k.for_(0, n) as i:
        k.set(t, t + x[i])
    k.ret(t)
    return k.build()


ARGUMENTS = {"x": np.arange(100), "n": 100}


class Later:
    """Collects background work until it is told to do it."""

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []

    def __call__(self, work: Callable[[], None]) -> None:
        self.work.append(work)


def ticking() -> Callable[[], float]:
    """A clock that advances a second at every look."""
    seconds = count()
    return lambda: float(next(seconds))


def test_a_new_kernel_is_quick_until_it_has_run_for_longer_than_the_patience() -> None:
    later = Later()
    run = TieredKernel(total(), patience=2.5, clock=ticking(), start=later)
    assert [run(ARGUMENTS), run(ARGUMENTS)] == [4950, 4950]
    assert later.work == []
    assert run(ARGUMENTS) == 4950  # three seconds spent
    assert (len(later.work), run.effort) == (1, OptimisationLevel.QUICK)
    assert run(ARGUMENTS) == 4950
    assert len(later.work) == 1
    later.work[0]()
    assert (run(ARGUMENTS), run.effort) == (4950, OptimisationLevel.FULL)


def test_the_patience_grows_with_the_length_of_a_kernel() -> None:
    later = Later()
    run = TieredKernel(total(3 * ORDINARY), patience=1.5, clock=ticking(), start=later)
    assert [run(ARGUMENTS) for _ in range(4)] == [4950] * 4
    assert later.work == []
    assert run(ARGUMENTS) == 4950  # five seconds spent, of 1.5 x 3 and a little
    assert len(later.work) == 1


def test_a_kernel_too_long_to_optimise_keeps_its_first_code() -> None:
    later, kernel = Later(), total(LARGEST_OPTIMISED)
    run = TieredKernel(kernel, patience=0.0, clock=ticking(), start=later)
    assert (run(ARGUMENTS), later.work, run.effort) == (4950, [], OptimisationLevel.QUICK)
    assert best_level(kernel) is OptimisationLevel.QUICK


def test_a_kernel_that_is_fully_compiled_already_is_used_at_once() -> None:
    cache = KernelCache()
    compile_kernel(total(), cache)
    assert TieredKernel(total(), cache).effort is OptimisationLevel.FULL


def test_what_one_kernel_learns_serves_the_next() -> None:
    cache, later = KernelCache(), Later()
    first = TieredKernel(total(), cache, patience=0.0, clock=ticking(), start=later)
    assert first(ARGUMENTS) == 4950
    later.work[0]()
    assert TieredKernel(total(), cache).effort is OptimisationLevel.FULL


def test_optimising_can_be_asked_for() -> None:
    run = TieredKernel(total())
    run.optimise()
    assert (run.effort, run(ARGUMENTS)) == (OptimisationLevel.FULL, 4950)


def test_many_threads_start_one_compilation() -> None:
    later = Later()
    run = TieredKernel(total(), patience=0.0, clock=ticking(), start=later)
    threads = [threading.Thread(target=run, args=(ARGUMENTS,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(later.work) == 1


def test_the_real_background_thread_ends_with_fast_code() -> None:
    run = TieredKernel(total(), patience=0.0)
    run(ARGUMENTS)
    for thread in threading.enumerate():
        if thread.name == "penstock-compile":
            thread.join()
    assert (run.effort, run(ARGUMENTS)) == (OptimisationLevel.FULL, 4950)


def plus(amount: int) -> Kernel:
    k = KernelBuilder("plus")
    n = k.scalar("n")
    k.ret(n + amount)
    return k.build()


def test_a_kernel_whose_code_the_cache_forgot_finds_it_again() -> None:
    cache = KernelCache(kernels=1)
    kernels = [TieredKernel(plus(amount), cache) for amount in range(3)]
    assert [kernel({"n": 10}) for kernel in kernels * 3] == [10, 11, 12] * 3
    assert len(cache) == 1


def test_code_that_is_forgotten_while_it_runs_is_freed_afterwards() -> None:
    cache = KernelCache()

    def forgetful() -> float:
        """A clock that is looked at with the code in hand."""
        cache.clear()
        return 0.0

    run = TieredKernel(total(), cache, clock=forgetful)
    assert [run(ARGUMENTS), run(ARGUMENTS)] == [4950, 4950]
    assert len(cache) == 0


def test_optimised_code_that_was_forgotten_is_optimised_again_when_it_pays() -> None:
    cache, later = KernelCache(), Later()
    run = TieredKernel(total(), cache, patience=0.0, clock=ticking(), start=later)
    for turn in range(1, 3):
        assert run(ARGUMENTS) == 4950
        assert len(later.work) == turn
        later.work[-1]()
        assert run.effort is OptimisationLevel.FULL
        cache.clear()
    assert run.effort is OptimisationLevel.QUICK


def test_kernels_with_other_literals_run_the_same_code() -> None:
    cache = KernelCache()

    def plus_literal(amount: int) -> Kernel:
        k = KernelBuilder("plus")
        n = k.scalar("n")
        k.ret(n + k.literal(amount, I64))
        return k.build()

    kernels = [TieredKernel(plus_literal(amount), cache) for amount in range(50)]
    assert [kernel({"n": 10}) for kernel in kernels] == list(range(10, 60))
    assert len(cache) == 1
