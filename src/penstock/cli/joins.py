"""`penstock bench iawj` and `penstock doctor --calibrate`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from penstock.algorithms.joins.adapt.choose_join import JoinChooser, load_trees, save_trees
from penstock.algorithms.joins.adapt.tree import TREES, Tree, show
from penstock.bench.iawj.calibrate import calibrate
from penstock.bench.iawj.field import open_join_field
from penstock.bench.iawj.report import document_of, print_report
from penstock.bench.iawj.suite import JoinOptions, run_suite
from penstock.bench.machine import facts
from penstock.bench.report import save_json
from penstock.codegen.cache import KernelCache, default_directory
from penstock.errors import StateError
from penstock.operators.joins.build_algorithms import machine_name
from penstock.runtime.engine import Engine

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
        from penstock.bench.iawj.plot import save_join_plot  # noqa: PLC0415 - matplotlib may be absent

        save_join_plot(plot, document)


def calibrated() -> JoinChooser | None:
    """Return the decision trees calibrated on this machine, if any."""
    directory = default_directory()
    try:
        return None if directory is None else load_trees(directory, machine_name())
    except (OSError, StateError):
        return None


def run_calibration(scale: float) -> None:
    """Measure all join algorithms on this machine, and save the trees for `algorithm="auto"`."""
    console = Console()
    fields = [open_join_field(threads) for threads in sorted({1, Engine().workers})]
    with console.status("measuring joins, a few minutes") as status:
        trees = calibrate(fields, scale, status.update).trees
    print_trees(console, trees)
    cache = KernelCache(default_directory())
    if cache.directory is None:
        console.print(
            f"not saved: {cache.disabled or 'PENSTOCK_CACHE_DIR is empty'}", style="yellow", markup=False
        )
        return
    saved = save_trees(cache.directory, machine_name(), trees)
    console.print(f"saved as {saved}", highlight=False, markup=False)


def print_trees(console: Console, trees: Mapping[str, Tree]) -> None:
    """Print the tree of each target."""
    for target in TREES:
        console.print(f"\n{target}\n{show(trees[target])}", highlight=False, markup=False)
