"""The range of a window's codes, and the choice of build side and kernel spec before a lazy join."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from penstock.algorithms.joins.memory import ROWS_FOR_ONE_THREAD, Kernels, check_size
from penstock.loop.abi import JoinSpec

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
