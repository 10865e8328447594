"""Windows as ranges of panes, against looking at every window and every tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.algorithms.hash_table.keys import HashKeys
from penstock.algorithms.window_grid import Grid, WindowGrid
from penstock.loop.abi import KEYS, WORDS
from penstock.operators.pane_aggregate.pane_assembly import PaneRanges, frames_of_pairs, frames_of_panes
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME

GRIDS = st.builds(Grid, st.integers(1, 40), st.integers(1, 40), st.integers(-50, 50))
TICKS = range(-120, 120)


def pane_of(grid: Grid, time: int) -> int:
    """Say which pane holds a time: panes begin where windows begin or, between that, where some end."""
    number, inside = divmod(time - grid.offset, grid.every)
    cut = grid.size % grid.every
    return 2 * number + (inside >= cut) if cut else number


def window_at(grid: Grid, number: int) -> tuple[int, int]:
    start = grid.offset + number * grid.every
    return start, start + grid.size


def numbers_around(grid: Grid) -> range:
    reach = 200 // grid.every + grid.size // grid.every + 4
    return range(-reach, reach)


@given(grid=GRIDS)
def test_a_window_is_exactly_the_ticks_of_its_panes(grid: Grid) -> None:
    windows = WindowGrid(grid)
    for number in numbers_around(grid)[::3]:
        start, end = window_at(grid, number)
        first, _, last = (int(bound[0]) for bound in windows.bounds(np.array([number])))
        inside = [time for time in range(start - 45, end + 45) if first <= pane_of(grid, time) < last]
        assert inside == list(range(start, end))


@given(grid=GRIDS, number=st.integers(-50, 50))
def test_the_cut_of_a_window_lies_inside_it_and_is_shared_by_its_neighbours(grid: Grid, number: int) -> None:
    """Each cut serves a whole window's length of starts: then merging up to it once is worth it."""
    windows = WindowGrid(grid)
    start, cut, end = (int(bound[0]) for bound in windows.bounds(np.array([number])))
    assert start < cut <= end
    others = np.arange(cut - windows.span, cut)
    starts = others[others % windows.step == 0] // windows.step
    assert (windows.bounds(starts)[1] == cut).all()


def expected_windows(grid: Grid, times: Sequence[int], after: int, upto: int) -> list[int]:
    held = [number for number in numbers_around(grid) if any(_in(grid, number, time) for time in times)]
    return [number for number in held if after < number <= upto]


def _in(grid: Grid, number: int, time: int) -> bool:
    start, end = window_at(grid, number)
    return start <= time < end


def check(frames: PaneRanges, panes: np.ndarray, windows: WindowGrid, own: Sequence[int]) -> None:
    """Check that each frame lists the panes that its window has among its own, in order, around its cut."""
    for f, number in enumerate(frames.numbers):
        start, cut, end = (int(bound[0]) for bound in windows.bounds(np.array([number])))
        listed = [int(panes[slot]) for slot in frames.order[frames.first[f] : frames.last[f]]]
        assert listed == sorted(pane for pane in own if start <= pane < end)
        before = int(frames.cuts[f] - frames.first[f])
        assert all(pane < cut for pane in listed[:before]) and all(pane >= cut for pane in listed[before:])


LIMITS = st.tuples(st.integers(-10, 10) | st.just(START_OF_TIME), st.integers(-10, 10) | st.just(END_OF_TIME))


@given(grid=GRIDS, times=st.lists(st.sampled_from(TICKS), min_size=1, max_size=12), limits=LIMITS)
def test_frames_are_the_windows_that_hold_a_pane(
    grid: Grid, times: list[int], limits: tuple[int, int]
) -> None:
    windows = WindowGrid(grid)
    panes = np.array(list(dict.fromkeys(pane_of(grid, time) for time in times)))
    frames = frames_of_panes(windows, panes, *limits)
    assert frames.numbers.tolist() == expected_windows(grid, times, *limits)
    check(frames, panes, windows, panes.tolist())


def test_a_window_that_reaches_over_many_panes_has_one_frame_for_each_slide() -> None:
    panes = np.array([0, 10_240])
    for grid, many in [(Grid(10, 10, 0), 2), (Grid(10_240, 10, 0), 2_048)]:
        assert len(frames_of_panes(WindowGrid(grid), panes, START_OF_TIME, END_OF_TIME)) == many


def keys_of(pairs: Sequence[tuple[int, int | None]]) -> HashKeys:
    """Make a sparse table of (pane, key) pairs; a key that is None is null."""
    keys = HashKeys(2, np.zeros(WORDS, np.int64), nullable=True, sparse=True)
    for place, (pane, key) in enumerate(pairs):
        keys.words[0][place], keys.words[1][place] = pane, key or 0
        keys.nulls[place] = 2 if key is None else 0
    keys.head[KEYS] = len(pairs)
    return keys


@given(
    grid=GRIDS,
    rows=st.lists(st.tuples(st.sampled_from(TICKS), st.sampled_from([None, 0, 5, -5])), min_size=1),
    limits=LIMITS,
)
def test_frames_of_pairs_are_the_windows_of_each_key(
    grid: Grid, rows: list[tuple[int, int | None]], limits: tuple[int, int]
) -> None:
    windows = WindowGrid(grid)
    pairs = list(dict.fromkeys((pane_of(grid, time), key) for time, key in rows))
    frames = frames_of_pairs(windows, keys_of(pairs), *limits)
    panes = np.array([pane for pane, _ in pairs])
    owners = [pairs[frames.order[first]][1] for first in frames.first]
    for key in dict.fromkeys(key for _, key in pairs):
        mine = np.flatnonzero([owner == key for owner in owners])
        times = [time for time, other in rows if other == key]
        assert frames.numbers[mine].tolist() == expected_windows(grid, times, *limits)
        chosen = {name: getattr(frames, name)[mine] for name in ("numbers", "first", "cuts", "last")}
        own = replace(frames, **chosen)
        check(own, panes, windows, [pane for pane, other in pairs if other == key])


@given(grid=GRIDS, rows=st.lists(st.tuples(st.sampled_from(TICKS), st.sampled_from([0, 1])), min_size=1))
def test_neither_bound_of_frames_ever_falls(grid: Grid, rows: list[tuple[int, int]]) -> None:
    pairs = list(dict.fromkeys((pane_of(grid, time), key) for time, key in rows))
    frames = frames_of_pairs(WindowGrid(grid), keys_of(pairs), START_OF_TIME, END_OF_TIME)
    assert all((np.diff(bound) >= 0).all() for bound in (frames.first, frames.cuts, frames.last))
