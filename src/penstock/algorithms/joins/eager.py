"""The eager joiners: rows distributed over workers, of which each runs a symmetric hash or a progressive merge join.

Join-matrix (jm) distributes without reading codes: every worker gets all left rows and an equal share of the
right rows. Join-biclique (jb) routes a row to a group of workers by the hash of its code; a group works like
jm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from penstock.algorithms.joins.joiner import (
    ROWS_FOR_ONE_THREAD,
    Emit,
    Found,
    Kernels,
    Pairs,
    PairsOut,
    RowSlice,
    Spare,
    check_size,
    nothing,
    portions,
    slots_for,
    together,
)
from penstock.algorithms.joins.sort_merge import match, merge_all, passes_for
from penstock.loop.abi import DONE, KEYS, MOST_SORTED_RUNS, NEED_KEYS, OUTPUT, STATUS, JoinSpec
from penstock.runtime.threads import run_on_threads


class EagerWorker(Protocol):
    """A stream join on one thread."""

    def push(self, side: int, piece: RowSlice) -> Found: ...

    def close(self) -> Found: ...


MakeWorker = Callable[[Kernels, JoinSpec, Spare], EagerWorker]


@dataclass
class Eager:
    """An eager joiner by name. `group` is the number of workers in a group of jb.

    Workers of jm read rows in place; with `copies`, each worker gets a private copy of its share.
    """

    name: str
    kernels: Kernels
    worker: MakeWorker
    biclique: bool
    group: int = 1
    copies: bool = False
    spares: list[Spare] = field(default_factory=list)

    def open(self, threads: int, emit: Emit = "pairs") -> EagerWindow:
        """Open a window."""
        groups = max(threads // self.group, 1) if self.biclique else 1
        spec = JoinSpec(pairs=emit == "pairs", routed=groups > 1)
        return EagerWindow(self, spec, groups, max(threads // groups, 1))

    def take_spare(self) -> Spare:
        """Return buffers that no open window uses."""
        try:
            return self.spares.pop()
        except IndexError:
            return Spare()


class EagerWindow:
    """One window while its rows arrive, distributed over groups of workers."""

    def __init__(self, joiner: Eager, spec: JoinSpec, groups: int, per_group: int) -> None:
        self._joiner, self._kernels, self._spec = joiner, joiner.kernels, spec
        self._spares = [joiner.take_spare() for _ in range(groups * per_group)]
        workers = [joiner.worker(joiner.kernels, spec, spare) for spare in self._spares]
        self._groups = [workers[at : at + per_group] for at in range(0, groups * per_group, per_group)]
        self._rows = [0, 0]

    def push_left(self, codes: np.ndarray) -> Pairs:
        """Add left rows; return the new pairs found so far."""
        return as_pairs(self.push(0, codes))

    def push_right(self, codes: np.ndarray) -> Pairs:
        """Add right rows; return the new pairs found so far."""
        return as_pairs(self.push(1, codes))

    def close(self) -> Pairs:
        """Complete the window; return the remaining pairs."""
        return as_pairs(self.finish())

    def push(self, side: int, codes: np.ndarray) -> Found:
        """Add rows of side 0 (left) or 1 (right); return pairs, or their number, as set in `open`."""
        codes = np.ascontiguousarray(codes, np.int64)
        check_size(self._rows[side] + len(codes))
        base = self._rows[side]
        self._rows[side] += len(codes)
        work = [
            partial(worker.push, side, piece)
            for workers, routed in zip(self._groups, self._route(codes, base), strict=True)
            for worker, piece in zip(workers, self._shares(side, routed, len(workers)), strict=True)
            if piece.rows
        ]
        return self._run(work, len(codes))

    def finish(self) -> Found:
        """Complete the window; return the remaining pairs, or their number."""
        found = self._run([worker.close for group in self._groups for worker in group], sum(self._rows))
        self._joiner.spares.extend(self._spares)
        self._spares, self._groups = [], []
        return found

    def _shares(self, side: int, piece: RowSlice, workers: int) -> list[RowSlice]:
        given = shares(side, piece, workers)
        return [argument.copied() for argument in given] if self._joiner.copies else given

    def _route(self, codes: np.ndarray, base: int) -> list[RowSlice]:
        """Route the rows to groups. A single group gets all rows unchanged."""
        groups, last = len(self._groups), base + len(codes)
        if groups == 1:
            return [RowSlice(codes, 0, len(codes), base, last)]
        counts = np.zeros(groups, np.int64)
        given = {"codes": codes, "lo": 0, "hi": len(codes), "groups": groups, "base": base}
        self._kernels("route_count", JoinSpec())({**given, "counts": counts})
        ends = np.cumsum(counts)
        routed, numbers = np.empty(len(codes), np.int64), np.empty(len(codes), np.uint32)
        route = self._kernels("route_rows", replace(self._spec, routed=False))
        route({**given, "cursors": ends - counts, "routed": routed, "numbers": numbers})
        spans = zip((ends - counts).tolist(), ends.tolist(), strict=True)
        return [RowSlice(routed, lo, hi, 0, last, numbers) for lo, hi in spans]

    def _run(self, work: Sequence[Callable[[], Found]], rows: int) -> Found:
        """Run the workers' calls, one thread each unless rows are few; combine their results."""
        found: list[Found] = []

        def gather(call: Callable[[], Found]) -> None:
            found.append(call())

        if rows < ROWS_FOR_ONE_THREAD:
            for call in work:
                gather(call)
        elif work:
            run_on_threads([partial(gather, call) for call in work])
        if not self._spec.pairs:
            return sum(result for result in found if isinstance(result, int))
        parts = [result for result in found if not isinstance(result, int)]
        return together(parts) if parts else nothing()


def shares(side: int, piece: RowSlice, workers: int) -> list[RowSlice]:
    """Return the share of each worker of a group: all left rows, or a portion of the right rows."""
    if side == 0:
        return [piece] * workers
    return [replace(piece, lo=piece.lo + lo, hi=piece.lo + hi) for lo, hi in portions(piece.rows, workers)]


def as_pairs(found: Found) -> Pairs:
    assert not isinstance(found, int), "a window opened to count cannot return pairs"
    return found


FIRST_SLOTS = 1 << 10


class SymmetricHash:
    """Takes rows of either side at any time, and returns their matches at once."""

    def __init__(self, kernels: Kernels, spec: JoinSpec, spare: Spare) -> None:
        self._kernels, self._spec, self._spare = kernels, spec, spare
        self._table = spare.arena.zeros("table", 2 * max(spare.slots, FIRST_SLOTS), np.uint64)
        self._next = [np.empty(0, np.uint32), np.empty(0, np.uint32)]
        self._keys = 0

    def push(self, side: int, piece: RowSlice) -> Found:
        """Insert the rows of a piece, and return their matches."""
        call = self._kernels("shj_push_left" if side == 0 else "shj_push_right", self._spec)
        out = PairsOut(2 * piece.rows if self._spec.pairs else 1)
        values = self._arguments(side, piece)
        out.head[KEYS] = self._keys
        at = piece.lo
        while True:
            slots = len(self._table) // 2
            table = {"table": self._table, "mask": slots - 1, "key_capacity": slots // 2}
            at = call({**values, **table, **out.arguments, "lo": at})
            if out.head[STATUS] == DONE:
                break
            self._grow() if out.head[STATUS] == NEED_KEYS else out.grow()
        self._keys = int(out.head[KEYS])
        return out.taken if self._spec.pairs else int(out.head[OUTPUT])

    def close(self) -> Found:
        self._spare.arena.keep("table", self._table)
        self._spare.slots = slots_for(self._keys)
        return nothing() if self._spec.pairs else 0

    def _arguments(self, side: int, piece: RowSlice) -> dict[str, Any]:
        values: dict[str, Any] = {"codes": piece.codes, "hi": piece.hi, "base": piece.base}
        if self._spec.pairs:
            self._reach(side, piece.last)
            values |= {"own_next": self._next[side], "other_next": self._next[1 - side]}
            values["numbers"] = piece.numbers
        return values

    def _reach(self, side: int, rows: int) -> None:
        """Make room for the chains of rows up to this number."""
        old = self._next[side]
        if len(old) < rows:
            self._next[side] = np.empty(max(rows, 2 * len(old)), np.uint32)
            self._next[side][: len(old)] = old

    def _grow(self) -> None:
        """Rehash into a table four times as large: rare growth matters more than untouched memory."""
        slots = len(self._table) // 2
        larger = np.zeros(8 * slots, np.uint64)
        grow = self._kernels("shj_grow", JoinSpec())
        grow({"table": self._table, "slots": slots, "larger": larger, "mask": 4 * slots - 1})
        self._table = larger


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
