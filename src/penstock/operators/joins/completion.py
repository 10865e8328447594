"""Complete a join: which rows without a partner are results, and which left rows a semi or an anti join gives."""

from __future__ import annotations

import numpy as np

from penstock.algorithms.joins.joiner import Pairs
from penstock.operators.joins.results import NULL_ROW
from penstock.types.windows import LEFT_ROW_KINDS

_PRESERVED = (("left", "full"), ("right", "full"))


def gives_left_rows(how: str) -> bool:
    """Return whether results are left rows alone (semi, anti)."""
    return how in LEFT_ROW_KINDS


def preserves(how: str, side: int) -> bool:
    """Return whether rows of a side (0 left, 1 right) without a partner are results, with nulls."""
    return how in _PRESERVED[side]


def alone(rows: np.ndarray, side: int) -> Pairs:
    """Pair rows of a side with the null row."""
    null_row = np.full(len(rows), NULL_ROW, rows.dtype)
    return (rows, null_row) if side == 0 else (null_row, rows)


def with_alone(pairs: Pairs, rows: np.ndarray, side: int) -> Pairs:
    """Append rows of a side without a partner to pairs."""
    left, right = (np.concatenate(both) for both in zip(pairs, alone(rows, side), strict=True))
    return left, right


def unmatched(rows: int, matched: np.ndarray) -> np.ndarray:
    """Return the indices of rows that are in no pair."""
    free = np.ones(rows, np.bool_)
    free[matched] = False
    return np.flatnonzero(free)


def partnered(rows: int, matched: np.ndarray) -> np.ndarray:
    """Return a mask of the rows that are in a pair."""
    found = np.zeros(rows, np.bool_)
    found[matched] = True
    return found


def left_rows(how: str, has_partner: np.ndarray, among: np.ndarray | None = None) -> np.ndarray:
    """Return the left rows that a semi or anti join gives: of all, or of the rows `among` that the mask describes.

    >>> left_rows("anti", np.array([True, False]), np.array([5, 7])).tolist()
    [7]
    """
    chosen = np.flatnonzero(has_partner == (how == "semi"))
    return chosen if among is None else among[chosen]


def completed(how: str, pairs: Pairs, rows: tuple[int, int]) -> tuple[Pairs, np.ndarray, np.ndarray]:
    """Append to pairs the rows of both sides that `how` preserves; return these left and right rows, too."""
    free = [
        unmatched(count, own) if preserves(how, side) else own[:0]
        for side, (count, own) in enumerate(zip(rows, pairs, strict=True))
    ]
    for side in (0, 1):
        pairs = with_alone(pairs, free[side], side) if len(free[side]) else pairs
    return pairs, free[0], free[1]
