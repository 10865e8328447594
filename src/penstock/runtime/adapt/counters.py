"""Counters of this thread: hardware's through `perf_event_open` where the system allows, else those of the kernel.

    hardware   branch misses, cache misses
    software   page faults, preemptions: `getrusage` counts them on every Unix

Containers and virtual machines mostly have no hardware counters. Nothing depends on which are there.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Protocol


class Counters(Protocol):
    """Counters that only grow."""

    def read(self) -> Mapping[str, int]: ...


_CALL_NUMBERS = {"x86_64": 298, "aarch64": 241}
_HARDWARE = {"branch misses": 5, "cache misses": 3}  # PERF_TYPE_HARDWARE = 0: their numbers
_ATTRIBUTES = 112  # bytes of perf_event_attr, version 5
_GROUP, _USER_ONLY = 1 << 3, 1 << 5 | 1 << 6  # PERF_FORMAT_GROUP; exclude_kernel, exclude_hv
_CLOSE_ON_EXEC = 1 << 3  # PERF_FLAG_FD_CLOEXEC

Open = Callable[[int, int], int]  # (event, descriptor of the group's leader or -1) -> descriptor, or below 0


def perf_event_open(event: int, leader: int) -> int:
    """Open a hardware counter of this thread on any processor; below 0 if the system has none, or forbids it."""
    number = _CALL_NUMBERS.get(platform.machine())
    if sys.platform != "linux" or number is None:
        return -1
    attributes = struct.pack("=IIQQQQQ", 0, _ATTRIBUTES, event, 0, 0, _GROUP, _USER_ONLY)
    block = ctypes.create_string_buffer(attributes, _ATTRIBUTES)
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return int(call(ctypes.c_long(number), block, 0, -1, leader, ctypes.c_ulong(_CLOSE_ON_EXEC)))


class HardwareCounters:
    """One group of counters, read by one system call. It belongs to the thread that opened it."""

    def __init__(self, descriptors: list[int], names: list[str]) -> None:
        self._descriptors, self._names = descriptors, names

    def read(self) -> Mapping[str, int]:
        """The counts since the group was opened."""
        words = os.read(self._descriptors[0], 8 * (1 + len(self._names)))
        return dict(zip(self._names, struct.unpack(f"={len(self._names)}Q", words[8:]), strict=True))

    def __del__(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)


class SoftwareCounters:
    """What the operating system counts for this thread."""

    def read(self) -> Mapping[str, int]:
        """Page faults without input, and how often another program took the processor."""
        import resource  # noqa: PLC0415 - not on Windows

        used = resource.getrusage(getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF))
        return {"page faults": used.ru_minflt, "preemptions": used.ru_nivcsw}


class NoCounters:
    """A system that counts nothing."""

    def read(self) -> Mapping[str, int]:
        """Nothing."""
        return {}


def open_counters(open_event: Open = perf_event_open) -> Counters:
    """The counters of this thread: the best that the system allows."""
    descriptors: list[int] = []
    for event in _HARDWARE.values():
        found = open_event(event, descriptors[0] if descriptors else -1)
        if found < 0:
            break
        descriptors.append(found)
    if len(descriptors) == len(_HARDWARE):
        return HardwareCounters(descriptors, list(_HARDWARE))
    for descriptor in descriptors:
        os.close(descriptor)
    return NoCounters() if sys.platform == "win32" else SoftwareCounters()


_own = threading.local()


def thread_counters() -> Counters:
    """The counters of the calling thread, opened once."""
    found: Counters | None = getattr(_own, "counters", None)
    if found is None:
        found = _own.counters = open_counters()
    return found


READ_EVERY = 16  # tasks: a system call costs as much as some thousand rows


class CounterRates:
    """By what counters grow per row, in one task of `READ_EVERY`."""

    def __init__(self, counters: Callable[[], Counters] = thread_counters) -> None:
        self._counters = counters
        self._tasks = 0
        self._before: tuple[Counters, Mapping[str, int]] | None = None

    def start(self) -> None:
        """Begin a task."""
        self._tasks += 1
        if self._tasks % READ_EVERY == 0:
            counters = self._counters()
            self._before = counters, counters.read()

    def per_row(self, rows: int) -> dict[str, float]:
        """What the task has added, if its counters were read, and by the thread that ends it."""
        if self._before is None:
            return {}
        (counters, before), self._before = self._before, None
        if not rows or counters is not self._counters():
            return {}
        return {name: (count - before[name]) / rows for name, count in counters.read().items()}
