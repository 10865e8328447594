"""Print a run of the join benchmark, and give it as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.iawj.auto import Choice
from benchmarks.iawj.knobs import Turned
from benchmarks.iawj.suite import Report, Series
from benchmarks.report import figure_table
from penstock.algorithms.joins.adapt.tree import TREES
from penstock.calibration.simulate import Measured, SimulatedRun

METRICS: dict[str, Callable[[SimulatedRun], float]] = {
    "rows/ms": lambda run: run.throughput,
    "95 % latency, ms": lambda run: run.latency(),
    "half of the matches, ms": lambda run: run.time_to(0.5),
}
CURVE_POINTS = 200
PHASES = ("wait", "partition", "build", "sort", "merge", "push", "probe")


def print_report(console: Console, report: Report) -> None:
    """Tables of everything, the figures with targets last."""
    console.print(measured_table("data at rest: milliseconds of work", report.at_rest, lambda run: run.busy))
    for metric, value in METRICS.items():
        console.print(measured_table(f"figures 5, 6: {metric}", report.real, value))
    console.print(phase_table(report.real))
    for series in report.series:
        for metric, value in METRICS.items():
            console.print(series_table(series, metric, value))
    for (number, title), turned in groupby(report.turned, key=lambda value: (value.number, value.title)):
        console.print(knob_table(f"figure {number}: {title}: milliseconds of work", list(turned)))
    console.print(measured_table("the grid at rest: milliseconds of work", report.rest, lambda run: run.busy))
    console.print(
        measured_table("pairs in order: milliseconds of work", report.ordered, lambda run: run.busy)
    )
    if report.chooser is not None:
        print_trees(console, report)
    console.print(choice_table(report.choices))
    console.print(figure_table(report.figures))


def measured_table(title: str, measured: Sequence[Measured], value: Callable[[SimulatedRun], float]) -> Table:
    """A line for each workload, a column for each algorithm."""
    return table_of(title, [(measurement.workload, measurement) for measurement in measured], value)


def series_table(series: Series, metric: str, value: Callable[[SimulatedRun], float]) -> Table:
    points = [(f"{at:g}", measured) for at, measured in series.points]
    return table_of(f"figure {series.number}: {series.title}: {metric}", points, value)


def table_of(
    title: str, points: Sequence[tuple[str, Measured]], value: Callable[[SimulatedRun], float]
) -> Table:
    table = Table(title=f"\n{title}", title_justify="left")
    table.add_column("", no_wrap=True)
    for name in dict.fromkeys(name for _, measured in points for name in measured.runs):
        table.add_column(name, justify="right")
    table.add_column("answers")
    for label, measured in points:
        cells = (f"{value(run):,.{digits(value(run))}f}" for run in measured.runs.values())
        table.add_row(label, *cells, "[green]agree[/]" if measured.agree else "[red]DIFFER[/]")
    return table


def digits(value: float) -> int:
    return 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2


def phase_table(measured: Sequence[Measured]) -> Table:
    """Figure 7: where the time goes."""
    table = Table(title="\nfigure 7: milliseconds by phase", title_justify="left")
    for column in ("", "algorithm", *PHASES):
        table.add_column(column, justify="right" if column else "left")
    for measurement in measured:
        for name, run in measurement.runs.items():
            spent = (run.phases.get(phase, 0.0) for phase in PHASES)
            table.add_row(measurement.workload, name, *(f"{cell:,.1f}" if cell else "" for cell in spent))
    return table


def knob_table(title: str, turned: Sequence[Turned]) -> Table:
    table = Table(title=f"\n{title}", title_justify="left")
    names = list(dict.fromkeys(setting.algorithm for setting in turned))
    for column in ("", *names):
        table.add_column(column, justify="right")
    for at in dict.fromkeys(setting.at for setting in turned):
        found = {setting.algorithm: setting.run.busy for setting in turned if setting.at == at}
        table.add_row(f"{at:g}", *(f"{found[name]:,.1f}" if name in found else "" for name in names))
    return table


def print_trees(console: Console, report: Report) -> None:
    assert report.chooser is not None
    for target in TREES:
        console.print(f"\ntree for {target} ({report.chooser.origin})", highlight=False, markup=False)
        console.print(report.chooser.show(target), highlight=False, markup=False)


def choice_table(choices: Sequence[Choice]) -> Table:
    """Where `auto` was not near the best."""
    table = Table(title="\nauto: choices beyond 5 % of the best", title_justify="left")
    for column in ("workload", "target", "auto", "best", "times the best"):
        table.add_column(column)
    for choice in sorted(choices, key=lambda choice: -choice.ratio):
        if choice.ratio > 1.05:
            table.add_row(
                choice.workload, choice.target, choice.algorithm, choice.best, f"{choice.ratio:.2f}"
            )
    return table


# -- JSON ------------------------------------------------------------------------------------------------


def document_of(report: Report, when: str, machine: dict[str, object]) -> dict[str, Any]:
    """The run as plain values."""
    return {
        "suite": "iawj",
        "when": when,
        "machine": machine,
        "at_rest": [_measured(measurement) for measurement in report.at_rest],
        "real": [_measured(measurement) for measurement in report.real],
        "rest": [_measured(measurement) for measurement in report.rest],
        "ordered": [_measured(measurement) for measurement in report.ordered],
        "series": [
            {
                "number": series.number,
                "title": series.title,
                "points": [{"at": at, **_measured(measured)} for at, measured in series.points],
            }
            for series in report.series
        ],
        "knobs": [
            {
                "number": t.number,
                "title": t.title,
                "algorithm": t.algorithm,
                "at": t.at,
                "busy_ms": t.run.busy,
            }
            for t in report.turned
        ],
        "auto": [
            {
                "workload": c.workload,
                "target": c.target,
                "algorithm": c.algorithm,
                "best": c.best,
                "ratio": c.ratio,
                "path": list(c.path),
            }
            for c in report.choices
        ],
        "figures": [
            {"name": f.name, "value": f.value, "target": f.target, "met": f.met} for f in report.figures
        ],
    }


def _measured(measured: Measured) -> dict[str, Any]:
    return {
        "workload": measured.workload,
        "matches": measured.matches,
        "agree": measured.agree,
        "runs": {name: dict(_run(run)) for name, run in measured.runs.items()},
    }


def _run(run: SimulatedRun) -> Iterator[tuple[str, Any]]:
    yield "rows", run.rows
    yield "busy_ms", run.busy
    yield "finished_ms", run.finished
    yield "rows_per_ms", run.throughput
    yield "latency_95_ms", run.latency()
    yield "half_ms", run.time_to(0.5)
    yield "phases_ms", run.phases
    times, given = run.progress()
    every = max(len(times) // CURVE_POINTS, 1)
    yield (
        "progress",
        [
            [round(float(t), 3), round(float(g), 5)]
            for t, g in zip(times[::every], given[::every], strict=True)
        ],
    )
