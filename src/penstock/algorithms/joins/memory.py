"""Buffers of a join: arrays reused from window to window, and outputs that grow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.errors import EngineError
from penstock.loop.abi import DONE, OUTPUT, STATUS, WORDS, JoinSpec
from penstock.runtime.kernels import Call

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
