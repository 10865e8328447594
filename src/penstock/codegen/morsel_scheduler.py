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
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from penstock.codegen.names import ENTRY
from penstock.codegen.optimisation_level import OptimisationLevel
from penstock.loop.morsels import Morsels, Progress

if TYPE_CHECKING:
    from penstock.codegen.target import Loaded

WORD = 8  # bytes
HAS_THREADS = os.name == "posix"

# A list of morsels: the address of its counter, the number of morsels, first row, end row, rows per morsel.
_LIST = {"counter": "ptr", "many": "i64", "begin": "i64", "end": "i64", "size": "i64"}
# The arguments of one thread, followed by its result.
_MEMBER = {
    "kernel": "ptr",
    "frame": "ptr",
    # Addresses in the frame of the morsel's row limits.
    "lo.place": "ptr",
    "hi.place": "ptr",
    # The most morsels to process; the lists, visited round robin from `own` on.
    "most": "i64",
    "lists": "ptr",
    "count": "i64",
    "own": "i64",
    # Address of a flag shared by all threads. A thread whose kernel stops early sets it. The other threads
    # then finish the current morsel and return, because Python resolves the stop and restarts all threads.
    "help": "ptr",
    # Set by the thread as its last access to shared memory.
    "over": "i64",
    # Rows processed; if the kernel stopped within a morsel (else -1), the row where it stopped and the
    # morsel's end.
    "rows": "i64",
    "stopped": "i64",
    "ended": "i64",
}
_TOLD = 3  # result words at the end of a member


def _struct(fields: Mapping[str, str]) -> str:
    return f"{{ {', '.join(fields.values())} }}"


def _fields(fields: Mapping[str, str], base: str) -> str:
    """Compute the address of each field of a struct, as `%name.at`, and load it, as `%name`."""
    return "\n".join(
        f"  %{name}.at = getelementptr {_struct(fields)}, ptr {base}, i64 0, i32 {place}\n"
        f"  %{name} = load {kind}, ptr %{name}.at"
        for place, (name, kind) in enumerate(fields.items())
    )


_WORK = f"""
define internal ptr @work(ptr %member) {{
enter:
{_fields(_MEMBER, "%member")}
  br label %next

next:
  %nth = phi i64 [ 0, %enter ], [ %nth.next, %exhausted ]
  %done.before = phi i64 [ 0, %enter ], [ %done, %exhausted ]
  %more.lists = icmp slt i64 %nth, %count
  br i1 %more.lists, label %begin.list, label %leave

begin.list:
  %on = add i64 %own, %nth
  %number = urem i64 %on, %count
  %list = getelementptr {_struct(_LIST)}, ptr %lists, i64 %number
{_fields(_LIST, "%list")}
  br label %ask

ask:
  %done = phi i64 [ %done.before, %begin.list ], [ %done.next, %went ]
  %helped = load atomic i64, ptr %help monotonic, align 8
  %alone = icmp eq i64 %helped, 0
  %below = icmp slt i64 %done, %most
  %may = and i1 %alone, %below
  br i1 %may, label %take, label %leave

take:
  %place = atomicrmw add ptr %counter, i64 1 monotonic
  %there = icmp slt i64 %place, %many
  br i1 %there, label %go, label %exhausted

go:
  %skipped = mul i64 %place, %size
  %lo = add i64 %begin, %skipped
  %full = add i64 %lo, %size
  %short = icmp slt i64 %full, %end
  %hi = select i1 %short, i64 %full, i64 %end
  store i64 %lo, ptr %lo.place
  store i64 %hi, ptr %hi.place
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

exhausted:
  %nth.next = add i64 %nth, 1
  br label %next

stop:
  store i64 %upto, ptr %stopped.at
  store i64 %hi, ptr %ended.at
  store atomic i64 1, ptr %help monotonic, align 8
  br label %leave

leave:
  store atomic i64 1, ptr %over.at release, align 8
  ret ptr null
}}
"""

# Polls before `pthread_join`: about a tenth of a millisecond. A morsel mostly takes less, and waking up from
# a join takes as long again.
_LOOKS = 1 << 15
_OVER = list(_MEMBER).index("over")

# The first member runs on the calling thread. If a thread cannot be started, the other threads process its
# morsels. `%threads` has two words per member: the thread handle, and whether the thread was started.
_TOGETHER = f"""
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_detach(i64)

define i64 @{ENTRY}(ptr %members, i64 %many, ptr %threads) {{
enter:
  br label %start

start:
  %i = phi i64 [ 1, %enter ], [ %i.next, %one ]
  %more = icmp slt i64 %i, %many
  br i1 %more, label %one, label %own

one:
  %thread = getelementptr {{ i64, i64 }}, ptr %threads, i64 %i
  %there = getelementptr {{ i64, i64 }}, ptr %threads, i64 %i, i32 1
  %member = getelementptr {_struct(_MEMBER)}, ptr %members, i64 %i
  %failed = call i32 @pthread_create(ptr %thread, ptr null, ptr @work, ptr %member)
  %made = icmp eq i32 %failed, 0
  %word = zext i1 %made to i64
  store i64 %word, ptr %there
  %i.next = add i64 %i, 1
  br label %start

own:
  call ptr @work(ptr %members)
  br label %wait

wait:
  %k = phi i64 [ 1, %own ], [ %k.next, %waited ]
  %last = icmp slt i64 %k, %many
  br i1 %last, label %look, label %leave

look:
  %its = getelementptr {{ i64, i64 }}, ptr %threads, i64 %k, i32 1
  %is = load i64, ptr %its
  %runs = icmp ne i64 %is, 0
  %handle.at = getelementptr {{ i64, i64 }}, ptr %threads, i64 %k
  %handle = load i64, ptr %handle.at
  %over.at = getelementptr {_struct(_MEMBER)}, ptr %members, i64 %k, i32 {_OVER}
  br i1 %runs, label %ask, label %waited

ask:
  %asked = phi i64 [ 0, %look ], [ %asked.next, %again ]
  %over = load atomic i64, ptr %over.at acquire, align 8
  %is.over = icmp ne i64 %over, 0
  br i1 %is.over, label %detach, label %again

again:
  %asked.next = add i64 %asked, 1
  %often = icmp sge i64 %asked.next, {_LOOKS}
  br i1 %often, label %join, label %ask

detach:
  call i32 @pthread_detach(i64 %handle)
  br label %waited

join:
  call i32 @pthread_join(i64 %handle, ptr null)
  br label %waited

waited:
  %k.next = add i64 %k, 1
  br label %wait

leave:
  ret i64 0
}}
"""
_ALONE = f"""
define i64 @{ENTRY}(ptr %members, i64 %many, ptr %threads) {{
  call ptr @work(ptr %members)
  ret i64 0
}}
"""
_SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)


class Frame(NamedTuple):
    """The argument words of a kernel over rows, their address, and the addresses of the row limits among them."""

    words: array[int]
    start: int
    lo: int
    hi: int

    @classmethod
    def of(cls, words: array[int], lo: int, hi: int) -> Frame:
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
        frames: Sequence[Frame],
        shares: Sequence[Morsels],
        most: int,
    ) -> list[Progress]:
        """Call the kernel at address `kernel` for all morsels, with one thread per frame.

        Thread i starts with the i-th list of morsels, then steals from the other lists.
        """
        call = self._call or self._made()
        lists, members = array("q"), array("q")
        for each in shares:
            lists.extend((_start(each.taken), each.many, each.begin, each.end, each.size))
        helped, threads = array("q", [0]), array("q", [0] * 2 * len(frames))
        given = most, _start(lists), len(shares)
        told = _start(helped), 0, 0, -1, 0
        for nth, (_, start, lo, hi) in enumerate(frames):
            members.extend((kernel, start, lo, hi, *given, nth, *told))
        call(_start(members), len(frames), _start(threads))
        ends = range(len(_MEMBER), len(members) + 1, len(_MEMBER))
        return [_went(*members[end - _TOLD : end]) for end in ends]

    def _made(self) -> Callable[..., int]:
        from penstock.codegen.target import Loaded, to_object  # noqa: PLC0415 - loads LLVM

        with self._lock:
            if self._call is None:
                entry = _TOGETHER if HAS_THREADS else _ALONE
                self._loaded = Loaded(to_object(_WORK + entry, OptimisationLevel.QUICK))
                self._call = _SIGNATURE(self._loaded.address)
            return self._call


def _went(rows: int, stop: int, end: int) -> Progress:
    return Progress(rows, None if stop < 0 else (stop, end))


def _start(words: array[int]) -> int:
    return words.buffer_info()[0]


MORSEL_SCHEDULER = MorselScheduler()
