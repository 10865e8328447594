"""Joins in overlapping windows between pushes: each pair is found once, and held until its last window is complete."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.algorithms.sorted_partitions.reducers import ranges
from penstock.algorithms.sorted_partitions.rows import Rows
from penstock.operators.joins.incremental_interval import IncrementalInterval
from penstock.operators.joins.results import (
    MOST_PAIRS,
    NULL_ROW,
    InWindows,
    Results,
    Waits,
    alone,
    gives_left_rows,
    left_rows,
    preserves,
)
from penstock.operators.joins.sliding import CommonEnds, WindowSpans, clipped, unmatched_in_windows
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME


@dataclass(frozen=True)
class SharedWindows:
    """Pairs of rows, and the first and the last window that holds both."""

    own: np.ndarray
    other: np.ndarray
    spans: WindowSpans

    @staticmethod
    def joined(several: list[SharedWindows]) -> SharedWindows:
        """Concatenate; without any, there are no pairs."""
        nothing = np.zeros(0, np.int64)
        own, other, first, last = (
            np.concatenate([nothing, *parts])
            for parts in (
                [part.own for part in several],
                [part.other for part in several],
                [part.spans.first for part in several],
                [part.spans.last for part in several],
            )
        )
        return SharedWindows(own, other, WindowSpans(first, last))

    def chosen(self, which: np.ndarray) -> SharedWindows:
        spans = WindowSpans(self.spans.first[which], self.spans.last[which])
        return SharedWindows(self.own[which], self.other[which], spans)

    def moved(self, left: int, right: int) -> SharedWindows:
        """The same pairs after so many rows of each side were dropped."""
        return SharedWindows(self.own - left, self.other - right, self.spans)


@dataclass
class IncrementalOverlap(IncrementalInterval):
    """Find pairs as an interval join of the windows' reach does; hold those that share a window."""

    windows: CommonEnds = field(kw_only=True)
    pieces: list[SharedWindows] = field(init=False, default_factory=list)
    complete: int = field(init=False, default=START_OF_TIME)  # the last complete window
    passed: int = field(init=False, default=START_OF_TIME)

    @property
    def waits(self) -> Waits:
        return InWindows.waits

    @property
    def flags_alone(self) -> bool:
        """Always False: a row near enough need not share a window."""
        return False

    def undecided(self, side: int) -> int:
        store = self.stores[side]
        return int(store.times[store.first]) if store.first < store.end else END_OF_TIME

    def held(self, side: int) -> np.ndarray:
        """The rows of open windows. For semi and anti joins, also the right rows that left ones of them may have met."""
        store = self.stores[side]
        places = np.arange(store.first, store.end)
        first, last = self.windows.held(store.times[places], side)
        kept = (last > self.complete) & (last >= first)
        if side == 1 and gives_left_rows(self.how):
            kept |= store.times[places] >= self._oldest_met()
        return places[kept]

    def _oldest_met(self) -> int:
        """The earliest time of a right row that a left row of an open window may have met."""
        past, future = self.windows.reach()
        return max(self.passed - past - future - 1, START_OF_TIME + 1)

    # -- steps ---------------------------------------------------------------------------------------

    def step(self, left: Rows, right: Rows, watermark: int) -> Iterator[pa.RecordBatch]:
        self._compact()
        self.windows.prepare(left.times, right.times)
        self._take(left, right)
        self.passed = watermark
        if len(left) or len(right):
            self._find()
        upto = self.windows.complete(watermark)
        if upto == self.complete or not (len(self.stores[0]) or len(self.stores[1])):
            self.complete = upto
            return iter(())
        return self._emitted(upto)

    def _find(self) -> None:
        """Hold the new pairs that share a window which is not complete; flag left rows of which one decides."""
        rows = self.stores[0].rows(), self.stores[1].rows()
        for (own, other), _ in self._new_pairs(rows):
            spans = [
                WindowSpans(*self.windows.held(side.times[places], number))
                for number, (side, places) in enumerate(zip(rows, (own, other), strict=True))
            ]
            first = np.maximum(spans[0].first, spans[1].first)
            last = np.minimum(spans[0].last, spans[1].last)
            if gives_left_rows(self.how):
                self.stores[0].flags[own[last >= first]] = 1
                continue
            shared = (last >= first) & (last > self.complete)
            self.pieces.append(SharedWindows(own, other, WindowSpans(first, last)).chosen(shared))

    def _emitted(self, upto: int) -> Iterator[pa.RecordBatch]:
        """Return the results of the windows that are complete now, made lazily."""
        after, self.complete = self.complete, upto
        rows = self.stores[0].rows(), self.stores[1].rows()
        begins = [store.first for store in self.stores]
        ends = [self._release(side, upto) for side in (0, 1)]
        if gives_left_rows(self.how):
            made = iter([self._left_rows(begins[0], ends[0])])
        else:
            pairs = SharedWindows.joined(self.pieces)
            self.pieces = [pairs.chosen(pairs.spans.last > upto)]
            made = self._results(pairs, rows, begins, after, upto)
        return (batch for results in made for batch in self.output.batches(results, *rows))

    def _release(self, side: int, upto: int) -> int:
        """Release the rows of a side that no open window holds; return the first of the others."""
        store = self.stores[side]
        if upto == END_OF_TIME:
            end = store.end
        else:
            until = self.windows.base + (upto + 1) * self.windows.step - self.windows.sizes[side]
            end = store.place_of(max(until, START_OF_TIME), store.first)
        keeps_met = side == 1 and gives_left_rows(self.how) and upto != END_OF_TIME
        store.first = min(end, store.place_of(self._oldest_met(), store.first)) if keeps_met else end
        return end

    def _left_rows(self, begin: int, end: int) -> Results:
        """The left rows whose last window is complete now, and which a semi or an anti join gives."""
        places = np.arange(begin, end)
        first, last = self.windows.held(self.stores[0].times[places], 0)
        places = places[last >= first]
        found = left_rows(self.how, self.stores[0].flags[places] > 0, places)
        _, last = self.windows.held(self.stores[0].times[found], 0)
        return Results(*alone(found, 0), *self.windows.bounds(last))

    # -- results of complete windows -------------------------------------------------------------------

    def _results(  # type: ignore[override]  # of windows, not of ranges of rows
        self, pairs: SharedWindows, rows: tuple[Rows, Rows], begins: list[int], after: int, upto: int
    ) -> Iterator[Results]:
        sides = [side for side in (0, 1) if preserves(self.how, side)]
        spans = {
            side: WindowSpans(*self.windows.held(rows[side].times[begins[side] :], side)) for side in sides
        }
        for since, until in _parts([pairs.spans, *spans.values()], after, upto):
            yield self._part(pairs, spans, begins, since, until)

    def _part(
        self, pairs: SharedWindows, spans: dict[int, WindowSpans], begins: list[int], after: int, upto: int
    ) -> Results:
        """The results of some windows, by window, then by row."""
        now = clipped(pairs.spans, after, upto)
        pair = np.repeat(np.arange(len(pairs.own)), now.counts)
        window = ranges(now.first, now.first + now.counts)
        own, other = pairs.own[pair], pairs.other[pair]
        found = [(own, other, window, np.zeros(len(window), np.int64))]
        for side, span in spans.items():
            begin, matched = begins[side], (own, other)[side]
            left, right, windows, kind = unmatched_in_windows(
                clipped(span, after, upto), side, matched - begin, window
            )
            moved = [np.where(places == NULL_ROW, NULL_ROW, places + begin) for places in (left, right)]
            found.append((moved[0], moved[1], windows, kind))
        left, right, window, kind = (np.concatenate(part) for part in zip(*found, strict=True))
        first = np.where(left == NULL_ROW, right, left)
        order = self.sides.kernels.sorter.order(window, kind, first, right)
        return Results(left[order], right[order], *self.windows.bounds(window[order]))

    # -- compaction and state ------------------------------------------------------------------------

    def _compact(self) -> None:
        before = [store.first for store in self.stores]
        super()._compact()
        dropped = [begin - store.first for begin, store in zip(before, self.stores, strict=True)]
        if any(dropped):
            self.pieces = [piece.moved(*dropped) for piece in self.pieces]

    def restore(self, left: Rows, right: Rows, watermark: int) -> None:
        self.complete, self.passed = self.windows.complete(watermark), watermark
        self._take(left, right)
        self._find()


def _parts(spans: list[WindowSpans], after: int, upto: int) -> Iterator[tuple[int, int]]:
    """Cut the windows (`after`, `upto`] so that each part has about as many results as fit a batch."""
    now = [clipped(span, after, upto) for span in spans]
    parts = sum(int(span.counts.sum()) for span in now) // MOST_PAIRS
    cuts: list[int] = []
    if parts:
        first = np.sort(np.concatenate([span.first[span.counts > 0] for span in now]))
        places = np.linspace(0, len(first) - 1, parts + 2)[1:-1].astype(int)
        cuts = [cut for cut in np.unique(first[places]).tolist() if after < cut < upto]
    yield from pairwise([after, *cuts, upto])
