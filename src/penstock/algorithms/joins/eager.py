"""The eager joiners: a distribution of rows over workers, and the join that each worker runs.

Join-matrix (jm) distributes without reading codes: every worker gets all left rows and an equal share of the
right rows. Join-biclique (jb) routes a row to a group of workers by the hash of its code; a group works like
jm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import numpy as np

from penstock.algorithms.joins.joiner import Emit, Pairs
from penstock.algorithms.joins.memory import (
    ROWS_FOR_ONE_THREAD,
    Kernels,
    Spare,
    check_size,
    nothing,
    portions,
    together,
)
from penstock.algorithms.joins.row_slice import Found, RowSlice
from penstock.loop.abi import JoinSpec
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
