"""Run the whole benchmark: data at rest, the four kinds of real workloads, the figures, and `auto` over the grid."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from benchmarks.figures import Figure
from benchmarks.iawj.auto import Choice, auto_figures, choices, choices_in_order
from benchmarks.iawj.knobs import Turned, knobs
from benchmarks.iawj.real import REAL
from benchmarks.iawj.sweeps import Sweep, grid_in_order, sweeps
from penstock.algorithms.joins.adapt.tree import JoinChooser
from penstock.calibration.calibrate import calibrate, measure_ordered
from penstock.calibration.machine import FAST_MEMORY
from penstock.calibration.simulate import JoinField, Measured, measure
from penstock.calibration.workloads import Micro, Workload

Progress = Callable[[str], None]

PROBES = 5
RESTING = (9, 10, 11, 13)
REST = (
    ("1.6 M x 1.6 M unique keys", Micro(1600, 1600), 50.0),
    ("6.4 M x 6.4 M, 10 duplicates", Micro(6400, 6400, duplicates=10), 320.0),
)


@dataclass(frozen=True)
class Series:
    """A figure of the paper: its number and title, and what was measured at each point."""

    number: int
    title: str
    points: tuple[tuple[float, Measured], ...]


@dataclass
class Report:
    """Everything that one run of the benchmark found."""

    at_rest: list[Measured] = field(default_factory=list)
    real: list[Measured] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    turned: list[Turned] = field(default_factory=list)
    rest: list[Measured] = field(default_factory=list)
    ordered: list[Measured] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    chooser: JoinChooser | None = None


@dataclass(frozen=True)
class JoinOptions:
    """`scale` is the part of the paper's windows; without a `chooser`, one is calibrated first."""

    scale: float = 1.0
    repeat: int = 3
    chooser: JoinChooser | None = None


def run_suite(joins: JoinField, options: JoinOptions, progress: Progress) -> Report:
    """Run everything, the targets first."""
    report = Report()
    for name, micro, target in REST:
        progress(name)
        measured = measure(joins, micro.make(name).at_rest(), options.repeat)
        report.at_rest.append(measured)
        report.figures += rest_figures(name, measured, target, bandwidth(joins))
    for make in REAL:
        progress(make.__name__)
        report.real.append(measure(joins, make(options.scale), options.repeat))
    report.chooser = options.chooser or JoinChooser(
        calibrate([joins], options.scale, progress).trees, "calibrated in this run, on other points"
    )
    report.series = [_series(joins, sweep, options, progress) for sweep in sweeps(options.scale)]
    report.turned = list(knobs(joins, options.scale, progress, options.repeat))
    report.rest = [
        measure(joins, workload.at_rest(), options.repeat) for workload in resting(options.scale, progress)
    ]
    streaming = choices(
        report.chooser, [measured for series in report.series for _, measured in series.points]
    )
    resting_choices = choices(report.chooser, report.rest)
    report.ordered = list(in_order(joins, options, progress))
    report.choices = [
        *streaming,
        *(choice for choice in resting_choices if choice.target == "throughput"),
        *choices_in_order(report.chooser, report.ordered),
    ]
    report.figures += auto_figures(report.choices)
    return report


def _series(joins: JoinField, sweep: Sweep, options: JoinOptions, progress: Progress) -> Series:
    points = []
    for at, micro in sweep.points:
        progress(f"figure {sweep.number}: {sweep.title}: {at:g}")
        points.append((at, measure(joins, micro.make(f"{sweep.title}: {at:g}"), options.repeat)))
    return Series(sweep.number, sweep.title, tuple(points))


def resting(scale: float, progress: Progress) -> Iterator[Workload]:
    """The grid's different sets of rows, for joins of data at rest: how rows arrive makes no difference to those."""
    for sweep in sweeps(scale):
        if sweep.number in RESTING:
            for at, micro in sweep.points:
                progress(f"at rest: {sweep.title}: {at:g}")
                yield micro.make(f"{sweep.title}: {at:g}")


def in_order(joins: JoinField, options: JoinOptions, progress: Progress) -> Iterator[Measured]:
    """Windows whose pairs are listed in order, as `collect` gives them."""
    for name, micro in grid_in_order(options.scale):
        progress(name)
        yield measure_ordered(joins, micro.make(name).at_rest(), options.repeat)


def bandwidth(joins: JoinField, megabytes: int = 128) -> float:
    """Bytes a second that one core reads, by the clock that the joins are timed with."""
    data = np.ones(megabytes << 17, np.int64)
    seconds = []
    for _ in range(PROBES):
        begin = joins.clock()
        data.sum()
        seconds.append(joins.clock() - begin)
    return data.nbytes / max(min(seconds), 1e-9)


def rest_figures(name: str, measured: Measured, target: float, speed: float) -> list[Figure]:
    """The best algorithm's milliseconds, as they would be on a core that reads 25 GB/s."""
    best = min(run.busy for run in measured.runs.values())
    return [
        Figure(f"{name}: best algorithm", best, unit=" ms", at_least=False),
        Figure(
            f"{name}: best algorithm at {FAST_MEMORY / 1e9:g} GB/s",
            best * speed / FAST_MEMORY,
            target,
            at_least=False,
            unit=" ms",
        ),
    ]
