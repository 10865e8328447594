"""Leave out rows of the larger side whose key the smaller side does not have: a semi-join before the join.

A side of fifty rows needs no numbering of a million keys of the other: one look-up in fifty keys for each row of
the larger side is left, and the algorithms work on the rows that may have a partner.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.algorithms.sorted_partitions.rows import Rows
from penstock.operators.joins.windows import WindowRows

SMALLER = 16
"""How many times as many rows the larger side has, where it is reduced."""
LEAST_REDUCED_ROWS = 4_096
"""Fewer rows are joined faster than they are reduced."""
_REDUCIBLE = {"inner": (0, 1), "semi": (0, 1), "left": (1,), "anti": (1,), "right": (0,)}
"""The sides whose rows without a partner are in no result, by kind of join."""


def _arrow() -> Any:
    """Import Arrow's compute functions on first use: loading takes 50 ms."""
    import pyarrow.compute  # noqa: PLC0415

    return pyarrow.compute


def reduced_sides(
    left: Rows, right: Rows, keys: tuple[tuple[str, ...], tuple[str, ...]], how: str
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the rows of each side that may have a partner; None for all of them."""
    sides = left, right
    for side in _REDUCIBLE.get(how, ()):
        own, other = sides[side], sides[1 - side]
        if len(own) >= max(LEAST_REDUCED_ROWS, SMALLER * len(other)):
            found = _with_partner(own, other, keys[side], keys[1 - side])
            if found is not None:
                return (found, None) if side == 0 else (None, found)
    return None, None


def _with_partner(own: Rows, other: Rows, mine: Sequence[str], its: Sequence[str]) -> np.ndarray | None:
    """Select rows whose values of each key occur on the other side; None without a key that can be looked up."""
    found: np.ndarray | None = None
    for name, partner in zip(mine, its, strict=True):
        column, values = own.batch.column(name), other.batch.column(partner)
        if not _is_looked_up(column, values):
            continue
        among = column if found is None else column.take(pa.array(found))
        mask = _arrow().is_in(among, value_set=values.unique()).to_numpy(zero_copy_only=False)
        found = np.flatnonzero(mask) if found is None else found[mask]
    return found


def _is_looked_up(column: pa.Array, values: pa.Array) -> bool:
    """Whether equal keys are equal values: not for floats (-0.0), and not between types."""
    dtype = column.type
    plain = pa.types.is_integer(dtype) or pa.types.is_temporal(dtype) or pa.types.is_string(dtype)
    return bool(plain and dtype == values.type)


def run_of(run: WindowRows, kept: tuple[np.ndarray | None, np.ndarray | None]) -> WindowRows:
    """Return the ranges of a window among the rows that were kept."""
    spans = [
        span if rows is None else (int(np.searchsorted(rows, span[0])), int(np.searchsorted(rows, span[1])))
        for span, rows in zip((run.left, run.right), kept, strict=True)
    ]
    return WindowRows(run.start, run.end, spans[0], spans[1])
