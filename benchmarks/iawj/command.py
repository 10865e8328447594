"""Run the intra-window join benchmark, print it and save it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from benchmarks.iawj.report import document_of, print_report
from benchmarks.iawj.suite import JoinOptions, run_suite
from benchmarks.report import save_json
from penstock.algorithms.joins.adapt.tree import JoinChooser, load_trees
from penstock.calibration.machine import facts
from penstock.calibration.simulate import open_join_field
from penstock.codegen.cache import default_directory
from penstock.errors import StateError
from penstock.operators.joins.build_algorithms import machine_name

QUICK = 0.1


def run_joins(threads: int, repeat: int, quick: bool, json: Path | None, plot: Path | None) -> None:
    """Run the benchmark, print it, and save it if requested."""
    console = Console()
    options = JoinOptions(QUICK if quick else 1.0, repeat, calibrated())
    with console.status("joining") as status:
        report = run_suite(open_join_field(threads), options, status.update)
    print_report(console, report)
    document = document_of(report, datetime.now(UTC).isoformat(timespec="seconds"), facts())
    if json is not None:
        save_json(json, document)
    if plot is not None:
        from benchmarks.iawj.plot import save_join_plot  # noqa: PLC0415 - matplotlib may be absent

        save_join_plot(plot, document)


def calibrated() -> JoinChooser | None:
    """Return the decision trees calibrated on this machine, if any."""
    directory = default_directory()
    try:
        return None if directory is None else load_trees(directory, machine_name())
    except (OSError, StateError):
        return None
