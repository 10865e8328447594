"""Joins of large windows, one at a time: rows come in order of time, so a window's rows lie side by side.

A window is then two ranges of rows, found by searching for its bounds. Pairs are found in the order of the result,
and each window gives batches of its own: nothing is sorted or put together afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa

from penstock.runtime.buffers import room
from penstock.runtime.flow import FOREVER
from penstock.runtime.joins.algorithms import FEW_ROWS, AlgorithmPairing
from penstock.runtime.joins.joiner import Pairs
from penstock.runtime.joins.results import NOBODY, Results, unmatched
from penstock.runtime.joins.windows import Placed, Run, WindowMatcher, arranged
from penstock.runtime.lanes.rows import Rows


@dataclass(frozen=True)
class RunMatcher:
    """Joins in windows that do not overlap; `plain` joins those that are small or whose rows lie apart."""

    plain: WindowMatcher
    pairing: AlgorithmPairing

    def emit(
        self, left: Rows, right: Rows, before: int, watermark: int
    ) -> tuple[list[pa.RecordBatch], np.ndarray, np.ndarray]:
        runs = self.plain.windows.runs(left, right)
        if runs is None:
            return self.plain.emit(left, right, before, watermark)
        ends = np.array([run.end for run in runs], np.int64)
        complete = self.plain.windows.complete(ends, watermark).tolist()
        kept = np.zeros(len(left), np.bool_), np.zeros(len(right), np.bool_)
        for run, done in zip(runs, complete, strict=True):
            if not done:
                kept[0][slice(*run.left)] = kept[1][slice(*run.right)] = True
        due = [run for run, done in zip(runs, complete, strict=True) if done]
        return list(self._results(due, left, right)), *kept

    def _results(self, runs: Sequence[Run], left: Rows, right: Rows) -> Iterator[pa.RecordBatch]:
        codes: list[Pairs] = []
        for large, some in groupby(runs, lambda run: self.pairing.always or run.rows >= FEW_ROWS):
            if not large:
                yield from self._together(list(some), left, right)
                continue
            codes = codes or [self.pairing.codes(left, right)]
            for run in some:
                yield from self._window(run, left, right, codes[0])

    def _together(self, runs: list[Run], left: Rows, right: Rows) -> list[pa.RecordBatch]:
        """Small windows, one after the other in time, all at once."""
        first, last = runs[0], runs[-1]
        one, other = left.part(first.left[0], last.left[1]), right.part(first.right[0], last.right[1])
        made, _, _ = self.plain.emit(one, other, 0, FOREVER)
        return made

    def _window(self, run: Run, left: Rows, right: Rows, codes: Pairs) -> Iterator[pa.RecordBatch]:
        one, other = left.part(*run.left), right.part(*run.right)
        mine, its = codes[0][slice(*run.left)], codes[1][slice(*run.right)]
        results = self._joined(one, other, (np.ascontiguousarray(mine), np.ascontiguousarray(its)))
        results.start, results.end = (_constant(each, len(results)) for each in (run.start, run.end))
        return self.plain.shape.batches(results, one, other, self.plain.kernels.threads)

    def _joined(self, left: Rows, right: Rows, codes: Pairs) -> Results:
        """The results of one window, in order."""
        how, pairing = self.plain.how, self.pairing
        if pairing.residual is not None or pairing.ordered is None:
            pairs = pairing.pairs(left, right, codes)
            return arranged(pairs, (_one_window(len(left)), _one_window(len(right))), how, pairing.kernels)
        threads = pairing.kernels.shares(len(left) + len(right))
        if how in ("semi", "anti"):
            met = pairing.ordered.met(*codes, threads)
            rows = np.flatnonzero(met == (how == "semi"))
            return Results(rows, np.full(len(rows), NOBODY))
        own, other = pairing.ordered.ordered(*codes, threads, outer=how in ("left", "full"))
        if how in ("inner", "left"):
            return Results(own, other)
        strays = unmatched(len(right), other[other != NOBODY] if how == "full" else other).astype(np.int32)
        nobody = np.full(len(strays), NOBODY, np.int32)
        return Results(np.concatenate([own, nobody]), np.concatenate([other, strays]))


def _one_window(rows: int) -> Placed:
    zeros = np.zeros(rows, np.int64)
    return Placed(zeros, zeros, np.ones(rows, np.bool_))


def _constant(value: int, rows: int) -> np.ndarray:
    made = room(rows)
    made.fill(value)
    return made
