"""The driver of the sort-merge joins: sort runs on all threads, merge them range by range, then match.

Threads share out ranges of words, not of rows: equal words are in one range, so ranges are matched
independently.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.algorithms.joins.joiner import Kernels, Lazy, PairsOut, WindowCodes, portions, together
from penstock.loop.abi import DIGIT_BITS, DONE, MOST_SORTED_RUNS, OTHER, STATUS, JoinSpec
from penstock.runtime.kernels import Call
from penstock.runtime.threads import run_on_threads

RUN_ROWS = 1 << 17  # words and the merge buffer stay within the caches
SAMPLES = 64  # words sampled from each run to cut the ranges

Run = tuple[int, int]


@dataclass(frozen=True)
class Sorted:
    """Sorted words (and their rows), cut into ranges."""

    words: np.ndarray
    rows: np.ndarray | None
    cuts: list[int]

    def arguments(self, side: str, part: int) -> dict[str, Any]:
        return {
            f"{side}_words": self.words,
            f"{side}_rows": self.rows,
            f"{side}_lo": self.cuts[part],
            f"{side}_hi": self.cuts[part + 1],
        }


@dataclass(frozen=True)
class Halves:
    """Two halves of a buffer; merges alternate between them."""

    words: tuple[np.ndarray, np.ndarray]
    rows: tuple[np.ndarray, np.ndarray] | None

    def arguments(self, source: int) -> dict[str, Any]:
        rows = self.rows or (None, None)
        return {
            "words": self.words[source],
            "to_words": self.words[1 - source],
            "rows": rows[source],
            "to_rows": rows[1 - source],
        }


def passes_for(span: int) -> int:
    """Return the number of digits in which words differ."""
    return max(1, -(-span.bit_length() // DIGIT_BITS))


def match(call: Call, values: dict[str, Any], out: PairsOut) -> None:
    """Match two sorted columns; whenever the output is full, grow it and resume."""
    at = {name: values[name] for name in ("left_lo", "right_lo")}
    while True:
        left = call({**values, **at, **out.arguments})
        if out.head[STATUS] == DONE:
            return
        at = {"left_lo": left, "right_lo": int(out.head[OTHER])}
        out.grow()


class SortMerge(Lazy):
    """Sort, merge, match. Subclasses define the merge."""

    def __init__(self, kernels: Kernels, *, run_rows: int = RUN_ROWS, **options: Any) -> None:
        super().__init__(kernels, **options)
        self._run_rows = run_rows

    def count(self, window: WindowCodes) -> int:
        left, right = self._sides(window)
        call = self.kernels("match_sorted", window.spec)
        counts: list[int] = []

        def work(part: int) -> None:
            counts.append(call({**left.arguments("left", part), **right.arguments("right", part)}))

        with self.phase("probe"):
            run_on_threads([partial(work, part) for part in range(window.threads)])
        return sum(counts)

    def pairs(self, window: WindowCodes) -> tuple[np.ndarray, np.ndarray]:
        left, right = self._sides(window)
        call = self.kernels("match_sorted", window.spec)
        outs = [PairsOut(len(window.probe) // window.threads + 1) for _ in range(window.threads)]
        with self.phase("probe"):
            run_on_threads(
                [
                    partial(
                        match, call, {**left.arguments("left", part), **right.arguments("right", part)}, out
                    )
                    for part, out in enumerate(outs)
                ]
            )
        return together([out.taken for out in outs])

    def _sides(self, window: WindowCodes) -> tuple[Sorted, Sorted]:
        sides = (("left", window.build), ("right", window.probe))
        with self.phase("sort"):
            halves = [self._halves(window.spec, side, len(codes)) for side, codes in sides]
            runs = [self._sort(window, codes, half) for (_, codes), half in zip(sides, halves, strict=True)]
        with self.phase("merge"):
            splits = splitters(
                [(half.words[0], run) for half, several in zip(halves, runs, strict=True) for run in several],
                window.threads,
            )
            left, right = (
                self._merged(window.spec, half, several, splits)
                for half, several in zip(halves, runs, strict=True)
            )
        return left, right

    def _halves(self, spec: JoinSpec, side: str, rows: int) -> Halves:
        words = self.arena.array(f"{side} words", 2 * rows, np.uint64 if spec.wide else np.uint32)
        numbers = self.arena.array(f"{side} rows", 2 * rows, np.uint32) if spec.pairs else None
        return Halves(
            (words[:rows], words[rows:]), None if numbers is None else (numbers[:rows], numbers[rows:])
        )

    def _sort(self, window: WindowCodes, codes: np.ndarray, halves: Halves) -> list[Run]:
        """Sort runs in place, distributed over threads."""
        count = -(-len(codes) // self._run_rows)
        runs = portions(len(codes), min(max(count, window.threads), MOST_SORTED_RUNS))
        given = {
            "codes": codes,
            "least": window.least,
            "passes": passes_for(window.span),
            "half": len(codes),
            "base": 0,
            "words": whole(halves.words),
            "rows": None if halves.rows is None else whole(halves.rows),
        }
        sort = self.kernels("sort_run", window.spec)

        def work(thread: int) -> None:
            for lo, hi in runs[thread :: window.threads]:
                sort({**given, "lo": lo, "hi": hi})

        run_on_threads([partial(work, thread) for thread in range(window.threads)])
        return runs

    def _merged(self, spec: JoinSpec, halves: Halves, runs: list[Run], splits: np.ndarray) -> Sorted:
        """Merge the runs' pieces of each range. A single run is already sorted."""
        pieces = [
            list(pairwise([lo, *(lo + np.searchsorted(halves.words[0][lo:hi], splits)).tolist(), hi]))
            for lo, hi in runs
        ]
        ranges = [[several[part] for several in pieces] for part in range(len(splits) + 1)]
        cuts = [0, *np.cumsum([sum(hi - lo for lo, hi in side_ranges) for side_ranges in ranges]).tolist()]
        source = 0 if len(runs) == 1 else self.merge(spec, halves, ranges, cuts)
        rows = None if halves.rows is None else halves.rows[source]
        return Sorted(halves.words[source], rows, cuts)

    @abstractmethod
    def merge(self, spec: JoinSpec, halves: Halves, ranges: list[list[Run]], cuts: list[int]) -> int:
        """Merge each range's runs, to begin at its cut; return the half that holds the result."""


def whole(halves: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return the buffer that two halves are views of, from the first half's beginning."""
    base = halves[0].base
    assert base is not None
    return base[: 2 * len(halves[0])]


def splitters(runs: list[tuple[np.ndarray, Run]], ranges: int) -> np.ndarray:
    """Return words that cut all rows into ranges of about equal size."""
    samples = np.sort(
        np.concatenate([words[lo:hi][:: max((hi - lo) // SAMPLES, 1)] for words, (lo, hi) in runs])
    )
    return samples[[len(samples) * cut // ranges for cut in range(1, ranges)]]


class MultiWay(SortMerge):
    """Merge all runs at once, through a tree: each row is moved once."""

    name = "mway"

    def merge(self, spec: JoinSpec, halves: Halves, ranges: list[list[Run]], cuts: list[int]) -> int:
        call = self.kernels("merge_many", spec)
        run_on_threads(
            [
                partial(merge_all, call, halves.arguments(0), runs, cuts[part])
                for part, runs in enumerate(ranges)
            ]
        )
        return 1


def merge_all(call: Call, given: dict[str, Any], runs: list[Run], target: int) -> None:
    """Merge runs through a tree; empty runs pad their number to a power of two."""
    size = 1 << (len(runs) - 1).bit_length()
    padded = [*runs, *[(0, 0)] * (size - len(runs))]
    cursors, ends = (np.array([run[end] for run in padded], np.int64) for end in (0, 1))
    total = int((ends - cursors).sum())
    call({**given, "cursors": cursors, "ends": ends, "runs": size, "target": target, "total": total})


class MultiPass(SortMerge):
    """Merge two runs at a time, pass after pass: a row is moved once per pass, but each step is simple."""

    name = "mpass"

    def merge(self, spec: JoinSpec, halves: Halves, ranges: list[list[Run]], cuts: list[int]) -> int:
        call, source = self.kernels("merge_two", spec), 0
        while max(map(len, ranges)) > 1:
            merged: list[list[Run]] = [[] for _ in ranges]
            run_on_threads(
                [
                    partial(merge_pairs, call, halves.arguments(source), runs, cuts[part], merged[part])
                    for part, runs in enumerate(ranges)
                ]
            )
            ranges, source = merged, 1 - source
        return source


def merge_pairs(call: Call, given: dict[str, Any], runs: list[Run], target: int, merged: list[Run]) -> None:
    """Merge neighbouring runs; copy the last one if their number is odd."""
    for place in range(0, len(runs), 2):
        (a, a_end), (b, b_end) = (*runs[place : place + 2], (0, 0))[:2]
        end = call({**given, "from_a": a, "end_a": a_end, "from_b": b, "end_b": b_end, "target": target})
        merged.append((target, end))
        target = end
