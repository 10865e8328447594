"""`penstock doctor --calibrate`: measure the join algorithms on this machine and save the decision trees."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console

from penstock.algorithms.joins.adapt.choose_join import save_trees
from penstock.algorithms.joins.adapt.tree import TREES, Tree, show
from penstock.calibration.calibrate import calibrate
from penstock.calibration.field import open_join_field
from penstock.codegen.cache import KernelCache, default_directory
from penstock.operators.joins.build_algorithms import machine_name
from penstock.runtime.engine import Engine


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
