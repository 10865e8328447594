"""The machine type of each Arrow type inside a kernel."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

import pyarrow as pa

from penstock.loop import nodes as loop
from penstock.types.arrow import FEW_DIGITS, kind_of

_NUMBERS: dict[pa.DataType, loop.Type] = {
    pa.bool_(): loop.BOOL,
    pa.int8(): loop.I8,
    pa.int16(): loop.I16,
    pa.int32(): loop.I32,
    pa.int64(): loop.I64,
    pa.uint8(): loop.U8,
    pa.uint16(): loop.U16,
    pa.uint32(): loop.U32,
    pa.uint64(): loop.U64,
    pa.float32(): loop.F32,
    pa.float64(): loop.F64,
    pa.date32(): loop.I32,
    pa.date64(): loop.I64,
}


def is_text(dtype: pa.DataType) -> bool:
    """Return whether values are strings, plain or dictionary-encoded."""
    if pa.types.is_dictionary(dtype):
        return is_text(dtype.value_type)
    texts = pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view
    return any(is_kind(dtype) for is_kind in texts)


def embeds(source: loop.Type, goal: loop.Type) -> bool:
    """Return whether an integer type holds every value of another."""
    if source.kind == goal.kind or source == loop.BOOL:
        return source.bits <= goal.bits
    return source.kind == "uint" and source.bits < goal.bits


def machine_type(dtype: pa.DataType) -> loop.Type | None:
    """Return the machine type of fixed-width values, or None for types kernels do not compute with.

    A decimal is its digits without the point.
    """
    if kind_of(dtype) == "decimal":
        return loop.I64 if dtype.precision <= FEW_DIGITS else loop.I128
    if pa.types.is_timestamp(dtype) or pa.types.is_duration(dtype):
        return loop.I64
    return _NUMBERS.get(dtype)


# --- Morsels: ranges of rows that threads claim independently.


@dataclass(frozen=True, slots=True)
class Morsels:
    """Rows from `begin` up to `end` in morsels of `size` rows; `taken[0]` counts claims, including failed ones.

    Native code increments the counter in place; `next` is for interpreted kernels.

    >>> shares = Morsels(10, 15, 3)
    >>> shares.many, shares.next(), shares.next(), shares.next(), shares.left
    (2, (10, 13), (13, 15), None, 0)
    """

    begin: int
    end: int
    size: int
    taken: array[int] = field(default_factory=lambda: array("q", [0]))
    _lock: Lock = field(default_factory=Lock)

    @property
    def many(self) -> int:
        return -(-(self.end - self.begin) // self.size)

    @property
    def left(self) -> int:
        """The number of unclaimed morsels."""
        return max(self.many - self.taken[0], 0)

    def next(self) -> tuple[int, int] | None:
        """Claim a morsel; None if none is left."""
        with self._lock:
            lo = self.begin + self.taken[0] * self.size
            self.taken[0] += 1
        return (lo, min(lo + self.size, self.end)) if lo < self.end else None


class Progress(NamedTuple):
    """The rows processed; if the kernel stopped within a morsel, the row where it stopped and the morsel's end."""

    rows: int
    stop: tuple[int, int] | None
