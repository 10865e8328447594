"""Native code that takes share after share of rows: threads meet at a counter, and no Python runs between two shares.

Between two calls by Python, after a kernel has streamed megabytes through the caches, a thread spends a tenth of a
millisecond or two; so threads either wait long for the last of them, or often for Python. The threads themselves are
native too: one of Python's would first have to wait for the interpreter, which whoever wakes it is using.
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

# A list of shares: where they are counted, how many there are, the first row, the one behind the last, how many rows each has.
_LIST = {"counter": "ptr", "many": "i64", "begin": "i64", "end": "i64", "size": "i64"}
# What a thread is given, and where it tells how far it came.
_MEMBER = {
    "kernel": "ptr",
    "frame": "ptr",
    # Where in the frame the limits of a share go.
    "lo.place": "ptr",
    "hi.place": "ptr",
    # How many shares it may take; the lists, which it goes through from its own on, all around.
    "most": "i64",
    "lists": "ptr",
    "count": "i64",
    "own": "i64",
    # A word of all threads, which is set when one of them needs help: the others then end with the share they are at, since it is by
    # Python that one is helped, and that all go on.
    "help": "ptr",
    # Set by a thread as the last thing that it does to anything of ours.
    "over": "i64",
    # Rows that it took; if the kernel stopped within a share (else -1) at which row, and where the share ends.
    "rows": "i64",
    "stopped": "i64",
    "ended": "i64",
}
_TOLD = 3  # words at the end of a member


def _struct(fields: Mapping[str, str]) -> str:
    return f"{{ {', '.join(fields.values())} }}"


def _fields(fields: Mapping[str, str], base: str) -> str:
    """Find the fields of a struct, as `%name.at`, and load them, as `%name`."""
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

# How often it is looked whether a thread is done before it is waited for: about a tenth of a millisecond. A share takes less, mostly, and
# whoever sleeps until a thread has ended is woken as much later.
_LOOKS = 1 << 15
_OVER = list(_MEMBER).index("over")

# The first member works on the thread that calls. One whose thread cannot be started is not missed: the others take its shares.
# `%threads` has two words for each: the thread, and whether there is one.
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
    """The words a kernel over rows is given, where they lie, and where among them the limits of its rows go."""

    words: array[int]
    start: int
    lo: int
    hi: int

    @classmethod
    def of(cls, words: array[int], lo: int, hi: int) -> Frame:
        """Frame words of which the ones at two places are the limits."""
        start = _start(words)
        return cls(words, start, start + lo * WORD, start + hi * WORD)


class MorselScheduler:
    """The compiled code, made by whoever asks first, and alive as long as this process: threads may be within it."""

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
        """Call the kernel at an address for share after share, with its frames, on a thread for each.

        A thread begins with shares of its own number, then helps with others'.
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
