"""Pairs in the order of results, as `collect` gives them: what each algorithm costs when its pairs are listed and sorted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from penstock.algorithms.joins.adapt.window_statistics import observe
from penstock.calibration.field import JoinField, Measured, keep_best, share_twins
from penstock.calibration.points import scaled
from penstock.calibration.simulate import SimulatedRun
from penstock.calibration.workloads import Micro, Workload


def measure_ordered(field: JoinField, workload: Workload, repeat: int) -> Measured:
    """List the pairs of a window by every algorithm, in turns, and keep each one's best."""
    runs: dict[str, SimulatedRun] = {}
    for turn in range(repeat):
        for name in list(field.ordered)[:: 1 if turn % 2 == 0 else -1]:
            keep_best(runs, _listed(field, name, workload))
    if field.threads == 1:
        share_twins(runs)
    codes = workload.left.codes, workload.right.codes
    seen = observe(*codes, 0.0, field.threads)
    return Measured(workload.name, seen, runs["npj"].matches, {name: runs[name] for name in field.ordered})


def _listed(field: JoinField, name: str, workload: Workload) -> SimulatedRun:
    begin = field.clock()
    own, _ = field.ordered[name].ordered(workload.left.codes, workload.right.codes, field.threads)
    took = (field.clock() - begin) * 1e3
    return SimulatedRun(name, workload.name, workload.rows, len(own), finished=took, busy=took)


def calibration_in_order(scale: float = 1.0) -> Iterator[tuple[str, Micro]]:
    """Points to learn from: few pairs for each row, for they are listed."""
    for place, micro in enumerate(_calibration_points()):
        yield f"calibration in order {place + 1}", replace(scaled(micro, scale), seed=2000 + place)


# npj looks its rows up all over a table, so a neighbour can make it three times as slow: one point was not enough.
_UNEVEN = ((90, 2500), (2500, 90), (60, 1100), (1100, 60), (250, 1900), (1900, 250))


def _calibration_points() -> Sequence[Micro]:
    both = (False, True)
    return (
        *(Micro(n, n, scatter=far, window_ms=700) for n in (30, 150, 350, 700, 1500, 3500) for far in both),
        *(Micro(900, 900, duplicates=n, scatter=far, window_ms=600) for n in (3, 12) for far in both),
        *(Micro(*rates, scatter=far, window_ms=900) for rates in _UNEVEN for far in both),
        *(Micro(300, 300, key_skew=z, scatter=True, window_ms=500) for z in (0.4, 0.8)),
    )
