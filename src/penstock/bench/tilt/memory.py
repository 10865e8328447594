"""What the machine itself gains from a second thread: no operator that only reads and writes can gain more."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from penstock.bench.contenders import CPP_GROUP
from penstock.bench.figures import Case, Figure, named, ratio
from penstock.bench.measure import Contender, compare
from penstock.bench.reference import NoCompilerError
from penstock.bench.reference.tilt import TiltReference
from penstock.bench.tilt.applications import uniform
from penstock.bench.tilt.kernel import floats
from penstock.runtime.threads import run_on_threads

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
