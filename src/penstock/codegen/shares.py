"""Native code that takes share after share of rows: threads meet at a counter, and no Python runs between two shares.

Between two calls by Python, after a kernel has streamed megabytes through the caches, a thread spends a tenth of a
millisecond or two; so threads either wait long for the last of them, or often for Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.codegen.effort import Effort
from penstock.codegen.names import ENTRY
from penstock.loop.shares import Shares, Went

if TYPE_CHECKING:
    from penstock.codegen.target import Loaded

WORD = 8  # bytes

# Shares are numbered by the counter. Each goes into the kernel's frame as its limits, at `lo.at` and `hi.at`. Gives -1 when no
# share is left, or as many are done as asked for; else the row at which the kernel stopped, and leaves the end of its share.
_TEXT = f"""
define i64 @{ENTRY}(ptr %kernel, ptr %frame, ptr %lo.at, ptr %hi.at, ptr %counter, i64 %many, i64 %begin, i64 %end, i64 %size,
                    i64 %most, ptr %rows.at, ptr %stopped.at) {{
enter:
  br label %ask

ask:
  %done = phi i64 [ 0, %enter ], [ %done.next, %went ]
  %may = icmp slt i64 %done, %most
  br i1 %may, label %take, label %leave

take:
  %place = atomicrmw add ptr %counter, i64 1 monotonic
  %there = icmp slt i64 %place, %many
  br i1 %there, label %go, label %leave

go:
  %skipped = mul i64 %place, %size
  %lo = add i64 %begin, %skipped
  %full = add i64 %lo, %size
  %short = icmp slt i64 %full, %end
  %hi = select i1 %short, i64 %full, i64 %end
  store i64 %lo, ptr %lo.at
  store i64 %hi, ptr %hi.at
  %upto = call i64 %kernel(ptr %frame)
  %before = load i64, ptr %rows.at
  %more = sub i64 %hi, %lo
  %after = add i64 %before, %more
  store i64 %after, ptr %rows.at
  %whole = icmp sge i64 %upto, %hi
  br i1 %whole, label %went, label %stop

went:
  %done.next = add i64 %done, 1
  br label %ask

stop:
  store i64 %hi, ptr %stopped.at
  ret i64 %upto

leave:
  ret i64 -1
}}
"""
_ADDRESS, _NUMBER = ctypes.c_void_p, ctypes.c_int64
_SIGNATURE = ctypes.CFUNCTYPE(_NUMBER, *[_ADDRESS] * 5, *[_NUMBER] * 5, *[_ADDRESS] * 2)


class Rounds:
    """The compiled code, made by whoever asks first, and alive as long as this process: threads may be within it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loaded: Loaded | None = None
        self._call: Callable[..., int] | None = None

    def through(self, shares: Shares, most: int, kernel: int, frame: bytearray, lo: int, hi: int) -> Went:
        """Call the kernel at an address with its frame for share after share, their limits at two places of the frame."""
        call = self._call or self._made()
        start, out = pa.py_buffer(frame).address, np.zeros(2, np.int64)
        stop = call(
            *(kernel, start, start + lo * WORD, start + hi * WORD),
            *(_address(shares.taken), shares.many, shares.begin, shares.end, shares.size, most),
            *(_address(out), _address(out[1:])),
        )
        rows, end = out.tolist()
        return Went(rows, None if stop < 0 else (stop, end))

    def _made(self) -> Callable[..., int]:
        from penstock.codegen.target import Loaded, to_object  # noqa: PLC0415 - loads LLVM

        with self._lock:
            if self._call is None:
                self._loaded = Loaded(to_object(_TEXT, Effort.QUICK))
                self._call = _SIGNATURE(self._loaded.address)
            return self._call


def _address(words: npt.NDArray[np.int64]) -> int:
    return int(pa.py_buffer(words).address)


ROUNDS = Rounds()
