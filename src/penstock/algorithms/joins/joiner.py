"""The interface between the join stages and the join algorithms, which join the rows of one window.

A joiner takes only key codes, one int64 per row: equal codes are equal keys, and any int64 may occur. Rows with
a null key are excluded. A joiner returns row indices, or the number of pairs.
"""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np

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
