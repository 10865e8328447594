"""The LLVM module of the morsel scheduler: `work`, the loop of one thread, and the entry that starts the threads.

The module is fixed: it has no part of any query, and calls kernels by their addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from penstock.codegen.values import ENTRY

# A list of morsels: the address of its counter, the number of morsels, first row, end row, rows per morsel.
LIST = {"counter": "word*", "many": "i64", "begin": "i64", "end": "i64", "size": "i64"}
# The arguments of one thread, followed by its result.
LIST_MEMBERS = {
    "kernel": "kernel",
    "frame": "bytes*",
    # Addresses in the frame of the morsel's row limits.
    "lo": "word*",
    "hi": "word*",
    # The most morsels to process; the lists, visited round robin from `own` on.
    "most": "i64",
    "lists": "lists",
    "count": "i64",
    "own": "i64",
    # Address of a flag shared by all threads. A thread whose kernel stops early sets it. The other threads
    # then finish the current morsel and return, because Python resolves the stop and restarts all threads.
    "help": "word*",
    # Set by the thread as its last access to shared memory.
    "over": "i64",
    # Rows processed; if the kernel stopped within a morsel (else -1), the row where it stopped and the
    # morsel's end.
    "rows": "i64",
    "stopped": "i64",
    "ended": "i64",
}
# Polls before `pthread_join`: about a tenth of a millisecond. A morsel mostly takes less, and waking up from
# a join takes as long again.
LOOKS = 1 << 15

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_BYTES, _WORD = _I8.as_pointer(), _I64.as_pointer()
_KERNEL = ir.FunctionType(_I64, [_BYTES])
_LIST = ir.LiteralStructType([{"word*": _WORD, "i64": _I64}[kind] for kind in LIST.values()])
_MEMBER_TYPES = {
    "kernel": _KERNEL.as_pointer(),
    "bytes*": _BYTES,
    "word*": _WORD,
    "lists": _LIST.as_pointer(),
    "i64": _I64,
}
_MEMBER = ir.LiteralStructType([_MEMBER_TYPES[kind] for kind in LIST_MEMBERS.values()])
_HANDLE = ir.LiteralStructType([_I64, _I64])  # of a thread: the handle, and whether the thread was started
_WORK = ir.FunctionType(_BYTES, [_BYTES])


def scheduler_module(threads: bool) -> str:
    """Return the module as text; without `threads`, the entry works through all morsels on the calling thread."""
    module = ir.Module("scheduler")
    work = ir.Function(module, _WORK, "work")
    work.linkage = "internal"
    _Work(work).write()
    entry = ir.Function(module, ir.FunctionType(_I64, [_BYTES, _I64, _HANDLE.as_pointer()]), ENTRY)
    if threads:
        _Together(module, entry, work).write()
    else:
        builder = ir.IRBuilder(entry.append_basic_block("enter"))
        builder.call(work, [entry.args[0]])
        builder.ret(_I64(0))
    return str(module)


class Emitter:
    """Emit a function whose variables are stack slots; LLVM turns them into registers."""

    def __init__(self, function: ir.Function) -> None:
        self.function = function
        self.b = ir.IRBuilder(function.append_basic_block("enter"))

    def variable(self, name: str) -> Any:
        """Declare a number that starts at 0."""
        slot = self.b.alloca(_I64, name=name)
        self.b.store(_I64(0), slot)
        return slot

    def get(self, slot: Any) -> Any:
        return self.b.load(slot)

    def add(self, slot: Any, value: Any) -> None:
        self.b.store(self.b.add(self.get(slot), value), slot)

    def address(self, base: Any, fields: dict[str, str], name: str, nth: Any = None) -> Any:
        """Return the address of a field, of the nth struct at `base`."""
        place = _I32(list(fields).index(name))
        return self.b.gep(base, [_I64(0) if nth is None else nth, place])

    def fields(self, base: Any, fields: dict[str, str]) -> dict[str, Any]:
        """Load all fields of a struct."""
        return {name: self.b.load(self.address(base, fields, name)) for name in fields}

    @contextmanager
    def loop(self, going: Callable[[], Any]) -> Iterator[tuple[Any, Any]]:
        """Emit a loop that runs while `going()` holds; give the blocks of its test and of its end."""
        b, function = self.b, self.function
        test, body, end = (function.append_basic_block(name) for name in ("test", "body", "end"))
        b.branch(test)
        b.position_at_end(test)
        b.cbranch(going(), body, end)
        b.position_at_end(body)
        yield test, end
        if not b.block.is_terminated:
            b.branch(test)
        b.position_at_end(end)


class _Work(Emitter):
    """One thread: take morsels of its own list, then of the others, until none is left, a kernel stops or `most`."""

    def write(self) -> None:
        b, (given,) = self.b, self.function.args
        member = b.bitcast(given, _MEMBER.as_pointer())
        fields = self.fields(member, LIST_MEMBERS)
        leave = self.function.append_basic_block("leave")
        nth, done = self.variable("nth"), self.variable("done")
        with self.loop(lambda: b.icmp_signed("<", self.get(nth), fields["count"])):
            place = b.urem(b.add(fields["own"], self.get(nth)), fields["count"])
            morsels = self.fields(b.gep(fields["lists"], [place]), LIST)
            self._list(member, fields, morsels, done, leave)
            self.add(nth, _I64(1))
        b.branch(leave)
        b.position_at_end(leave)
        b.store_atomic(_I64(1), self.address(member, LIST_MEMBERS, "over"), "release", 8)
        b.ret(ir.Constant(_BYTES, None))

    def _list(
        self, member: Any, fields: dict[str, Any], morsels: dict[str, Any], done: Any, leave: Any
    ) -> None:
        """Take morsels of one list."""
        b = self.b

        def may_take() -> Any:
            helped = b.load_atomic(fields["help"], "monotonic", 8)
            return b.and_(
                b.icmp_signed("==", helped, _I64(0)), b.icmp_signed("<", self.get(done), fields["most"])
            )

        take, exhausted = (self.function.append_basic_block(name) for name in ("take", "exhausted"))
        next_morsel = self.function.append_basic_block("next_morsel")
        b.branch(next_morsel)
        b.position_at_end(next_morsel)
        b.cbranch(may_take(), take, leave)
        b.position_at_end(take)
        place = b.atomic_rmw("add", morsels["counter"], _I64(1), "monotonic")
        with b.if_then(b.icmp_signed(">=", place, morsels["many"])):
            b.branch(exhausted)
        self._morsel(member, fields, morsels, place, leave)
        self.add(done, _I64(1))
        b.branch(next_morsel)
        b.position_at_end(exhausted)

    def _morsel(
        self, member: Any, fields: dict[str, Any], morsels: dict[str, Any], place: Any, leave: Any
    ) -> None:
        """Call the kernel for one morsel; leave if it stops."""
        b = self.b
        lo = b.add(morsels["begin"], b.mul(place, morsels["size"]))
        full = b.add(lo, morsels["size"])
        hi = b.select(b.icmp_signed("<", full, morsels["end"]), full, morsels["end"])
        b.store(lo, fields["lo"])
        b.store(hi, fields["hi"])
        upto = b.call(fields["kernel"], [fields["frame"]])
        self.add(self.address(member, LIST_MEMBERS, "rows"), b.sub(hi, lo))
        with b.if_then(b.icmp_signed("<", upto, hi)):
            b.store(upto, self.address(member, LIST_MEMBERS, "stopped"))
            b.store(hi, self.address(member, LIST_MEMBERS, "ended"))
            b.store_atomic(_I64(1), fields["help"], "monotonic", 8)
            b.branch(leave)


class _Together(Emitter):
    """Start a thread for each member but the first, which runs here, and wait for all.

    If a thread cannot be started, the other threads process its morsels.
    """

    def __init__(self, module: ir.Module, entry: ir.Function, work: ir.Function) -> None:
        super().__init__(entry)
        self.work = work
        create = ir.FunctionType(_I32, [_WORD, _BYTES, _WORK.as_pointer(), _BYTES])
        self.create = ir.Function(module, create, "pthread_create")
        self.join = ir.Function(module, ir.FunctionType(_I32, [_I64, _BYTES]), "pthread_join")
        self.detach = ir.Function(module, ir.FunctionType(_I32, [_I64]), "pthread_detach")

    def write(self) -> None:
        b, (given, many, threads) = self.b, self.function.args
        members = b.bitcast(given, _MEMBER.as_pointer())
        started, waited = self.variable("started"), self.variable("waited")
        self.polls = self.variable("polls")
        for counter in (started, waited):
            self.add(counter, _I64(1))
        with self.loop(lambda: b.icmp_signed("<", self.get(started), many)):
            self._start(self.get(started), members, threads)
            self.add(started, _I64(1))
        b.call(self.work, [given])
        with self.loop(lambda: b.icmp_signed("<", self.get(waited), many)):
            place = self.get(waited)
            runs = b.load(b.gep(threads, [place, _I32(1)]))
            with b.if_then(b.icmp_signed("!=", runs, _I64(0))):
                self._wait(place, members, b.load(b.gep(threads, [place, _I32(0)])))
            self.add(waited, _I64(1))
        b.ret(_I64(0))

    def _start(self, place: Any, members: Any, threads: Any) -> None:
        b, nothing = self.b, ir.Constant(_BYTES, None)
        member = b.bitcast(b.gep(members, [place]), _BYTES)
        failed = b.call(self.create, [b.gep(threads, [place, _I32(0)]), nothing, self.work, member])
        made = b.zext(b.icmp_signed("==", failed, _I32(0)), _I64)
        b.store(made, b.gep(threads, [place, _I32(1)]))

    def _wait(self, place: Any, members: Any, handle: Any) -> None:
        """Poll whether the thread is over; after many polls, join it."""
        b, polls = self.b, self.polls
        b.store(_I64(0), polls)
        over = self.address(members, LIST_MEMBERS, "over", place)
        with self.loop(lambda: b.icmp_signed("<", self.get(polls), _I64(LOOKS))) as (_, end):
            is_over = b.icmp_signed("!=", b.load_atomic(over, "acquire", 8), _I64(0))
            with b.if_then(is_over):
                b.branch(end)
            self.add(polls, _I64(1))
        with b.if_else(b.icmp_signed("<", self.get(polls), _I64(LOOKS))) as (in_time, too_late):
            with in_time:
                b.call(self.detach, [handle])
            with too_late:
                b.call(self.join, [handle, ir.Constant(_BYTES, None)])
