"""The interface between join stages and join algorithms; their buffers, units of input, and the base of lazy joiners.

A joiner takes only key codes, one int64 per row: equal codes are equal keys, and any int64 may occur. Rows with
a null key are excluded. A joiner returns row indices, or the number of pairs.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, Protocol

import numpy as np

from penstock.errors import EngineError
from penstock.loop.abi import DONE, OUTPUT, STATUS, WORDS, JoinSpec
from penstock.runtime.kernels import Call

Pairs = tuple[np.ndarray, np.ndarray]  # indices of left rows, of right rows: int64, of one length
Emit = Literal["pairs", "count"]


class LazyJoiner(Protocol):
    """An algorithm that needs the whole window."""

    name: str

    def join(self, left: np.ndarray, right: np.ndarray, emit: Emit, threads: int) -> Pairs | int:
        """Return every pair of rows with equal codes, each once and in any order; or only the number of pairs."""


class EagerRun(Protocol):
    """One window while its rows arrive. Row indices count the rows of a side in push order."""

    def push_left(self, codes: np.ndarray) -> Pairs:
        """Add left rows; return new pairs, if the algorithm has found any."""

    def push_right(self, codes: np.ndarray) -> Pairs:
        """Add right rows; return new pairs, if the algorithm has found any."""

    def close(self) -> Pairs:
        """Complete the window; return the remaining pairs. Each pair is returned exactly once."""


class EagerJoiner(Protocol):
    """An algorithm that returns pairs as rows arrive."""

    name: str

    def open(self, threads: int) -> EagerRun:
        """Open a window."""


Joiner = LazyJoiner | EagerJoiner


Kernels = Callable[[str, JoinSpec], Call]
"""A kernel of `kernels/joins` by name, made for a spec."""

MOST_SIDE_ROWS = (1 << 32) - 2  # of one side: row numbers have 32 bits, and 0 means none
ROWS_FOR_ONE_THREAD = 1 << 15  # with fewer rows, threads cost more than they save


class Arena:
    """Arrays by name, kept at the largest size requested: fresh pages cost more than the join."""

    def __init__(self) -> None:
        self._kept: dict[str, np.ndarray] = {}

    def array(self, name: str, size: int, dtype: Any) -> np.ndarray:
        """Return an uninitialised array of this size."""
        kept = self._kept.get(name)
        if kept is None or len(kept) < size or kept.dtype != dtype:
            kept = self._kept[name] = np.empty(size, dtype)
        return kept[:size]

    def keep(self, name: str, array: np.ndarray) -> None:
        """Store an array made elsewhere under a name."""
        self._kept[name] = array

    def zeros(self, name: str, size: int, dtype: Any) -> np.ndarray:
        array = self.array(name, size, dtype)
        array.fill(0)
        return array


@dataclass
class Spare:
    """State that a worker of an eager join passes to a worker of a later window: buffers, and the size of its
    table.
    """

    arena: Arena = field(default_factory=Arena)
    slots: int = 0


def slots_for(rows: int) -> int:
    """Return a power of two, at least twice the number of rows."""
    return 1 << (2 * max(rows, 2) - 1).bit_length()


class PairsOut:
    """Output arrays of matches for a kernel, doubled whenever the kernel reports them full."""

    def __init__(self, capacity: int) -> None:
        self._left, self._right = (np.empty(max(capacity, 1), np.int64) for _ in range(2))
        self.head = np.zeros(WORDS, np.int64)

    @property
    def arguments(self) -> dict[str, Any]:
        return {
            "out_left": self._left,
            "out_right": self._right,
            "out_capacity": len(self._left),
            "head": self.head,
        }

    def grow(self) -> None:
        used = int(self.head[OUTPUT])
        for name in ("_left", "_right"):
            old = getattr(self, name)
            new = np.empty(2 * len(old), np.int64)
            new[:used] = old[:used]
            setattr(self, name, new)

    @property
    def taken(self) -> tuple[np.ndarray, np.ndarray]:
        used = int(self.head[OUTPUT])
        return self._left[:used], self._right[:used]


def fill(call: Call, values: Mapping[str, Any], out: PairsOut, position: str = "lo") -> None:
    """Call a kernel repeatedly, from where it stopped, until all its matches are written."""
    at = values[position]
    while True:
        at = call({**values, **out.arguments, position: at})
        if out.head[STATUS] == DONE:
            return
        out.grow()


def together(
    parts: Sequence[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    """Concatenate the pairs of several threads."""
    if len(parts) == 1:
        return parts[0]
    left, right = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
    return left, right


def nothing() -> tuple[np.ndarray, np.ndarray]:
    return np.empty(0, np.int64), np.empty(0, np.int64)


def portions(rows: int, parts: int) -> list[tuple[int, int]]:
    """Cut rows into portions of almost equal length."""
    cuts = [rows * part // parts for part in range(parts + 1)]
    return list(pairwise(cuts))


def check_size(*sides: int) -> None:
    if max(sides) > MOST_SIDE_ROWS:
        raise EngineError(
            f"a join takes at most {MOST_SIDE_ROWS:,} rows of a side in one window; use a shorter window"
        )


Found = tuple[np.ndarray, np.ndarray] | int
"""Pairs that are new, or how many."""


@dataclass(frozen=True)
class RowSlice:
    """The rows `lo … hi` of some codes. A row's number is base + index, or listed in `numbers` (routed rows).

    `last` is greater than any row number.
    """

    codes: np.ndarray
    lo: int
    hi: int
    base: int
    last: int
    numbers: np.ndarray | None = None

    @property
    def rows(self) -> int:
        return self.hi - self.lo

    def row_numbers(self) -> np.ndarray:
        if self.numbers is not None:
            return self.numbers[self.lo : self.hi]
        return np.arange(self.base + self.lo, self.base + self.hi, dtype=np.uint32)

    def copied(self) -> RowSlice:
        """Return the same rows with copied arrays."""
        numbers = None if self.numbers is None else self.row_numbers().copy()
        codes = self.codes[self.lo : self.hi].copy()
        return RowSlice(codes, 0, self.rows, self.base + self.lo, self.last, numbers)


# An array indexed by code is worth it with at most this many cells per row.
CELLS_PER_ROW = 4
LARGER = 2
_GREATEST, _LEAST = (1 << 63) - 1, -(1 << 63)


@dataclass(frozen=True)
class WindowCodes:
    """Two columns of codes: the build side and the probe side; `swapped`: the right side is the build side."""

    build: np.ndarray
    probe: np.ndarray
    swapped: bool
    least: int
    span: int  # greatest code - least
    spec: JoinSpec
    threads: int

    def oriented(self, pairs: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return pairs of (build, probe) rows as (left, right)."""
        return (pairs[1], pairs[0]) if self.swapped else pairs


def survey(kernels: Kernels, left: np.ndarray, right: np.ndarray, pairs: bool, threads: int) -> WindowCodes:
    """Find the range of codes in one pass; choose the word width, and whether words can index arrays."""
    check_size(len(left), len(right))
    sides = [np.ascontiguousarray(side, np.int64) for side in (left, right)]
    bounds = np.array([_GREATEST, _LEAST], np.int64)
    look = kernels("range_of", JoinSpec())
    for side in sides:
        look({"codes": side, "lo": 0, "hi": len(side), "bounds": bounds})
    least, span = int(bounds[0]), int(bounds[1]) - int(bounds[0])
    rows = len(left) + len(right)
    dense = span < CELLS_PER_ROW * rows
    spec = JoinSpec(wide=span >= 1 << 32, dense=dense, pairs=pairs)
    # Pairs are in the order of the probing rows. Probing with left rows justifies a larger table.
    swapped = len(right) <= (LARGER if pairs else 1) * len(left)
    build, probe = reversed(sides) if swapped else sides
    workers = threads if rows >= ROWS_FOR_ONE_THREAD else 1
    return WindowCodes(build, probe, swapped, least, span, spec, workers)


def shared(window: WindowCodes) -> JoinSpec:
    """Return the spec of kernels that several threads run on one table."""
    return replace(window.spec, shared=window.threads > 1)


class Lazy(ABC):
    """A lazy joiner. Its buffers are reused by the next window, so it joins one window at a time.

    `seconds` holds the durations of the last window's phases: partition, build, sort, merge, probe.
    """

    name: str

    def __init__(self, kernels: Kernels, clock: Callable[[], float] = time.perf_counter) -> None:
        self.kernels, self.arena, self.clock = kernels, Arena(), clock
        self.seconds: dict[str, float] = {}

    def join(self, left: np.ndarray, right: np.ndarray, emit: Emit, threads: int) -> Pairs | int:
        """Return every pair of rows with equal codes, each once and in any order; or only the number of pairs."""
        self.seconds = {}
        if not (len(left) and len(right)):
            return nothing() if emit == "pairs" else 0
        with self.phase("partition"):
            window = survey(self.kernels, left, right, emit == "pairs", threads)
        return window.oriented(self.pairs(window)) if emit == "pairs" else self.count(window)

    @abstractmethod
    def count(self, window: WindowCodes) -> int:
        """Count the matches."""

    @abstractmethod
    def pairs(self, window: WindowCodes) -> tuple[np.ndarray, np.ndarray]:
        """Return the matches as rows of (build, probe)."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        begin = self.clock()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + self.clock() - begin
