"""The LLVM module of the native loop of running queries: it puts batches into a ring, and gives them to a kernel.

The module is fixed: it has no part of any query, and calls kernels by their addresses. `runtime/ring.py` names the words
that it shares with Python.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

from penstock.codegen.scheduler_module import Emitter
from penstock.runtime import ring
from penstock.runtime.buffers import BEHIND, WATERMARK

RUN, PUT, COMMIT, SWAP, WATCH, NOTHING = (
    "penstock_run",
    "penstock_put",
    "penstock_commit",
    "penstock_swap",
    "penstock_watch",
    "penstock_nothing",
)

# The words of a writer's block: rows filled, rows that fit, columns; then (target, source, bytes a row) of each column.
FILLED, FITS, BLOCK_COLUMNS, BLOCK_WORDS = range(4)
# Words of the struct of an array by the Arrow C data interface.
_LENGTH, _OFFSET = 0, 2
_MONOTONIC = {"darwin": 8}.get(sys.platform, 1)  # the clock of `time.monotonic`
# While it waits for Python, the loop lets other threads run this often before it sleeps.
_YIELDS = 64
_NAP = 20  # microseconds

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_BYTES, _WORD = _I8.as_pointer(), _I64.as_pointer()
_KERNEL = ir.FunctionType(_I64, [_BYTES])
_READER = ir.FunctionType(_I64, [_WORD, _WORD, _WORD])


def ring_module() -> str:
    """Return the module as text."""
    module = ir.Module("ring")
    clock = _now(module)
    publish = ir.Function(module, ir.FunctionType(_I64, [_WORD] * 3), "publish")
    publish.linkage = "internal"
    _Publish(publish, clock).write()
    put = ir.Function(module, ir.FunctionType(_I64, [_WORD] * 3), PUT)
    builder = ir.IRBuilder(put.append_basic_block("enter"))
    builder.ret(builder.call(publish, put.args))
    commit = ir.Function(module, ir.FunctionType(_I64, [_WORD] * 4 + [_I64]), COMMIT)
    _Commit(commit, clock).write(publish, _copy(module))
    _swap(module)
    nothing = ir.Function(module, ir.FunctionType(ir.VoidType(), [_BYTES]), NOTHING)
    ir.IRBuilder(nothing.append_basic_block("enter")).ret_void()
    naps = _naps(module)
    watch = ir.Function(module, ir.FunctionType(_I64, [_WORD, _I64]), WATCH)
    _Watch(watch, clock).write(naps)
    run = ir.Function(module, ir.FunctionType(_I64, [_WORD]), RUN)
    _Run(run, clock).write(naps)
    return str(module)


def _now(module: ir.Module) -> ir.Function:
    """Emit a function that reads the clock, in nanoseconds."""
    clock = ir.Function(module, ir.FunctionType(_I32, [_I32, _WORD]), "clock_gettime")
    now = ir.Function(module, ir.FunctionType(_I64, []), "now")
    now.linkage = "internal"
    b = ir.IRBuilder(now.append_basic_block("enter"))
    spec = b.alloca(_I64, 2)
    b.call(clock, [_I32(_MONOTONIC), spec])
    seconds, rest = b.load(spec), b.load(b.gep(spec, [_I64(1)]))
    b.ret(b.add(b.mul(seconds, _I64(1_000_000_000)), rest))
    return now


class _Naps(NamedTuple):
    """The functions by which a thread waits."""

    sleep: ir.Function
    give_way: ir.Function


def _naps(module: ir.Module) -> _Naps:
    return _Naps(
        ir.Function(module, ir.FunctionType(_I32, [_I32]), "usleep"),
        ir.Function(module, ir.FunctionType(_I32, []), "sched_yield"),
    )


def _copy(module: ir.Module) -> ir.Function:
    return ir.Function(module, ir.FunctionType(_BYTES, [_BYTES, _BYTES, _I64]), "memcpy")


def _swap(module: ir.Module) -> None:
    """Emit the function that changes the state if it is as expected, and returns whether it did."""
    swap = ir.Function(module, ir.FunctionType(_I64, [_WORD, _I64, _I64]), SWAP)
    b = ir.IRBuilder(swap.append_basic_block("enter"))
    control, before, after = swap.args
    found = b.cmpxchg(b.gep(control, [_I64(ring.STATE)]), before, after, "acq_rel", "acquire")
    b.ret(b.zext(b.extract_value(found, 1), _I64))


class _Shared(Emitter):
    """A function whose first argument is the shared words."""

    def __init__(self, function: ir.Function, clock: ir.Function) -> None:
        super().__init__(function)
        self.control, self._clock = function.args[0], clock

    def at(self, word: int) -> Any:
        return self.b.gep(self.control, [_I64(word)])

    def word(self, word: int) -> Any:
        return self.b.load(self.at(word))

    def put(self, word: int, value: Any) -> None:
        self.b.store(value, self.at(word))

    def raise_by(self, word: int, value: Any) -> None:
        self.put(word, self.b.add(self.word(word), value))

    def pointer(self, word: Any) -> Any:
        """A word that is the address of words."""
        return self.b.inttoptr(word, _WORD)

    def acquire(self, word: int) -> Any:
        return self.b.load_atomic(self.at(word), "acquire", 8)

    def release(self, word: int, value: Any) -> None:
        self.b.store_atomic(value, self.at(word), "release", 8)

    def now(self) -> Any:
        return self.b.call(self._clock, [])

    def is_set(self, word: int) -> Any:
        return self.b.icmp_signed("!=", self.b.load_atomic(self.at(word), "monotonic", 8), _I64(0))

    def slot(self, number: Any) -> Any:
        """The words of the slot of a batch."""
        place = self.b.mul(self.b.and_(number, self.word(ring.MASK)), self.word(ring.STRIDE))
        return self.b.gep(self.pointer(self.word(ring.SLOTS)), [place])

    def of(self, base: Any, word: int) -> Any:
        return self.b.gep(base, [_I64(word)])

    def times(self, count: Any, body: Callable[[Any], None]) -> None:
        """Emit a loop over numbers below a count."""
        with self.b.goto_entry_block():  # a slot in a loop would grow the stack
            number = self.b.alloca(_I64)
        self.b.store(_I64(0), number)
        with self.loop(lambda: self.b.icmp_signed("<", self.get(number), count)):
            body(self.get(number))
            self.add(number, _I64(1))

    def leave(self, condition: Any, code: int) -> None:
        with self.b.if_then(condition):
            self.b.ret(_I64(code))

    def nap(self, taken: Any, naps: _Naps) -> None:
        """Wait for a moment: let other threads run, and sleep after some moments; `taken` counts them."""
        b = self.b
        self.add(taken, _I64(1))
        with b.if_else(b.icmp_signed("<", self.get(taken), _I64(_YIELDS))) as (briefly, longer):
            with briefly:
                b.call(naps.give_way, [])
            with longer:
                b.call(naps.sleep, [_I32(_NAP)])


class _Publish(_Shared):
    """Read an exported batch into the next slot; publish it if the loop may have it."""

    def write(self) -> None:
        b, (_, array, plan) = self.b, self.function.args
        published = self.word(ring.PUBLISHED)
        slot = self.slot(published)
        words = self.of(slot, ring.SLOT_WORDS)
        b.store(self.word(ring.INGRESS), self.of(words, WATERMARK))
        rows = b.load(self.of(array, _LENGTH))
        reader = b.inttoptr(self.word(ring.READER), _READER.as_pointer())
        self.leave(b.icmp_signed("<", b.call(reader, [array, plan, words]), _I64(0)), ring.REFUSED)
        self.leave(b.icmp_signed("!=", b.load(self.of(words, BEHIND)), _I64(0)), ring.REFUSED)
        checked = self.pointer(self.word(ring.CHECKED_LIST))

        def no_nulls(number: Any) -> None:
            value = b.load(b.gep(slot, [b.load(b.gep(checked, [number]))]))
            self.leave(b.icmp_signed("==", value, _I64(0)), ring.REFUSED)

        self.times(self.word(ring.CHECKED), no_nulls)
        b.store(rows, self.of(slot, ring.ROWS))
        b.store(self.now(), self.of(slot, ring.PUT_AT))
        self.put(ring.INGRESS, b.load(self.of(words, WATERMARK)))
        self.raise_by(ring.ROWS_IN, rows)
        self.release(ring.PUBLISHED, b.add(published, _I64(1)))
        b.ret(_I64(ring.TAKEN))


class _Commit(_Shared):
    """Copy rows to a block, as an array of which only length and offset change, and publish them."""

    def write(self, publish: ir.Function, copy: ir.Function) -> None:
        b, (control, array, plan, block, rows) = self.b, self.function.args
        self.leave(b.icmp_signed("==", self.word(ring.OPEN), _I64(0)), ring.CLOSED)
        waiting = b.sub(self.word(ring.PUBLISHED), self.acquire(ring.DONE))
        self.leave(b.icmp_signed(">", waiting, self.word(ring.MASK)), ring.NO_ROOM)
        waiting_rows = b.sub(self.word(ring.ROWS_IN), self.word(ring.ROWS_DONE))
        self.leave(b.icmp_signed(">=", waiting_rows, self.word(ring.MOST_ROWS)), ring.NO_ROOM)
        filled = b.load(self.of(block, FILLED))
        end = b.add(filled, rows)
        self.leave(b.icmp_signed(">", end, b.load(self.of(block, FITS))), ring.BLOCK_FULL)

        def column(number: Any) -> None:
            words = b.gep(block, [b.add(b.mul(number, _I64(3)), _I64(BLOCK_WORDS))])
            target, source, width = (b.load(self.of(words, place)) for place in range(3))
            goal = b.inttoptr(b.add(target, b.mul(filled, width)), _BYTES)
            b.call(copy, [goal, b.inttoptr(source, _BYTES), b.mul(rows, width)])

        self.times(b.load(self.of(block, BLOCK_COLUMNS)), column)
        b.store(rows, self.of(array, _LENGTH))
        b.store(filled, self.of(array, _OFFSET))
        b.store(end, self.of(block, FILLED))
        b.ret(b.call(publish, [control, array, plan]))


class _Watch(_Shared):
    """Wait while the loop runs and the ring is nearly full, but not for long."""

    def write(self, naps: _Naps) -> None:
        b, (_, patience) = self.b, self.function.args
        napped, began = self.variable("napped"), self.variable("began")
        b.store(self.now(), began)
        with self.loop(lambda: _TRUE):
            state = self.acquire(ring.STATE)
            runs = b.or_(*(b.icmp_signed("==", state, _I64(one)) for one in (ring.RUNNING, ring.HELPED)))
            self.leave(b.not_(runs), 0)
            slots = b.sub(self.word(ring.PUBLISHED), self.acquire(ring.DONE))
            rows = b.sub(self.word(ring.ROWS_IN), self.word(ring.ROWS_DONE))
            # Room for one batch would be gone at once.
            most = (self.word(ring.MASK), self.word(ring.MOST_ROWS))
            full = [
                b.icmp_signed(">", b.mul(held, _I64(4)), b.mul(limit, _I64(3)))
                for held, limit in zip((slots, rows), most, strict=True)
            ]
            self.leave(b.not_(b.or_(*full)), 1)
            waited = b.sub(self.now(), self.get(began))
            self.leave(b.icmp_signed(">", waited, patience), 0)
            self.nap(napped, naps)
        b.unreachable()


class _Run(_Shared):
    """The loop: fold what waits; while nothing does, sleep; where Python is needed, wait for a thread to help, or return."""

    def write(self, naps: _Naps) -> None:
        b = self.b
        self.naps = naps
        self.began = self.variable("began")  # of a burst of batches; 0 outside of one
        self.last = self.variable("last")  # when the last burst ended
        self.asked, self.napped = self.variable("asked"), self.variable("napped")
        self.head, self.ask = (self.function.append_basic_block(name) for name in ("head", "ask"))
        b.store(self.now(), self.last)
        b.branch(self.head)
        b.position_at_end(self.head)
        self._stop_if(self.is_set(ring.LEAVE), ring.LEFT)
        waits = b.icmp_signed("<", self.word(ring.DONE), self.acquire(ring.PUBLISHED))
        with b.if_else(waits) as (batch, nothing):
            with batch:
                with b.if_then(b.icmp_signed("==", self.get(self.began), _I64(0))):
                    b.store(self.now(), self.began)
                self._batch()
            with nothing:
                self._idle()
        b.branch(self.head)
        b.position_at_end(self.ask)
        self._ask()

    def _stop(self, reason: int) -> None:
        """Stop for a reason; code behind it is not reached."""
        self.put(ring.REASON, _I64(reason))
        self.b.branch(self.ask)

    def _stop_if(self, condition: Any, reason: int) -> None:
        with self.b.if_then(condition):
            self._stop(reason)

    def _batch(self) -> None:
        """Give the next batch to the kernel."""
        b = self.b
        done = self.word(ring.DONE)
        slot = self.slot(done)
        words = self.of(slot, ring.SLOT_WORDS)
        rows = b.load(self.of(slot, ring.ROWS))
        self._stop_if(b.icmp_signed(">", rows, self.word(ring.ROWS_LEFT)), ring.SENSE)
        writes = b.icmp_signed("!=", self.word(ring.OUTPUTS), _I64(0))
        needed = b.add(self.word(ring.MADE), rows)
        self._stop_if(b.and_(writes, b.icmp_signed(">", needed, self.word(ring.CAPACITY))), ring.FULL)
        self._bind(slot)
        b.store(rows, self.pointer(self.word(ring.HI_AT)))
        b.store(self.word(ring.FIRST_ROW), self.pointer(self.word(ring.FIRST_AT)))
        kernel = b.inttoptr(self.word(ring.KERNEL), _KERNEL.as_pointer())
        reached = b.call(kernel, [b.inttoptr(self.word(ring.FRAME), _BYTES)])
        self.put(ring.REACHED, reached)
        self._stop_if(b.icmp_signed("<", reached, rows), ring.STOPPED)
        errors = b.load(self.pointer(self.word(ring.ERRORS_AT)))
        self._stop_if(b.icmp_signed("!=", errors, _I64(0)), ring.OVERFLOWN)
        arrived = b.load(self.of(slot, ring.PUT_AT))
        with b.if_then(writes):
            with b.if_then(b.icmp_signed("==", self.word(ring.MADE), _I64(0))):
                self.put(ring.MADE_FROM, arrived)
            self.raise_by(ring.MADE, b.load(self.pointer(self.word(ring.COUNT_AT))))
        self._count(done, rows, b.load(self.of(words, WATERMARK)), arrived)
        with b.if_then(b.icmp_signed(">=", self.word(ring.MARK), self.word(ring.UNTIL))):
            self._completed()
        self._stop_if(self._is_due(arrived), ring.DUE)

    def _completed(self) -> None:
        """A window is complete: stop, unless batches wait that may complete more, and none has waited for long."""
        b = self.b
        now = self.now()
        with b.if_then(b.icmp_signed("==", self.word(ring.COMPLETE_FROM), _I64(0))):
            self.put(ring.COMPLETE_FROM, now)
        held = b.icmp_signed(">=", b.sub(now, self.word(ring.COMPLETE_FROM)), self.word(ring.HOLD))
        last = b.icmp_signed(">=", self.word(ring.DONE), self.acquire(ring.PUBLISHED))
        self._stop_if(b.or_(held, last), ring.COMPLETE)

    def _bind(self, slot: Any) -> None:
        """Write the addresses of columns and results into the frame."""
        b = self.b
        columns = self.pointer(self.word(ring.COLUMN_LIST))
        outputs = self.pointer(self.word(ring.OUTPUT_LIST))

        def column(number: Any) -> None:
            pair = b.gep(columns, [b.mul(number, _I64(2))])
            address = b.load(b.gep(slot, [b.load(self.of(pair, 1))]))
            b.store(address, self.pointer(b.load(pair)))

        def output(number: Any) -> None:
            triple = b.gep(outputs, [b.mul(number, _I64(3))])
            written = b.mul(self.word(ring.MADE), b.load(self.of(triple, 2)))
            b.store(b.add(b.load(self.of(triple, 1)), written), self.pointer(b.load(triple)))

        self.times(self.word(ring.COLUMNS), column)
        self.times(self.word(ring.OUTPUTS), output)

    def _count(self, done: Any, rows: Any, watermark: Any, arrived: Any) -> None:
        b = self.b
        self.put(ring.ARRIVED, arrived)
        self.raise_by(ring.FIRST_ROW, rows)
        self.put(ring.ROWS_LEFT, b.sub(self.word(ring.ROWS_LEFT), rows))
        self.put(ring.MARK, watermark)
        self.raise_by(ring.ROWS_DONE, rows)
        self.release(ring.DONE, b.add(done, _I64(1)))

    def _is_due(self, now: Any) -> Any:
        """Whether results have waited long enough."""
        b = self.b
        age = b.sub(now, self.word(ring.MADE_FROM))
        made = b.icmp_signed(">", self.word(ring.MADE), _I64(0))
        return b.and_(made, b.icmp_signed(">=", age, self.word(ring.DELAY)))

    def _idle(self) -> None:
        """Nothing waits."""
        b = self.b
        now = self.now()
        self._end_burst(now)
        hurries = self.is_set(ring.HURRY)
        made = b.icmp_signed(">", self.word(ring.MADE), _I64(0))
        self._stop_if(b.or_(self._is_due(now), b.and_(made, hurries)), ring.DUE)
        lingered = b.icmp_signed(">", b.sub(now, self.get(self.last)), self.word(ring.LINGER))
        rests = b.and_(b.not_(made), lingered)
        self._stop_if(b.or_(hurries, rests), ring.IDLE)
        b.call(self.naps.sleep, [b.trunc(self.word(ring.POLL), _I32)])

    def _end_burst(self, now: Any) -> None:
        b = self.b
        with b.if_then(b.icmp_signed("!=", self.get(self.began), _I64(0))):
            self.raise_by(ring.BUSY, b.sub(now, self.get(self.began)))
            b.store(now, self.last)
            b.store(_I64(0), self.began)

    def _ask(self) -> None:
        """Wait for a thread to help, for a short while; then return to Python. Without work for Python, return at once."""
        b = self.b
        now = self.now()
        self._end_burst(now)
        b.store(now, self.asked)
        b.store(_I64(0), self.napped)
        reason = self.word(ring.REASON)
        alone = b.or_(
            b.icmp_signed("==", reason, _I64(ring.IDLE)), b.icmp_signed("==", reason, _I64(ring.LEFT))
        )
        with b.if_then(alone):
            self._return()
        self.release(ring.STATE, _I64(ring.ASKING))
        with self.loop(lambda: _TRUE):
            state = self.acquire(ring.STATE)
            with b.if_then(b.icmp_signed("==", state, _I64(ring.RUNNING))):
                b.branch(self.head)
            with b.if_then(b.icmp_signed("==", state, _I64(ring.LEAVING))):
                self.put(ring.REASON, _I64(ring.LEFT))
                self._return()
            waited = b.icmp_signed(">", b.sub(self.now(), self.get(self.asked)), self.word(ring.PATIENCE))
            with b.if_then(b.and_(b.icmp_signed("==", state, _I64(ring.ASKING)), waited)):
                self._take_back()
            self.nap(self.napped, self.naps)
        b.unreachable()

    def _take_back(self) -> None:
        """No thread helped: return to Python, unless one begins just now."""
        b = self.b
        found = b.cmpxchg(self.at(ring.STATE), _I64(ring.ASKING), _I64(ring.OWNED), "acq_rel", "acquire")
        with b.if_then(b.extract_value(found, 1)):
            b.ret(self.word(ring.REASON))

    def _return(self) -> None:
        self.release(ring.STATE, _I64(ring.OWNED))
        self.b.ret(self.word(ring.REASON))


_TRUE = ir.IntType(1)(1)
