"""Joins in windows that do not overlap: every row lies in one, so pairs of a key are ranges of its lane."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.runtime.buffers import ticks_of
from penstock.runtime.flow import FOREVER, NEVER
from penstock.runtime.joins.joiner import Pairs
from penstock.runtime.joins.lanes import Kernels, Numbers, find, lay, number_keys
from penstock.runtime.joins.results import NOBODY, Emitted, Residual, Results, Shape, pairs_of, unmatched
from penstock.runtime.joins.watching import Watch
from penstock.runtime.lanes.framing import Bounds, within_reach
from penstock.runtime.lanes.rows import Rows
from penstock.runtime.programs import Grid


@dataclass(frozen=True)
class Placed:
    """The window of each row of one side; `inside` is False for rows in none."""

    start: np.ndarray
    end: np.ndarray
    inside: np.ndarray

    def chosen(self, which: np.ndarray) -> Placed:
        return Placed(self.start[which], self.end[which], self.inside[which])


ROWS_A_RUN = 256  # windows with fewer rows, on average, are not looked at one by one


@dataclass(frozen=True)
class Run:
    """A window, and the rows of both sides that lie in it."""

    start: int
    end: int
    left: tuple[int, int]
    right: tuple[int, int]

    @property
    def rows(self) -> int:
        return self.left[1] - self.left[0] + self.right[1] - self.right[0]


def runs_between(starts: np.ndarray, ends: np.ndarray, times: Sequence[np.ndarray]) -> list[Run]:
    """Windows whose rows have times from start to end, among rows in order of time."""
    cuts = [np.searchsorted(each, bounds) for each in times for bounds in (starts, ends)]
    rows = zip(*(each.tolist() for each in (starts, ends, *cuts)), strict=True)
    runs = [Run(start, end, (a, b), (c, d)) for start, end, a, b, c, d in rows]
    return [run for run in runs if run.rows]


def first_and_last(left: Rows, right: Rows) -> tuple[int, int] | None:
    """The times of the first and last row, if there is any."""
    some = [each.times for each in (left, right) if len(each)]
    return (min(int(each[0]) for each in some), max(int(each[-1]) for each in some)) if some else None


class Windows(Protocol):
    """One type of window."""

    def place(self, left: Rows, right: Rows, numbers: Callable[[], Numbers]) -> tuple[Placed, Placed]:
        """Tell the window of each row; `numbers` tells their keys."""

    def complete(self, ends: np.ndarray, watermark: int) -> np.ndarray:
        """Which windows are complete at a watermark."""

    def runs(self, left: Rows, right: Rows, *, always: bool) -> list[Run] | None:
        """The windows, where the rows of each lie side by side and are many (or `always`); else None."""


class Closing:
    """Windows that no row at or after their end belongs to."""

    def complete(self, ends: np.ndarray, watermark: int) -> np.ndarray:
        found: np.ndarray = ends <= watermark
        return found


@dataclass(frozen=True)
class GridWindows(Closing):
    """Windows on a grid, as long as the slide or shorter."""

    grid: Grid

    def place(self, left: Rows, right: Rows, numbers: Callable[[], Numbers]) -> tuple[Placed, Placed]:
        return self.side(left.times), self.side(right.times)

    def side(self, times: np.ndarray) -> Placed:
        """The window of each row of one side."""
        grid = self.grid
        within_reach(times, grid.every + grid.offset, grid.size + grid.offset)
        into = (times - grid.offset) % grid.every
        start = times - into
        return Placed(start, start + grid.size, into < grid.size)

    def runs(self, left: Rows, right: Rows, *, always: bool) -> list[Run] | None:
        around, grid = first_and_last(left, right), self.grid
        if around is None:
            return []
        within_reach(np.array(around), grid.every + grid.offset, grid.size + grid.offset)
        first, last = ((time - grid.offset) // grid.every for time in around)
        if not always and (last - first + 1) * ROWS_A_RUN > len(left) + len(right):
            return None
        starts = (
            self._starts(left, right) if always else np.arange(first, last + 1) * grid.every + grid.offset
        )
        return runs_between(starts, starts + grid.size, (left.times, right.times))

    def _starts(self, left: Rows, right: Rows) -> np.ndarray:
        """The starts of the windows that hold a row."""
        return np.unique(np.concatenate([self.side(each.times).start for each in (left, right)]))


@dataclass(frozen=True)
class CalendarWindows(Closing):
    """Windows on a calendar, each beginning where the last ends, or later."""

    bounds: Bounds

    def place(self, left: Rows, right: Rows, numbers: Callable[[], Numbers]) -> tuple[Placed, Placed]:
        return self._side(left.times), self._side(right.times)

    def _side(self, times: np.ndarray) -> Placed:
        if not len(times):
            return Placed(times, times, np.zeros(0, np.bool_))
        starts, ends = self.bounds(int(times.min()), int(times.max()))
        place = np.searchsorted(starts, times, side="right") - 1
        known = np.maximum(place, 0)
        return Placed(starts[known], ends[known], (place >= 0) & (times < ends[known]))

    def runs(self, left: Rows, right: Rows, *, always: bool) -> list[Run] | None:
        around = first_and_last(left, right)
        if around is None:
            return []
        starts, ends = self.bounds(*around)
        if not always and len(starts) * ROWS_A_RUN > len(left) + len(right):
            return None
        return runs_between(starts, ends, (left.times, right.times))


@dataclass(frozen=True)
class SessionWindows:
    """Sessions of a key, over the rows of both sides."""

    gap: int
    kernels: Kernels

    def place(self, left: Rows, right: Rows, numbers: Callable[[], Numbers]) -> tuple[Placed, Placed]:
        groups, times = np.concatenate(numbers().groups), np.concatenate([left.times, right.times])
        within_reach(times, 0, self.gap)
        order = self.kernels.sorter.order(groups, times)
        begins = self._begins(groups[order], times[order])
        session = np.cumsum(begins) - 1
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(order))[: len(first)] - 1
        start, end = np.empty_like(times), np.empty_like(times)
        start[order] = times[order[first]][session]
        end[order] = times[order[last]][session] + self.gap
        inside = np.ones(len(times), np.bool_)
        both = Placed(start, end, inside)
        return both.chosen(np.arange(len(left))), both.chosen(np.arange(len(left), len(times)))

    def _begins(self, groups: np.ndarray, times: np.ndarray) -> np.ndarray:
        begins = np.ones(len(groups), np.bool_)
        # Times grow within a group: their distance is right as an unsigned number, however far apart they are.
        apart = (times[1:] - times[:-1]).view(np.uint64)
        begins[1:] = (groups[1:] != groups[:-1]) | (apart > np.uint64(self.gap))
        return begins

    def complete(self, ends: np.ndarray, watermark: int) -> np.ndarray:
        """A row exactly at the end would still join."""
        return ends < watermark if watermark != FOREVER else np.ones(len(ends), np.bool_)

    def runs(self, left: Rows, right: Rows, *, always: bool) -> list[Run] | None:
        """Tell nothing: the sessions of different keys lie across each other."""
        return None


@dataclass(frozen=True)
class CarriedWindows(Closing):
    """The windows that rows carry: columns of their own, which are among the keys."""

    start: str
    end: str

    def place(self, left: Rows, right: Rows, numbers: Callable[[], Numbers]) -> tuple[Placed, Placed]:
        return self._side(left), self._side(right)

    def _side(self, rows: Rows) -> Placed:
        start, end = (rows.batch.column(name) for name in (self.start, self.end))
        known = [each.is_valid().to_numpy(zero_copy_only=False) for each in (start, end)]
        return Placed(ticks_of(start), ticks_of(end), known[0] & known[1])

    def runs(self, left: Rows, right: Rows, *, always: bool) -> list[Run] | None:
        """Rows that carry windows of a grid come in the order of these."""
        mine, its = (_carried_runs(self._side(each), always) for each in (left, right))
        if mine is None or its is None:
            return None
        windows = sorted({*mine, *its}, key=lambda window: window[::-1])
        if len(windows) * ROWS_A_RUN > len(left) + len(right) or len({end for _, end in windows}) < len(
            windows
        ):
            return None
        nothing = 0, 0
        return [Run(*window, mine.get(window, nothing), its.get(window, nothing)) for window in windows]


class WholeWindow:
    """All rows of both sides, when input ends."""

    def place(self, left: Rows, right: Rows, numbers: Callable[[], Numbers]) -> tuple[Placed, Placed]:
        times = np.concatenate([left.times, right.times])
        within_reach(times, 0, 1)
        bounds = (int(times.min()), int(times.max()) + 1) if len(times) else (0, 0)
        return self._side(len(left), bounds), self._side(len(right), bounds)

    @staticmethod
    def _side(rows: int, bounds: tuple[int, int]) -> Placed:
        return Placed(np.full(rows, bounds[0]), np.full(rows, bounds[1]), np.ones(rows, np.bool_))

    def complete(self, ends: np.ndarray, watermark: int) -> np.ndarray:
        return np.full(len(ends), watermark == FOREVER)

    def runs(self, left: Rows, right: Rows, *, always: bool) -> list[Run] | None:
        around = first_and_last(left, right)
        if around is None:
            return []
        within_reach(np.array(around), 0, 1)
        return [Run(around[0], around[1] + 1, (0, len(left)), (0, len(right)))]


def _carried_runs(placed: Placed, always: bool) -> dict[tuple[int, int], tuple[int, int]] | None:
    """The rows of each window, where every row has one and rows of one lie side by side."""
    steps = np.diff(placed.end)
    same = bool((np.diff(placed.start)[steps == 0] == 0).all())
    if not placed.inside.all() or bool((steps < 0).any()) or not same:
        return None
    cuts = np.flatnonzero(steps) + 1
    if not always and len(cuts) * ROWS_A_RUN > len(placed.end):
        return None
    spans = pairwise([0, *cuts.tolist(), len(placed.end)]) if len(placed.end) else ()
    return {(int(placed.start[low]), int(placed.end[low])): (low, high) for low, high in spans}


# --- pairs ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    """The rows of complete windows: both sides, their windows, and the numbers of their keys."""

    left: Rows
    right: Rows
    placed: tuple[Placed, Placed]
    numbers: Callable[[], Numbers]


Pairing = Callable[[Batch], Pairs]  # the pairs of rows with one key in one window, left rows in order


@dataclass(frozen=True)
class LanePairing:
    """Pairs as ranges of lanes. Where rows carry windows these are keys, so that a whole lane is one window."""

    residual: Residual | None
    carried: bool
    kernels: Kernels

    def __call__(self, batch: Batch) -> Pairs:
        kernels, numbers = self.kernels, batch.numbers()
        left = lay(numbers.left, numbers.lanes, batch.left.times, kernels)
        right = lay(numbers.right, numbers.lanes, batch.right.times, kernels)
        if self.carried:
            limits = np.full(left.rows, NEVER), np.full(left.rows, FOREVER)
        else:
            own = batch.placed[0]
            limits = own.start[left.places], own.end[left.places] - 1
        return pairs_of(find(left, right, limits, kernels), self.residual, batch.left, batch.right, kernels)


@dataclass(frozen=True)
class WindowMatcher:
    """Joins in windows that do not overlap."""

    windows: Windows
    pairing: Pairing
    how: str
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    shape: Shape
    kernels: Kernels
    watch: Watch

    def emit(self, left: Rows, right: Rows, before: int, watermark: int) -> Emitted:
        known: list[Numbers] = []

        def numbers() -> Numbers:
            if not known:
                known.append(self._numbers(left, right))
            return known[0]

        placed = self.windows.place(left, right, numbers)
        done = [each.inside & self.windows.complete(each.end, watermark) for each in placed]
        kept = [each.inside & ~now for each, now in zip(placed, done, strict=True)]
        made = self._results(left, right, placed, done, numbers) if any(each.any() for each in done) else []
        return made, kept[0], kept[1]

    def _numbers(self, left: Rows, right: Rows) -> Numbers:
        return numbers_of(left, right, self.keys, self.kernels)

    def _results(
        self,
        left: Rows,
        right: Rows,
        placed: tuple[Placed, Placed],
        done: list[np.ndarray],
        numbers: Callable[[], Numbers],
    ) -> Iterable[pa.RecordBatch]:
        if all(each.all() for each in done):
            batch = Batch(left, right, placed, numbers)
        else:
            chosen = [np.flatnonzero(each) for each in done]
            left, right = left.chosen(chosen[0]), right.chosen(chosen[1])
            placed = placed[0].chosen(chosen[0]), placed[1].chosen(chosen[1])
            batch = Batch(left, right, placed, partial(self._numbers, left, right))
        with self.watch.window(len(left) + len(right), _how_many(placed)) as given:
            results = arranged(self.pairing(batch), placed, self.how, self.kernels)
            given("lanes", len(results))
        return self.shape.batches(results, left, right, self.kernels.threads)


def _how_many(placed: tuple[Placed, Placed]) -> int:
    """The windows of rows in order of time, those of the side that has more."""
    return max(int(np.count_nonzero(np.diff(each.end))) + min(len(each.end), 1) for each in placed)


def numbers_of(
    left: Rows, right: Rows, keys: tuple[tuple[str, ...], tuple[str, ...]], kernels: Kernels
) -> Numbers:
    """Number the keys of both sides."""
    columns = [
        [rows.batch.column(name) for name in names] for rows, names in zip((left, right), keys, strict=True)
    ]
    return number_keys(columns[0], columns[1], (len(left), len(right)), kernels)


def arranged(pairs: Pairs, placed: tuple[Placed, Placed], how: str, kernels: Kernels) -> Results:
    """Add the rows without a partner, and put all in order: by window, left rows first."""
    own, other = placed
    if how in ("semi", "anti"):
        matched = np.zeros(len(own.start), np.bool_)
        matched[pairs[0]] = True
        rows = np.flatnonzero(matched == (how == "semi"))
        nobody = np.full(len(rows), NOBODY)
        return _in_order(
            Results(rows, nobody, own.start[rows], own.end[rows]), np.zeros(len(rows), np.int64), kernels
        )
    alone = unmatched(len(own.start), pairs[0]) if how in ("left", "full") else pairs[0][:0]
    strays = unmatched(len(other.start), pairs[1]) if how in ("right", "full") else pairs[0][:0]
    if not len(alone) and not len(strays):
        results = Results(*pairs, own.start[pairs[0]], own.end[pairs[0]])
        return _in_order(results, np.zeros(len(results), np.int64), kernels)
    left = np.concatenate([pairs[0], alone, np.full(len(strays), NOBODY)])
    right = np.concatenate([pairs[1], np.full(len(alone), NOBODY), strays])
    start, end = (
        np.concatenate([mine[pairs[0]], mine[alone], its[strays]])
        for mine, its in ((own.start, other.start), (own.end, other.end))
    )
    return _in_order(Results(left, right, start, end), (left == NOBODY).astype(np.int64), kernels)


def _in_order(results: Results, kind: np.ndarray, kernels: Kernels) -> Results:
    """Sort by the window's end and start, then what has a left row, by that row; equal ones stay as they are."""
    assert results.start is not None and results.end is not None
    own = np.where(results.left == NOBODY, results.right, results.left)
    keys = results.end, results.start, kind, own
    if _sorted(keys):
        return results
    return results.chosen(kernels.sorter.order(*keys))


def _sorted(keys: tuple[np.ndarray, ...]) -> bool:
    """Whether rows are in the order of several keys."""
    tied = np.ones(max(len(keys[0]) - 1, 0), np.bool_)
    for key in keys:
        if bool((tied & (key[1:] < key[:-1])).any()):
            return False
        tied &= key[1:] == key[:-1]
    return True
