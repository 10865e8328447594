"""Bind the kernels of the join algorithms to their drivers by name, and give windows their runtime form."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from penstock.algorithms.joins.adapt.auto_join import AutoJoiner
from penstock.algorithms.joins.adapt.tree import JoinChooser, chooser
from penstock.algorithms.joins.eager import Eager, ProgressiveMerge, SymmetricHash
from penstock.algorithms.joins.joiner import EagerJoiner, Joiner, Kernels, LazyJoiner
from penstock.algorithms.joins.kernels import build
from penstock.algorithms.joins.no_partitioning import InOrder, NoPartitioning
from penstock.algorithms.joins.radix import Radix
from penstock.algorithms.joins.sort_merge import MultiPass, MultiWay
from penstock.algorithms.kernel_factory import KernelFactory
from penstock.algorithms.window_grid import Grid
from penstock.codegen.cache import default_directory
from penstock.loop.abi import JoinSpec
from penstock.operators.joins.algorithm_pairs import AutoInOrder, Ordered, PutInOrder
from penstock.operators.joins.partitions import PartitionKernels
from penstock.operators.joins.sliding import CalendarOverlap, CommonEnds, Overlapping
from penstock.operators.joins.windows import (
    CalendarWindows,
    CarriedWindows,
    GridWindows,
    SessionWindows,
    WholeWindow,
    WindowKind,
)
from penstock.runtime.kernels import Call
from penstock.types.calendar import calendar_bounds
from penstock.types.windows import (
    WINDOW_END,
    WINDOW_START,
    Calendar,
    CarriedWindow,
    InWindow,
    Session,
    TimeWindow,
    Unbounded,
    Window,
    windows_overlap,
)

LAZY_BUILDERS: dict[str, Callable[[Kernels], LazyJoiner]] = {
    "npj": NoPartitioning,
    "prj": Radix,
    "mway": MultiWay,
    "mpass": MultiPass,
}
EAGER_BUILDERS: dict[str, Callable[[Kernels], EagerJoiner]] = {
    "shj_jm": lambda kernels: Eager("shj_jm", kernels, SymmetricHash, biclique=False),
    "shj_jb": lambda kernels: Eager("shj_jb", kernels, SymmetricHash, biclique=True),
    "pmj_jm": lambda kernels: Eager("pmj_jm", kernels, ProgressiveMerge, biclique=False),
    "pmj_jb": lambda kernels: Eager("pmj_jb", kernels, ProgressiveMerge, biclique=True),
}


def machine_name() -> str:
    """Return the machine's name for calibrations, which are valid for one processor model and number of cores."""
    from penstock.codegen.target import host  # noqa: PLC0415 - loads LLVM

    return f"{host().triple} {host().cpu}, {os.cpu_count()} cores"


def join_chooser() -> JoinChooser:
    """Return the decision trees of `algorithm="auto"`: calibrated on this machine, or the package's defaults."""
    return chooser(default_directory(), machine_name())


def kernels_of(kernel_factory: KernelFactory) -> Kernels:
    """Return a function that builds kernels on demand and compiles each once."""

    def kernel(name: str, spec: JoinSpec) -> Call:
        return kernel_factory.call(("join", name, spec), lambda: build(name, spec))

    return kernel


def lazy_joiner(name: str, kernel_factory: KernelFactory) -> LazyJoiner:
    """Return the joiner of a lazy algorithm. Joiners do not share memory."""
    return LAZY_BUILDERS[name](kernels_of(kernel_factory))


def eager_joiner(name: str, kernel_factory: KernelFactory) -> EagerJoiner:
    """Return the joiner of an eager algorithm."""
    return EAGER_BUILDERS[name](kernels_of(kernel_factory))


def joiner(name: str, kernel_factory: KernelFactory) -> Joiner:
    """Return the joiner of an algorithm, lazy or eager, by name."""
    return lazy_joiner(name, kernel_factory) if name in LAZY_BUILDERS else eager_joiner(name, kernel_factory)


def eager(name: str, kernel_factory: KernelFactory, optimise: str) -> EagerJoiner:
    """Return the joiner for rows that still arrive; "auto" decides for each window by statistics of the last."""
    return auto_joiner(kernel_factory, optimise) if name == "auto" else eager_joiner(name, kernel_factory)


def in_order(name: str, kernel_factory: KernelFactory, kernels: PartitionKernels) -> Ordered:
    """Return a joiner with pairs in result order: npj produces that order; pairs of other algorithms are sorted."""
    return (
        InOrder(kernels_of(kernel_factory))
        if name == "npj"
        else PutInOrder(joiner(name, kernel_factory), kernels)
    )


def auto_in_order(
    kernel_factory: KernelFactory, kernels: PartitionKernels, arrival: Callable[[int], float]
) -> AutoInOrder:
    """Return the ordered joiner that chooses an algorithm for each window."""
    return AutoInOrder(lambda name: in_order(name, kernel_factory, kernels), join_chooser(), arrival)


def auto_joiner(kernel_factory: KernelFactory, optimise: str = "throughput") -> AutoJoiner:
    """Return the joiner that chooses among the eight for each window; it works lazily and eagerly."""
    return AutoJoiner(lambda name: joiner(name, kernel_factory), join_chooser(), optimise)


def overlapping_windows(pairing: InWindow) -> Overlapping | None:
    """Return the windows of a join if a row may be in several, else None."""
    if not windows_overlap(pairing):
        return None
    match pairing.left, pairing.right:
        case TimeWindow() as left, TimeWindow() as right:
            return CommonEnds.of(grid_of(left), grid_of(right))
        case Calendar() as calendar, _:
            return CalendarOverlap(partial(calendar_bounds, calendar))
        case _:
            return None


def grid_of(grid: TimeWindow) -> Grid:
    """Return the runtime grid of a time window."""
    return Grid(grid.size, grid.every, grid.offset)


def windows_apart(domain: Window, kernels: PartitionKernels) -> WindowKind:
    """Return the windows of a join in which each row is in at most one."""
    match domain:
        case TimeWindow():
            return GridWindows(grid_of(domain))
        case Session(gap=gap):
            return SessionWindows(gap, kernels)
        case CarriedWindow():
            return CarriedWindows(WINDOW_START, WINDOW_END)
        case Unbounded():
            return WholeWindow()
        case Calendar():
            return CalendarWindows(partial(calendar_bounds, domain))
        case _:
            raise AssertionError("rows of two sides are not counted together")
