"""The paper's figures 15 to 18: what turning an algorithm's own knobs does, on data at rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from penstock.algorithms.joins.eager import Eager, ProgressiveMerge, SymmetricHash
from penstock.algorithms.joins.joiner import Lazy
from penstock.algorithms.joins.radix import Radix
from penstock.calibration.simulate import Clock, JoinField, SimulatedRun, later_rows, simulate
from penstock.calibration.workloads import Micro, Workload

STEPS = (0.01, 0.05, 0.1, 0.2, 0.4, 0.8)
GROUPS = (1, 2, 4)
WORKERS = 4
BITS = (0, 2, 4, 6, 8, 10, 12, 14)


@dataclass(frozen=True)
class Turned:
    """A knob at one place: which figure, whose knob, its value, and the run."""

    number: int
    title: str
    algorithm: str
    at: float
    run: SimulatedRun


def knobs(
    field: JoinField, scale: float, progress: Callable[[str], None], repeat: int = 3
) -> Iterator[Turned]:
    """Turn every knob. Several workers take turns on as many threads as the field has."""
    micro = Micro(max(int(1280 * scale), 1), max(int(12800 * scale), 1), window_ms=1000)
    workload = micro.make("knobs").at_rest()
    counter = Eager("shj_jm", field.kernels, SymmetricHash, biclique=False)
    later = later_rows(counter, workload)
    for number, title, at, joiner, threads in settings(field, workload):
        progress(f"figure {number}: {title} {at:g}")
        runs = [simulate(joiner, workload, later, threads, _clock(field, threads)) for _ in range(repeat)]
        yield Turned(number, title, joiner.name, at, min(runs, key=lambda run: run.busy))


def _clock(field: JoinField, threads: int) -> Clock:
    """Several workers are measured by the work they do together, so that cores they do not have do not count."""
    return replace(field, threads=1).clock if threads > field.threads else field.clock


def settings(field: JoinField, workload: Workload) -> Iterator[tuple[int, str, float, Lazy | Eager, int]]:
    """(figure, title, value, joiner, threads) of every setting."""
    kernels = field.kernels
    for step in STEPS:
        made = partial(ProgressiveMerge, step=max(int(step * workload.rows), 2))
        for scheme in ("jm", "jb"):
            joiner = Eager(f"pmj_{scheme}", kernels, made, biclique=scheme == "jb")
            yield 15, "step, part of the rows", step, joiner, field.threads
    for group in GROUPS:
        for name, worker in (("shj", SymmetricHash), ("pmj", ProgressiveMerge)):
            joiner = Eager(f"{name}_jb", kernels, worker, biclique=True, group=group)
            yield 16, f"group size of {WORKERS} workers", group, joiner, WORKERS
    for name, worker in (("shj_jm", SymmetricHash), ("pmj_jm", ProgressiveMerge)):
        yield (
            16,
            f"group size of {WORKERS} workers",
            WORKERS,
            Eager(name, kernels, worker, biclique=False),
            WORKERS,
        )
    for copied in (False, True):
        joiner = Eager("shj_jm", kernels, SymmetricHash, biclique=False, copies=copied)
        yield 17, "rows are copied to workers", float(copied), joiner, WORKERS
    for bits in BITS:
        yield 18, "radix bits", bits, Radix(kernels, field.clock, bits=bits), field.threads
