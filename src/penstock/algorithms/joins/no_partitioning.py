"""The drivers of the no-partitioning join: threads build one table of one side, then probe it; pairs in any or in result order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from penstock.algorithms.joins.joiner import (
    Lazy,
    Pairs,
    PairsOut,
    WindowCodes,
    fill,
    portions,
    shared,
    slots_for,
    survey,
    together,
)
from penstock.errors import EngineError
from penstock.loop.abi import SPARE, JoinSpec
from penstock.runtime.buffers import room
from penstock.runtime.metrics import ChosenAlgorithm
from penstock.runtime.threads import run_on_threads


class NoPartitioning(Lazy):
    """One table for the window."""

    name = "npj"

    def count(self, window: WindowCodes) -> int:
        given = self._build(window)
        probe = self.kernels("npj_probe", shared(window))
        counts: list[int] = []
        with self.phase("probe"):
            on_portions(
                len(window.probe),
                window.threads,
                lambda lo, hi: counts.append(probe({**given, "codes": window.probe, "lo": lo, "hi": hi})),
            )
        return sum(counts)

    def pairs(self, window: WindowCodes) -> tuple[np.ndarray, np.ndarray]:
        given, spec = self._build(window), shared(window)
        given |= self._runs(window, given, spec)
        probe = self.kernels("npj_probe", spec)
        outs = [PairsOut(hi - lo + 1) for lo, hi in portions(len(window.probe), window.threads)]
        with self.phase("probe"):
            run_on_threads(
                [
                    partial(fill, probe, {**given, "codes": window.probe, "lo": lo, "hi": hi}, out)
                    for (lo, hi), out in zip(portions(len(window.probe), window.threads), outs, strict=True)
                ]
            )
        return together([out.taken for out in outs])

    def _build(self, window: WindowCodes) -> dict[str, Any]:
        """Insert the rows of the build side into slots, and count the rows of each slot."""
        spec, rows, arena = shared(window), len(window.build), self.arena
        slots = slots_for(rows)
        cells = window.span + 1 if spec.dense else slots + SPARE
        given: dict[str, Any] = {"codes": window.build, "least": window.least, "sink": np.empty(1, np.uint64)}
        with self.phase("build"):
            given["bounds"] = arena.zeros("bounds", cells + 1, np.uint32)
            if not spec.dense:
                width = np.uint64 if spec.wide else np.uint32
                given |= {"slots": arena.zeros("slots", slots, width), "mask": slots - 1}
            if spec.pairs and not (spec.dense or spec.shared):
                given["places"] = arena.array("places", rows, np.uint32)
            if spec.shared and not spec.dense:
                self._probe_ranges("npj_insert", spec, window, given)
            self._probe_ranges("npj_count", spec, window, given)
        return given

    def _runs(self, window: WindowCodes, given: dict[str, Any], spec: JoinSpec) -> dict[str, Any]:
        """Store the rows of each slot contiguously."""
        with self.phase("build"):
            bounds, rows = given["bounds"], self.arena.array("rows", len(window.build) + 1, np.uint32)
            self.kernels("npj_starts", JoinSpec())({"bounds": bounds, "places": len(bounds)})
            self._probe_ranges("npj_fill", spec, window, {**given, "rows": rows})
        return {"rows": rows}

    def _probe_ranges(self, name: str, spec: JoinSpec, window: WindowCodes, given: dict[str, Any]) -> None:
        call = self.kernels(name, spec)
        on_portions(len(window.build), window.threads, lambda lo, hi: call({**given, "lo": lo, "hi": hi}))


def on_portions(rows: int, threads: int, work: Callable[[int, int], Any]) -> None:
    """Call `work` on every row, one portion per thread."""
    run_on_threads([partial(work, lo, hi) for lo, hi in portions(rows, threads)])


FEWER = 4  # times fewer left rows than right rows: then a first pass drops unmatched right rows, for a small table
MOST_ORDERED_ROWS = (1 << 31) - 1  # rows of a side: row indices have 32 bits, and -1 means no row


@dataclass(frozen=True)
class MatchRuns:
    """The right rows that each left row matches: `rows[starts … stops]`."""

    starts: np.ndarray
    stops: np.ndarray
    rows: np.ndarray

    def pairs_before(self, outer: bool) -> np.ndarray:
        """Return the number of pairs before each left row, and in total."""
        lengths = self.stops.astype(np.int64) - self.starts
        return np.concatenate([[0], np.cumsum(np.maximum(lengths, 1) if outer else lengths)])


class InOrder(NoPartitioning):
    """A joiner that returns ordered pairs. Results are new arrays; all other buffers are reused by the next window."""

    chosen = ChosenAlgorithm("npj")

    def ordered(self, left: np.ndarray, right: np.ndarray, threads: int, *, outer: bool = False) -> Pairs:
        """Return every pair with equal codes, as 32-bit row indices; with `outer`, unmatched left rows have -1."""
        several = list(self.parts(left, right, threads, outer=outer, most=None))
        return several[0]

    def parts(
        self, left: np.ndarray, right: np.ndarray, threads: int, *, outer: bool = False, most: int | None
    ) -> Iterator[Pairs]:
        """Yield the same pairs, about `most` at a time. Consume all before the next window, which reuses the
        buffers.
        """
        if not (len(left) and len(right)):
            alone = np.arange(len(left) if outer else 0, dtype=np.int32)
            yield alone, np.full(len(alone), -1, np.int32)
            return
        window = self._survey(left, right, threads)
        if FEWER * len(left) < len(right) and not window.spec.dense:
            yield from self._among_met(left, right, threads, outer=outer, most=most)
            return
        yield from self._parts_of(window, outer, most)

    def _parts_of(self, window: WindowCodes, outer: bool, most: int | None) -> Iterator[Pairs]:
        singles = self._singles(window)
        if singles is not None:
            yield self._beside(window, singles, outer)
            return
        runs, counts = self._runs_of(window, outer)
        if most is None or sum(counts) <= most:
            yield self._expanded(runs, portions(len(window.probe), window.threads), counts, outer)
            return
        before = runs.pairs_before(outer)
        cuts = np.searchsorted(before, np.arange(0, before[-1], most)).tolist()
        for lo, hi in pairwise(np.unique([*cuts, len(window.probe)]).tolist()):
            spans = [(lo + a, lo + b) for a, b in portions(hi - lo, window.threads)]
            yield self._expanded(runs, spans, [int(before[b] - before[a]) for a, b in spans], outer)

    def _among_met(
        self, left: np.ndarray, right: np.ndarray, threads: int, *, outer: bool, most: int | None
    ) -> Iterator[Pairs]:
        """Drop unmatched right rows first, by a small table of left rows."""
        some = np.flatnonzero(self.met(right, left, threads)).astype(np.int32)
        if not len(some):
            some = np.zeros(1, np.int32)  # a table needs a row; this one is unmatched as well
        for own, other in self._parts_of(self._survey(left, right[some], threads), outer, most):
            yield own, np.where(other >= 0, some[other], other) if outer else some[other]

    def met(self, left: np.ndarray, right: np.ndarray, threads: int) -> np.ndarray:
        """Return a mask of the left rows that have a match."""
        if not (len(left) and len(right)):
            return np.zeros(len(left), np.bool_)
        runs, _ = self._runs_of(self._survey(left, right, threads), False)
        found: np.ndarray = runs.starts != runs.stops
        return found

    def _survey(self, left: np.ndarray, right: np.ndarray, threads: int) -> WindowCodes:
        """Measure the range of codes; the right side is always the build side."""
        if max(len(left), len(right)) > MOST_ORDERED_ROWS:
            raise EngineError(
                f"a join takes at most {MOST_ORDERED_ROWS:,} rows of a side in one window; use a shorter window"
            )
        window = survey(self.kernels, left, right, True, threads)
        return replace(window, build=np.ascontiguousarray(right), probe=np.ascontiguousarray(left))

    def _singles(self, window: WindowCodes) -> np.ndarray | None:
        """Return the right row of each code, if codes index an array and right codes are unique; else None."""
        if not window.spec.dense or len(window.build) > window.span + 1:
            return None
        given = {"codes": window.build, "least": window.least, "lo": 0, "hi": len(window.build)}
        given["singles"] = singles = self.arena.array("singles", window.span + 1, np.uint32)
        mark, twice = self.kernels("mark_singles", window.spec), []
        with self.phase("build"):
            on_portions(
                len(singles),
                window.threads,
                lambda low, high: twice.append(mark({**given, "from": low, "to": high})),
            )
        return None if any(twice) else singles

    def _beside(self, window: WindowCodes, singles: np.ndarray, outer: bool) -> Pairs:
        """Pair each left row with the only right row that it can match."""
        rows = len(window.probe)
        own, other = room(rows, np.int32), room(rows, np.int32)
        find = self.kernels("find_singles_outer" if outer else "find_singles", window.spec)
        given = {"codes": window.probe, "least": window.least, "singles": singles, "own": own, "other": other}
        ends: dict[int, int] = {}

        def search(lo: int, hi: int) -> None:
            ends[lo] = find({**given, "lo": lo, "hi": hi})

        with self.phase("probe"):
            on_portions(rows, window.threads, search)
        return _closed_up(own, ends), _closed_up(other, ends)

    def _runs_of(self, window: WindowCodes, outer: bool) -> tuple[MatchRuns, list[int]]:
        """Build and probe; return the runs, and the number of pairs of each thread's portion of left rows."""
        given, spec = self._build(window), shared(window)
        rows = self._filled(window, given)
        starts, stops = (self.arena.array(name, len(window.probe), np.uint32) for name in ("starts", "stops"))
        find = self.kernels("find_runs_outer" if outer else "find_runs", spec)
        found = {**given, "codes": window.probe, "starts": starts, "stops": stops}
        counts: dict[int, int] = {}

        def search(lo: int, hi: int) -> None:
            counts[lo] = find({**found, "lo": lo, "hi": hi})

        with self.phase("probe"):
            on_portions(len(window.probe), window.threads, search)
        return MatchRuns(starts, stops, rows), [counts[lo] for lo in sorted(counts)]

    def _filled(self, window: WindowCodes, given: dict[str, Any]) -> np.ndarray:
        """Store the rows of each slot contiguously, in order; each thread fills a range of slots."""
        with self.phase("build"):
            bounds, rows = given["bounds"], self.arena.array("rows", len(window.build) + 1, np.uint32)
            self.kernels("npj_starts", JoinSpec())({"bounds": bounds, "places": len(bounds)})
            fill = self.kernels("fill_places", shared(window))
            every = {**given, "rows": rows, "lo": 0, "hi": len(window.build)}
            on_portions(
                len(bounds) - 1, window.threads, lambda low, high: fill({**every, "from": low, "to": high})
            )
        return rows

    def _expanded(
        self, runs: MatchRuns, spans: list[tuple[int, int]], counts: list[int], outer: bool
    ) -> Pairs:
        """Expand the pairs of some left rows; each thread writes one span, whose number of pairs is given."""
        own, other = (room(sum(counts), np.int32) for _ in range(2))
        expand = self.kernels("expand_runs_outer" if outer else "expand_runs", JoinSpec())
        given = {"starts": runs.starts, "stops": runs.stops, "rows": runs.rows, "own": own, "other": other}
        with self.phase("probe"):
            run_on_threads(_parts(expand, given, spans, counts))
        return own, other


def _closed_up(array: np.ndarray, ends: dict[int, int]) -> np.ndarray:
    """Close the gaps between the filled parts of an array: `ends` maps where a part begins to where it ends."""
    used = 0
    for begin in sorted(ends):
        count = ends[begin] - begin
        if used != begin:
            array[used : used + count] = array[begin : ends[begin]]
        used += count
    return array[:used]


def _parts(
    expand: Callable[[dict[str, Any]], int],
    given: dict[str, Any],
    places: list[tuple[int, int]],
    counts: list[int],
) -> list[Callable[[], int]]:
    begins = [begin for begin, _ in pairwise(accumulate(counts, initial=0))]
    return [
        partial(expand, {**given, "lo": lo, "hi": hi, "at": at})
        for (lo, hi), at in zip(places, begins, strict=True)
    ]
