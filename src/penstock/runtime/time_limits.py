"""Checked arithmetic on times near the limits of 64 bits."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.errors import OverflowError
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME

_BEYOND = "a window reaches beyond the range of 64-bit times; filter the rows that do"


def does_not_fit(dtype: pa.DataType) -> OverflowError:
    """The error for window bounds that do not fit the time column's type."""
    if dtype.bit_width == 64:
        return OverflowError(_BEYOND)
    return OverflowError(
        f"the bounds of a window do not fit the time column's type {dtype}; cast it to a wider one"
    )


def is_within_reach(times: np.ndarray, below: int, above: int) -> bool:
    """Whether each time minus `below` and plus `above` fits 64 bits."""
    return not len(times) or (
        int(times.min()) >= START_OF_TIME + below and int(times.max()) <= END_OF_TIME - above
    )


def within_reach(times: np.ndarray, below: int, above: int) -> np.ndarray:
    """Refuse times so near the limits of 64 bits that windows around them would overflow."""
    if not is_within_reach(times, below, above):
        raise OverflowError(_BEYOND)
    return times


def moved(times: np.ndarray, by: int) -> np.ndarray:
    """Times shifted by `by`, which may be negative, clamped to the 64-bit range."""
    if by >= 0:
        return np.where(times > END_OF_TIME - by, END_OF_TIME, times + by)
    return np.where(times < START_OF_TIME - by, START_OF_TIME, times + by)
