"""Pairs in the order of the left rows, then of the right ones: the same whatever algorithm and threads gave them."""

from __future__ import annotations

import numpy as np

from penstock.loop.joins import JoinSpec
from penstock.runtime.joining.memory import Kernels
from penstock.runtime.joins.joiner import Pairs

MOST_PAIRS = (1 << 32) - 1  # counted in 32 bits
FEW_FOR_ROWS = 4  # with so many times more rows than pairs, counting rows costs more than comparing pairs


def in_order(kernels: Kernels, pairs: Pairs, rows: tuple[int, int]) -> Pairs:
    """Order pairs of sides with so many rows each, by counting: first by the right rows, then by the left ones."""
    left, right = (np.ascontiguousarray(side) for side in pairs)
    if kernels("pairs_ordered", JoinSpec())({"first": left, "second": right, "pairs": len(left)}):
        return left, right
    if len(left) > MOST_PAIRS or sum(rows) > FEW_FOR_ROWS * len(left):
        order = np.lexsort([right, left])
        return left[order], right[order]
    right, left = _by_first(kernels, right, left, rows[1])
    return _by_first(kernels, left, right, rows[0])


def _by_first(kernels: Kernels, first: np.ndarray, second: np.ndarray, rows: int) -> Pairs:
    to_first, to_second = np.empty_like(first), np.empty_like(second)
    kernels("order_pairs", JoinSpec())(
        {
            "first": first,
            "second": second,
            "pairs": len(first),
            "to_first": to_first,
            "to_second": to_second,
            "counts": np.zeros(rows, np.uint32),
            "rows": rows,
        }
    )
    return to_first, to_second
