"""Columns of pairs of rows: values gathered by row index, on all threads, into reused buffers.

Kernels gather values of 1, 2, 4 or 8 bytes without nulls; Arrow takes all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.algorithms.joins.memory import portions
from penstock.loop.nodes import I32, I64, U8, U16, U32, U64, Type
from penstock.runtime.buffers import room
from penstock.runtime.kernels import Call
from penstock.runtime.threads import run_on_threads

_BY_WIDTH = {1: U8, 2: U16, 4: U32, 8: U64}
_NUMPY = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
FEW_PAIRS = 1 << 15  # fewer pairs do not justify a second thread

Work = Callable[[int, int], object]  # a range of the pairs: from, to


@dataclass(frozen=True)
class Gather:
    """The gather kernels."""

    values: Callable[[Type, Type], Call]
    later: Callable[[Type], Call]

    def column(self, source: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, Work]:
        """Return a buffer for the values at some indices, and the work that fills it."""
        width = source.dtype.itemsize
        out = room(len(places), source.dtype)
        call = self.values(_BY_WIDTH[width], place_type(places))
        same = _NUMPY[width]
        given = {"values": source.view(same), "places": places, "out": out.view(same)}
        return out, lambda lo, hi: call({**given, "lo": lo, "hi": hi})

    def later_of(
        self, times: tuple[np.ndarray, np.ndarray], pairs: tuple[np.ndarray, np.ndarray]
    ) -> tuple[np.ndarray, Work]:
        """Return a buffer for the later time of each pair, and the work that fills it."""
        out = room(len(pairs[0]))
        given = {"left": times[0], "right": times[1], "own": pairs[0], "other": pairs[1], "out": out}
        call = self.later(place_type(pairs[0]))
        return out, lambda lo, hi: call({**given, "lo": lo, "hi": hi})


def later_of(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, Work]:
    """Return a buffer for the elementwise later time, and the work that fills it."""
    out = room(len(left))
    return out, lambda lo, hi: np.maximum(left[lo:hi], right[lo:hi], out=out[lo:hi])


def same_memory(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays have the same type and address."""
    return one.dtype == other.dtype and one.__array_interface__["data"] == other.__array_interface__["data"]


def place_type(places: np.ndarray) -> Type:
    """Return the machine type of row indices."""
    return I32 if places.dtype == np.int32 else I64


def is_plain(array: pa.Array) -> bool:
    """Whether kernels can gather an array's values."""
    dtype = array.type
    simple = pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_temporal(dtype)
    return simple and not pa.types.is_interval(dtype) and not array.null_count


def share_out(work: Sequence[Work], rows: int, threads: int) -> None:
    """Run all work, with a portion of the pairs on each thread."""

    def portion(lo: int, hi: int) -> None:
        for gather in work:
            gather(lo, hi)

    run_on_threads([partial(portion, *span) for span in portions(rows, threads if rows >= FEW_PAIRS else 1)])
