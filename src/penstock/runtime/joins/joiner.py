"""What joins the rows of one window: the contract between the runtime and the join algorithms.

A joiner sees nothing but key codes, one int64 for each row: equal codes are equal keys, and any int64 may
occur. Rows whose key is null never reach it. It answers with places of rows, or with their number.
"""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np

Pairs = tuple[np.ndarray, np.ndarray]  # places of left rows, places of right rows: int64, of one length
Emit = Literal["pairs", "count"]


class LazyJoiner(Protocol):
    """An algorithm that waits for the whole window."""

    name: str

    def join(self, left: np.ndarray, right: np.ndarray, emit: Emit, threads: int) -> Pairs | int:
        """Give every pair of rows with equal codes, each once and in any order; or only how many there are."""


class EagerRun(Protocol):
    """One window while its rows arrive. Places count the rows of a side in the order they were pushed."""

    def push_left(self, codes: np.ndarray) -> Pairs:
        """Take left rows; give pairs that are new, if the algorithm knows any yet."""

    def push_right(self, codes: np.ndarray) -> Pairs:
        """Take right rows; give pairs that are new, if the algorithm knows any yet."""

    def close(self) -> Pairs:
        """Learn that the window is complete; give the pairs that are left. Each pair is given exactly once."""


class EagerJoiner(Protocol):
    """An algorithm that gives pairs as rows arrive."""

    name: str

    def open(self, threads: int) -> EagerRun:
        """Begin a window."""


Joiner = LazyJoiner | EagerJoiner
