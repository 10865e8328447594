"""One worker of the progressive merge join: it joins each run when the run is full, and across runs at the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from penstock.algorithms.joins.memory import Kernels, PairsOut, Spare, nothing, portions, together
from penstock.algorithms.joins.row_slice import Found, RowSlice
from penstock.algorithms.joins.sort_merge import match, merge_all, passes_for
from penstock.loop.abi import MOST_SORTED_RUNS, JoinSpec

ROWS_PER_RUN = 1 << 17  # rows of both sides that make a run: sorted within the cache
SHARE = 4  # a run has at least 1/SHARE of the rows before it; otherwise the last merge has too many runs
_LEAST = -(1 << 63)  # words are codes minus this: both have the same order


class ProgressiveMerge:
    """Buffers `step` rows of both sides, then sorts, joins and stores them as a run.

    Later runs are longer: the paper found a fifth of the window best, and the window's length is not known in
    advance.
    """

    def __init__(self, kernels: Kernels, spec: JoinSpec, spare: Spare, step: int = ROWS_PER_RUN) -> None:
        self._kernels, self._spec, self._step = kernels, spec, step
        self._arena = spare.arena
        self._waiting: tuple[list[RowSlice], list[RowSlice]] = ([], [])
        self._rows_waiting = self._rows_sorted = 0
        self._runs: tuple[list[Any], list[Any]] = ([], [])
        self._tags = [np.empty(0, np.uint32), np.empty(0, np.uint32)]
        self._counted = 0

    def push(self, side: int, piece: RowSlice) -> Found:
        """Buffer rows; once there are enough, join them as a run."""
        self._waiting[side].append(piece)
        self._rows_waiting += piece.rows
        enough = max(self._step, self._rows_sorted // SHARE)
        return self._join_run() if self._rows_waiting >= enough else self._nothing()

    def close(self) -> Found:
        """Join the last run, then merge all runs and return the pairs across them."""
        last = self._join_run() if self._rows_waiting else self._nothing()
        if len(self._runs[0]) < 2:
            return last
        across = self._across()
        if isinstance(last, int) or isinstance(across, int):
            assert isinstance(last, int) and isinstance(across, int)
            return last + across
        return together([last, across])

    def _nothing(self) -> Found:
        return nothing() if self._spec.pairs else 0

    # -- runs ------------------------------------------------------------------------------------------

    def _join_run(self) -> Found:
        left, right = (self._sorted(side) for side in (0, 1))
        self._rows_sorted += self._rows_waiting
        self._rows_waiting = 0
        self._runs[0].append(left)
        self._runs[1].append(right)
        if not (len(left[0]) and len(right[0])):
            return self._nothing()
        found = self._match("match_sorted", left, right, {})
        if isinstance(found, int):
            self._counted += found
        return found

    def _sorted(self, side: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Sort the buffered rows; return their words and, for pairs, their row numbers."""
        pieces = self._waiting[side]
        rows = sum(piece.rows for piece in pieces)
        codes = self._arena.array("codes", rows, np.int64)
        if rows:
            np.concatenate([piece.codes[piece.lo : piece.hi] for piece in pieces], out=codes)
        words = self._arena.array("words", 2 * rows, np.uint64)
        given: dict[str, Any] = {"codes": codes, "least": _LEAST, "lo": 0, "hi": rows, "half": rows}
        given |= {"words": words, **self._bounds(codes)}
        if self._spec.pairs:
            given["numbers"] = self._numbers(side, pieces)
            given["rows"] = self._arena.array("rows", 2 * rows, np.uint32)
        pieces.clear()
        self._kernels("sort_run", replace(self._spec, routed=True))(given)
        return words[:rows].copy(), given["rows"][:rows].copy() if self._spec.pairs else None

    def _bounds(self, codes: np.ndarray) -> dict[str, int]:
        if not len(codes):
            return {"base": 0, "passes": 1}
        bounds = np.array([codes[0], codes[0]], np.int64)
        self._kernels("range_of", JoinSpec())({"codes": codes, "lo": 0, "hi": len(codes), "bounds": bounds})
        least, most = map(int, bounds)
        return {"base": least - _LEAST, "passes": passes_for(most - least)}

    def _numbers(self, side: int, pieces: list[RowSlice]) -> np.ndarray:
        """Gather the row numbers, and record the run of each row."""
        if not pieces:
            return np.empty(0, np.uint32)
        numbers = np.concatenate([piece.row_numbers() for piece in pieces])
        last = max(piece.last for piece in pieces)
        if len(self._tags[side]) < last:
            tags = np.empty(max(last, 2 * len(self._tags[side])), np.uint32)
            tags[: len(self._tags[side])] = self._tags[side]
            self._tags[side] = tags
        self._tags[side][numbers] = len(self._runs[side])
        return numbers

    # -- across runs -----------------------------------------------------------------------------------

    def _across(self) -> Found:
        left, right = (self._merged(side) for side in (0, 1))
        if not (len(left[0]) and len(right[0])):
            return self._nothing()
        if not self._spec.pairs:
            total = self._match("match_sorted", left, right, {})
            assert isinstance(total, int)
            return total - self._counted
        return self._match(
            "match_across", left, right, {"left_runs": self._tags[0], "right_runs": self._tags[1]}
        )

    def _merged(self, side: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Merge the runs of a side, in groups if there are more than MOST_SORTED_RUNS."""
        runs = self._runs[side]
        while len(runs) > 1:
            groups = portions(len(runs), -(-len(runs) // MOST_SORTED_RUNS))
            runs = [self._merge(runs[lo:hi]) for lo, hi in groups]
        merged: tuple[np.ndarray, np.ndarray | None] = runs[0]
        return merged

    def _merge(self, runs: list[Any]) -> tuple[np.ndarray, np.ndarray | None]:
        ends = np.cumsum([len(words) for words, _ in runs]).tolist()
        spans = list(zip([0, *ends[:-1]], ends, strict=True))
        given: dict[str, Any] = {"words": np.concatenate([words for words, _ in runs])}
        given["to_words"] = np.empty(ends[-1], np.uint64)
        if self._spec.pairs:
            given["rows"] = np.concatenate([rows for _, rows in runs])
            given["to_rows"] = np.empty(ends[-1], np.uint32)
        merge_all(self._kernels("merge_many", self._spec), given, spans, 0)
        return given["to_words"], given.get("to_rows")

    def _match(
        self,
        name: str,
        left: tuple[np.ndarray, np.ndarray | None],
        right: tuple[np.ndarray, np.ndarray | None],
        more: dict[str, Any],
    ) -> Found:
        values: dict[str, Any] = {**more}
        for side, (words, rows) in (("left", left), ("right", right)):
            values |= {
                f"{side}_words": words,
                f"{side}_rows": rows,
                f"{side}_lo": 0,
                f"{side}_hi": len(words),
            }
        call = self._kernels(name, self._spec)
        if not self._spec.pairs:
            return call(values)
        out = PairsOut(len(left[0]) + len(right[0]))
        match(call, values, out)
        return out.taken
