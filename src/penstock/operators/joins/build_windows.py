"""Convert the windows of a join to their runtime form."""

from __future__ import annotations

from functools import partial

from penstock.algorithms.window_grid import Grid
from penstock.operators.joins.partitions import Kernels
from penstock.operators.joins.sliding import CalendarOverlap, CommonEnds, Overlapping
from penstock.operators.joins.windows import (
    CalendarWindows,
    CarriedWindows,
    GridWindows,
    SessionWindows,
    WholeWindow,
    WindowKind,
)
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


def windows_apart(domain: Window, kernels: Kernels) -> WindowKind:
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
