"""What the machine itself gains from a second thread: no operator that only reads and writes can gain more."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from benchmarks.contenders import CPP_GROUP
from benchmarks.figures import Case, Figure, named, ratio
from benchmarks.measure import Contender, Outcome, compare
from benchmarks.reference import NoCompilerError
from benchmarks.reference.tilt import TiltReference
from benchmarks.tilt.applications import uniform
from benchmarks.tilt.kernel import DenseRun, floats
from penstock.runtime.threads import run_on_threads

TRAFFIC = "C++, its reads and writes alone"
_BLOCK = 64  # samples: fewer than a kernel takes at once, so that reading need not wait for writing
_SLICES = 8  # as a kernel cuts its work for two threads

LOOPS = {"reading": "read", "copying": "copy"}

Progress = Callable[[str], None]


def memory_cases(
    rows: int, repeat: int, threads: int, reference: TiltReference | NoCompilerError, progress: Progress
) -> list[Case]:
    """The samples read, and read and written, by C++ on one thread and on several."""
    if isinstance(reference, NoCompilerError):
        return []
    data, out = uniform(rows)["x"].to_numpy(), np.zeros(rows)
    contenders = list(_contenders(data, out, threads, reference))
    outcomes = compare(contenders, repeat, lambda text: progress(f"memory: {text}"))
    gains = (
        Figure(
            f"{name}: {threads} threads / 1",
            ratio(named(outcomes, name), named(outcomes, f"{name}, {threads} threads")),
        )
        for name in LOOPS
    )
    return [Case("memory", rows, 1, tuple(outcomes), tuple(gains))]


def _contenders(
    data: np.ndarray, out: np.ndarray, threads: int, reference: TiltReference
) -> Iterator[Contender]:
    for name, loop in LOOPS.items():
        for many, called in ((1, name), (threads, f"{name}, {threads} threads")):
            cuts = [len(data) * i // many for i in range(many + 1)]
            parts = [reference.loop(loop, data[a:b], out[a:b]) for a, b in itertools.pairwise(cuts)]
            run = partial(run_on_threads, parts, many)
            yield Contender(called, run, lambda _: floats(out[-1:]), many, CPP_GROUP, loop)


def traffic_contenders(
    run: DenseRun, threads: int, reference: TiltReference | NoCompilerError
) -> Iterator[Contender]:
    """What a kernel reads and writes, with nothing computed, on one thread and on several.

    No kernel that waits for memory can gain more from the second thread than this does.
    """
    if isinstance(reference, NoCompilerError):
        return
    reads, writes = run.traffic()
    # A result is needed to compare: each writes to memory of its own.
    writes = [np.zeros_like(write) for write in writes]
    for many, name in ((1, TRAFFIC), (threads, f"{TRAFFIC}, {threads} threads")):
        slices = _SLICES if many > 1 else 1
        blocks = max(run.total // _BLOCK // slices, 1)
        parts = [
            reference.traffic(_part(reads, i, slices), _part(writes, i, slices), blocks)
            for i in range(slices)
        ]
        done = pa.table({"v": [0.0]})
        yield Contender(
            name, partial(run_on_threads, parts, many), partial(_nothing, done), many, CPP_GROUP, TRAFFIC
        )


def traffic_figures(
    name: str, threads: int, outcomes: Sequence[Outcome], kernel: float | None
) -> Iterator[Figure]:
    """What more threads gain where nothing is computed, and how near a kernel's time on them is to that."""
    one, all_ = named(outcomes, TRAFFIC), named(outcomes, f"{TRAFFIC}, {threads} threads")
    yield Figure(f"{name}: its reads and writes alone, {threads} threads / 1", ratio(one, all_))
    yield Figure(f"{name}: kernel / its reads and writes alone, {threads} threads", ratio(all_, kernel))


def _part(arrays: Sequence[np.ndarray], place: int, many: int) -> list[np.ndarray]:
    return [array[len(array) * place // many : len(array) * (place + 1) // many] for array in arrays]


def _nothing(done: pa.Table, answer: object) -> pa.Table:
    """There is no answer to compare."""
    del answer
    return done
