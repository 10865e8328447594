"""Native morsel scheduler: threads claim morsels of rows from atomic counters, without calls from Python.

A call from Python after a kernel has streamed megabytes through the caches costs 0.1 to 0.2 ms. With one call
per morsel, large morsels would leave threads idle at the end and small ones would pay this cost often. The
threads are native as well: a Python thread would first have to acquire the interpreter lock, which the thread
that wakes it holds.
"""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from penstock.codegen.llvm import OptimisationLevel
from penstock.loop.numbers import Morsels, Progress

if TYPE_CHECKING:
    from penstock.codegen.target import Loaded

WORD = 8  # bytes
HAS_THREADS = os.name == "posix"

_LIST_BYTES = 5 * WORD  # of a list of morsels (`LIST` in codegen/scheduler_module.py)
_REPORTED = (
    3  # result words at the end of the arguments of a thread (`MEMBER` in codegen/scheduler_module.py)
)


_SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)


class ArgumentFrame(NamedTuple):
    """The argument words of a kernel over rows, their address, and the addresses of the row limits among them."""

    words: array[int]
    start: int
    lo: int
    hi: int

    @classmethod
    def of(cls, words: array[int], lo: int, hi: int) -> ArgumentFrame:
        """Frame words whose indices `lo` and `hi` are the row limits."""
        start = _start(words)
        return cls(words, start, start + lo * WORD, start + hi * WORD)


class MorselScheduler:
    """The compiled scheduler: built on first use, never unloaded, since threads may be executing it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loaded: Loaded | None = None
        self._call: Callable[..., int] | None = None

    def through(
        self,
        kernel: int,
        frames: Sequence[ArgumentFrame],
        shares: Sequence[Morsels],
        most: int,
        apart: bool = False,
    ) -> list[Progress]:
        """Call the kernel at address `kernel` for all morsels, with one thread per frame.

        Thread i starts with the i-th list of morsels, then steals from the other lists, unless they are kept apart.
        """
        call = self._call or self._made()
        lists, members = array("q"), array("q")
        for share in shares:
            lists.extend((_start(share.taken), share.many, share.begin, share.end, share.size))
        helped, threads = array("q", [0]), array("q", [0] * 2 * len(frames))
        first, many = _start(lists), len(shares)
        reported = _start(helped), 0, 0, -1, 0
        for nth, (_, start, lo, hi) in enumerate(frames):
            given = (first + nth * _LIST_BYTES, 1, 0) if apart else (first, many, nth)
            members.extend((kernel, start, lo, hi, most, *given, *reported))
        call(_start(members), len(frames), _start(threads))
        words = len(members) // len(frames)
        ends = range(words, len(members) + 1, words)
        return [_progress(*members[end - _REPORTED : end]) for end in ends]

    def _made(self) -> Callable[..., int]:
        from penstock.codegen.scheduler_module import scheduler_module  # noqa: PLC0415 - loads LLVM
        from penstock.codegen.target import Loaded, to_object  # noqa: PLC0415

        with self._lock:
            if self._call is None:
                self._loaded = Loaded(to_object(scheduler_module(HAS_THREADS), OptimisationLevel.QUICK))
                self._call = _SIGNATURE(self._loaded.address)
            return self._call


def _progress(rows: int, stop: int, end: int) -> Progress:
    return Progress(rows, None if stop < 0 else (stop, end))


def _start(words: array[int]) -> int:
    return words.buffer_info()[0]


MORSEL_SCHEDULER = MorselScheduler()
