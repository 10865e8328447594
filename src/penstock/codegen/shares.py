"""Native code that takes share after share of rows: threads meet at a counter, and no Python runs between two shares.

Between two calls by Python, after a kernel has streamed megabytes through the caches, a thread spends a tenth of a
millisecond or two; so threads either wait long for the last of them, or often for Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

from penstock.codegen.effort import Effort
from penstock.codegen.names import ENTRY

if TYPE_CHECKING:
    from penstock.codegen.target import Loaded

# What a call is told, a word each (see `penstock_entry` below), and what it leaves behind.
COUNTER, MANY, BEGIN, END, SIZE, LO, HI, MOST, ROWS, STOPPED = range(10)
WORDS = 10

_TEXT = f"""
define i64 @{ENTRY}(ptr %frame, ptr %kernel, ptr %state) {{
begin:
  %counter.at = getelementptr i64, ptr %state, i64 {COUNTER}
  %counter = load ptr, ptr %counter.at
  %many.at = getelementptr i64, ptr %state, i64 {MANY}
  %many = load i64, ptr %many.at
  %first.at = getelementptr i64, ptr %state, i64 {BEGIN}
  %first = load i64, ptr %first.at
  %end.at = getelementptr i64, ptr %state, i64 {END}
  %end = load i64, ptr %end.at
  %size.at = getelementptr i64, ptr %state, i64 {SIZE}
  %size = load i64, ptr %size.at
  %lo.place.at = getelementptr i64, ptr %state, i64 {LO}
  %lo.place = load i64, ptr %lo.place.at
  %lo.at = getelementptr i64, ptr %frame, i64 %lo.place
  %hi.place.at = getelementptr i64, ptr %state, i64 {HI}
  %hi.place = load i64, ptr %hi.place.at
  %hi.at = getelementptr i64, ptr %frame, i64 %hi.place
  %most.at = getelementptr i64, ptr %state, i64 {MOST}
  %most = load i64, ptr %most.at
  %rows.at = getelementptr i64, ptr %state, i64 {ROWS}
  br label %ask

ask:
  %done = phi i64 [ 0, %begin ], [ %done.next, %went ]
  %may = icmp slt i64 %done, %most
  br i1 %may, label %take, label %leave

take:
  %place = atomicrmw add ptr %counter, i64 1 monotonic
  %there = icmp slt i64 %place, %many
  br i1 %there, label %go, label %leave

go:
  %skipped = mul i64 %place, %size
  %lo = add i64 %first, %skipped
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
  %stopped.at = getelementptr i64, ptr %state, i64 {STOPPED}
  store i64 %hi, ptr %stopped.at
  ret i64 %upto

leave:
  ret i64 -1
}}
"""


class Rounds:
    """The compiled code, made by whoever asks first, and alive as long as this process: threads may be within it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loaded: Loaded | None = None
        self._call: Callable[[int, int, int], int] | None = None

    def __call__(self, frame: int, kernel: int, state: int) -> int:
        """Call it with the addresses of a kernel's frame, of the kernel and of the state.

        It gives -1 when no share is left or it has taken as many as it may, else the row at which the kernel stopped.
        """
        return (self._call or self._made())(frame, kernel, state)

    def _made(self) -> Callable[[int, int, int], int]:
        from penstock.codegen.target import Loaded, to_object  # noqa: PLC0415 - loads LLVM

        with self._lock:
            if self._call is None:
                self._loaded = Loaded(to_object(_TEXT, Effort.QUICK))
                address = ctypes.c_void_p
                made = ctypes.CFUNCTYPE(ctypes.c_int64, address, address, address)
                self._call = made(self._loaded.address)
            return self._call


ROUNDS = Rounds()
