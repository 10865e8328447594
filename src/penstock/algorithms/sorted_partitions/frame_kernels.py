"""Kernels that find window frames: for each window of a sorted partition, the range of its rows.

Rows are partitioned by key (a partition is a `partition`) and sorted by time, so both ends of a window only move forward:
two pointers, no search. `bounds` lists the start of each partition, and the end of the last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I64, U8, U64, Bitcast, Kernel, Value, Var, maximum, minimum, select

_CHUNK = 64  # rows tested at once


def grid_frames() -> Kernel:
    """Find the non-empty windows [offset + n * every, … + size) for n from `after` to `upto`."""
    k = KernelBuilder("grid_frames")
    size, every, offset = k.scalar("size"), k.scalar("every"), k.scalar("offset")

    def skip(n: Var, time: Value) -> None:
        """Move to the first window that ends after a time."""
        ahead = k.var("ahead", time - offset - size)
        whole = k.var("whole", ahead.div(every))
        below = (ahead < 0) & ahead.ne(whole * every)  # division truncates: correct it to the floor
        k.set(n, maximum(n, whole + 1 - below.to(I64)))

    windows = _Windows(k, lambda n: offset + n * every, lambda n: offset + n * every + size, skip)
    return windows.kernel()


def listed_frames() -> Kernel:
    """Find the non-empty windows [starts[n], ends[n]), both ascending, for n from `after` to `upto`."""
    k = KernelBuilder("listed_frames")
    starts, ends = k.buffer("starts", I64), k.buffer("ends", I64)

    def skip(n: Var, time: Value) -> None:
        """Move to the first window that ends after a time, by binary search; the list has one past `upto` that does."""
        low, high = k.var("low", n), k.var("high", windows.upto + 1)
        with k.while_(low < high):
            middle = k.var("middle", (low + high) >> 1)
            with k.if_(ends[middle] <= time):
                k.set(low, middle + 1)
            with k.else_():
                k.set(high, middle)
        k.set(n, low)

    windows = _Windows(k, lambda n: starts[n], lambda n: ends[n], skip)
    return windows.kernel()


@dataclass
class _Windows:
    """Two pointers through each partition; `skip(n, time)` advances n to the first window that ends after a time."""

    k: KernelBuilder
    start: Callable[[Value], Value]
    end: Callable[[Value], Value]
    skip: Callable[[Var, Value], None]

    def __post_init__(self) -> None:
        k = self.k
        self.times, self.bounds = k.buffer("times", I64), k.buffer("bounds", I64)
        self.after, self.upto = k.scalar("after"), k.scalar("upto")
        self.partitions, self.capacity = k.scalar("partitions"), k.scalar("capacity")
        self.lo, self.hi, self.number = (k.buffer(hint, I64) for hint in ("lo", "hi", "number"))

    def kernel(self) -> Kernel:
        """Build the kernel: it writes frames up to the capacity, and returns the total number of frames."""
        k = self.k
        self.found = k.var("found", 0)
        with k.for_(0, self.partitions, "partition") as partition:
            self._partition(k.var("at", self.bounds[partition]), k.var("stop", self.bounds[partition + 1]))
        k.ret(self.found)
        return k.build()

    def _partition(self, at: Var, stop: Var) -> None:
        k = self.k
        n, beyond = k.var("n", self.after), k.var("beyond", at)
        with k.while_(at < stop):
            self.skip(n, self.times[at])
            with k.if_(n > self.upto):
                k.set(at, stop)
            with k.else_():
                self._pass(at, stop, self.start(n))
                self._pass_ahead(beyond, at, stop, self.end(n))
                with k.if_(at < beyond):
                    self._write(at, beyond, n)
                    k.set(n, n + 1)

    def _pass(self, at: Var, stop: Value, limit: Value) -> None:
        """Advance past the rows before a time."""
        k = self.k
        bound = k.var("bound", limit)
        more = k.var("more", at < stop, BOOL)
        with k.while_(more):
            k.set(more, self.times[at] < bound)
            with k.if_(more):
                k.set(at, at + 1)
                k.set(more, at < stop)

    def _pass_ahead(self, beyond: Var, at: Value, stop: Value, limit: Value) -> None:
        self.k.set(beyond, maximum(beyond, at))
        self._pass(beyond, stop, limit)

    def _write(self, lo: Value, hi: Value, n: Value) -> None:
        k = self.k
        with k.if_(self.found < self.capacity):
            for buffer, value in ((self.lo, lo), (self.hi, hi), (self.number, n)):
                k.store(buffer, self.found, value)
        k.set(self.found, self.found + 1)


def look_back_frames(oldest: bool, newest: bool, delayed: bool) -> Kernel:
    """Find, for each of the rows `begin … end`, the rows of its partition from `since` to `until` before its time.

    `oldest` and `newest` include rows exactly at the ends; `delayed` means that `until` is not zero. The first row is
    in partition `partition`; its pointers start at `left` and `right`. Bounds are written from the start of `lo` and `hi`.
    The kernel returns the length of the longest frame.
    """
    return _LookBacks(KernelBuilder("look_back_frames"), oldest, newest, delayed).kernel()


@dataclass
class _LookBacks:
    """Two pointers through each partition, a chunk of rows at a time, with a fast path for regular chunks."""

    k: KernelBuilder
    oldest: bool
    newest: bool
    delayed: bool

    def __post_init__(self) -> None:
        k = self.k
        self.times, self.bounds = k.buffer("times", I64), k.buffer("bounds", I64)
        self.since, self.until = k.scalar("since"), k.scalar("until")
        self.begin, self.end, self.partition = k.scalar("begin"), k.scalar("end"), k.scalar("partition")
        self.lo, self.hi = k.buffer("lo", I64), k.buffer("hi", I64)
        self.left, self.right = k.var("from", k.scalar("left")), k.var("to", k.scalar("right"))
        self.longest = k.var("longest", 0)

    def kernel(self) -> Kernel:
        k = self.k
        at, here = k.var("at", self.begin), k.var("here", self.partition)
        with k.while_(at < self.end):
            partition_end = k.var("partition_end", self.bounds[here + 1])
            stop = k.var("stop", minimum(partition_end, self.end))
            with k.while_(at < stop):
                self._chunk(at, stop, partition_end)
            k.set(here, here + 1)
            k.set(self.left, stop)
            k.set(self.right, stop)
        k.ret(self.longest)
        return k.build()

    def _chunk(self, at: Var, stop: Value, partition_end: Value) -> None:
        """Write the bounds of a chunk's rows, and advance."""
        k, upto = self.k, self.k.var("upto", minimum(at + _CHUNK, stop))
        if not self.newest or self.delayed:
            self._one_by_one(at, upto, partition_end)
        else:
            self._advance(self.left, self.times[at], self.since, not self.oldest)
            with k.if_(self._is_regular(at, upto, partition_end)):
                self._regular(at)
            with k.else_():
                self._one_by_one(at, upto, partition_end)
        k.set(at, upto)

    def _is_regular(self, at: Value, upto: Value, partition_end: Value) -> Value:
        """Return whether exactly one row enters and one leaves at every row of the chunk."""
        k, times = self.k, self.times
        before = k.var("before", at - self.left + 1)  # distance from an entering row to the row that leaves
        otherwise = k.var(
            "otherwise", ((upto - at).ne(_CHUNK) | (upto >= partition_end)) | self.left.eq(0), BOOL
        )
        with k.if_(~otherwise), k.for_(at, upto, "row") as row:
            gone, kept = (
                _is_apart(times[place], times[row], self.since, not self.oldest)
                for place in (row - before, row - before + 1)
            )
            leaves = gone & ~kept
            k.set(otherwise, otherwise | ~(leaves & (times[row + 1] > times[row])))
        return ~otherwise

    def _regular(self, at: Value) -> None:
        k = self.k
        first, place = k.var("first", self.left), k.var("place", at - self.begin)
        with k.for_(0, _CHUNK, "i") as i:
            k.store(self.lo, place + i, first + i)
            k.store(self.hi, place + i, at + 1 + i)
        k.set(self.longest, maximum(self.longest, at + 1 - first))
        k.set(self.left, first + (_CHUNK - 1))
        k.set(self.right, at + _CHUNK)

    def _one_by_one(self, at: Value, upto: Value, partition_end: Value) -> None:
        k = self.k
        with k.for_(at, upto, "row") as row:
            time = k.var("time", self.times[row])
            if self.newest and not self.delayed:
                self._pass_equals(row, time, partition_end)
            else:
                self._advance(self.right, time, self.until, self.newest)
            self._advance(self.left, time, self.since, not self.oldest)
            first = k.var("first", minimum(self.left, self.right))  # keeps lo <= hi before the first row
            k.store(self.lo, row - self.begin, first)
            k.store(self.hi, row - self.begin, self.right)
            k.set(self.longest, maximum(self.longest, self.right - first))

    def _advance(self, pointer: Var, time: Value, by: Value, including: bool) -> None:
        """Advance past the rows that lie `by` before a time. The current row stops the loop: it needs no bounds check."""
        k = self.k
        with k.while_(_is_apart(self.times[pointer], time, by, including)):
            k.set(pointer, pointer + 1)

    def _pass_equals(self, row: Value, time: Value, partition_end: Value) -> None:
        """Advance past a row and all rows of its time. A branch, not a select: rows then do not depend on each other."""
        k, right = self.k, self.right
        k.set(right, maximum(right, row + 1))
        with k.while_((right < partition_end) & (self.times[minimum(right, partition_end - 1)] <= time)):
            k.set(right, right + 1)


def count_sessions() -> Kernel:
    """Count the sessions of partitions: a session begins with the first row, and with each row more than `gap` later."""
    k = KernelBuilder("count_sessions")
    times, bounds, gap = k.buffer("times", I64), k.buffer("bounds", I64), k.scalar("gap")
    found = k.var("found", 0)
    with k.for_(k.scalar("begin"), k.scalar("end"), "partition") as partition:
        k.set(found, found + 1)
        with k.for_(bounds[partition] + 1, bounds[partition + 1], "row") as row:
            k.set(found, found + _apart(times[row - 1], times[row], gap).to(I64))
    k.ret(found)
    return k.build()


def list_sessions() -> Kernel:
    """List the sessions of partitions from number `first` on: first row, first time and last time.

    Every row writes its session; a row of the same session overwrites the entry. This is branch-free.
    """
    k = KernelBuilder("list_sessions")
    times, bounds, gap = k.buffer("times", I64), k.buffer("bounds", I64), k.scalar("gap")
    lo, start, last = k.buffer("lo", I64), k.buffer("start", I64), k.buffer("last", I64)
    at = k.var("at", k.scalar("first") - 1)
    with k.for_(k.scalar("begin"), k.scalar("end"), "partition") as partition:
        begun = k.var("begun", bounds[partition])
        since = k.var("since", times[begun])
        before = k.var("before", since)
        k.set(at, at + 1)
        with k.for_(bounds[partition], bounds[partition + 1], "row") as row:
            time = k.var("time", times[row])
            new = k.var("new", _apart(before, time, gap))
            k.set(at, at + new.to(I64))
            k.set(begun, select(new, row, begun))
            k.set(since, select(new, time, since))
            for buffer, value in ((lo, begun), (start, since), (last, time)):
                k.store(buffer, at, value)
            k.set(before, time)
    k.ret(0)
    return k.build()


def _apart(before: Value, time: Value, gap: Value) -> Value:
    return _is_apart(before, time, gap, including=False)


def _is_apart(before: Value, time: Value, gap: Value, including: bool) -> Value:
    """Return whether a time lies more than a gap after another, or, `including`, exactly the gap."""
    distance, least = Bitcast(time - before, U64), Bitcast(gap, U64)  # never negative, but may exceed 63 bits
    return distance >= least if including else distance > least


def run_starts() -> Kernel:
    """Mark the rows that begin a run: a partition's first row, then each row `within` or more after the last mark."""
    k = KernelBuilder("run_starts")
    times, bounds = k.buffer("times", I64), k.buffer("bounds", I64)
    within, partitions, begins = k.scalar("within"), k.scalar("partitions"), k.buffer("begins", U8)
    with k.for_(0, partitions, "partition") as partition:
        first = k.var("first", bounds[partition])
        since = k.var("since", times[first])
        with k.for_(first, bounds[partition + 1], "row") as row:
            new = k.var("new", row.eq(first) | _apart(since, times[row], within - 1))
            k.store(begins, row, new.to(U8))
            k.set(since, select(new, times[row], since))
    k.ret(0)
    return k.build()
