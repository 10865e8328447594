"""Find the frames of windows: for each window of a lane, the range of its rows.

Rows lie lane by lane in order of time, so both ends of a window only ever move forward: two pointers, no
search. `bounds` lists where lanes begin, and where the last one ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I64, U8, U64, Bitcast, Kernel, Value, Var, maximum, minimum, select


def grid_frames() -> Kernel:
    """Windows [offset + n * every, … + size), n from `after` up to `upto`, those that hold a row."""
    k = KernelBuilder("grid_frames")
    size, every, offset = k.scalar("size"), k.scalar("every"), k.scalar("offset")

    def skip(n: Var, time: Value) -> None:
        """Go to the first window that ends after a time."""
        ahead = k.var("ahead", time - offset - size)
        whole = k.var("whole", ahead.div(every))
        below = (ahead < 0) & ahead.ne(whole * every)  # division truncates: this makes it the floor
        k.set(n, maximum(n, whole + 1 - below.to(I64)))

    windows = _Windows(k, lambda n: offset + n * every, lambda n: offset + n * every + size, skip)
    return windows.kernel()


def listed_frames() -> Kernel:
    """Windows [starts[n], ends[n]), both rising, n from `after` up to `upto`, those that hold a row."""
    k = KernelBuilder("listed_frames")
    starts, ends = k.buffer("starts", I64), k.buffer("ends", I64)

    def skip(n: Var, time: Value) -> None:
        """Search for the first window that ends after a time; the list holds one beyond `upto` that does."""
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
    """Two pointers through each lane; `skip(n, time)` moves n to the first window, from n on, ending after a time."""

    k: KernelBuilder
    start: Callable[[Value], Value]
    end: Callable[[Value], Value]
    skip: Callable[[Var, Value], None]

    def __post_init__(self) -> None:
        k = self.k
        self.times, self.bounds = k.buffer("times", I64), k.buffer("bounds", I64)
        self.after, self.upto = k.scalar("after"), k.scalar("upto")
        self.lanes, self.capacity = k.scalar("lanes"), k.scalar("capacity")
        self.lo, self.hi, self.number = (k.buffer(hint, I64) for hint in ("lo", "hi", "number"))

    def kernel(self) -> Kernel:
        """Write frames while there is room; return how many there are in all."""
        k = self.k
        self.found = k.var("found", 0)
        with k.for_(0, self.lanes, "lane") as lane:
            self._lane(k.var("at", self.bounds[lane]), k.var("stop", self.bounds[lane + 1]))
        k.ret(self.found)
        return k.build()

    def _lane(self, at: Var, stop: Var) -> None:
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
        """Move past rows before a time."""
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
    """For each of the rows `begin … end`, the rows of its lane from `since` before its time to `until` before it.

    `oldest` and `newest` tell whether rows exactly at the ends belong to the frame, `delayed` that `until` is not
    zero. The first of the rows lies in lane `lane`, and looks back on nothing before `left` and `right`. Bounds are
    written from the start of `lo` and `hi`. Returns the length of the longest frame.
    """
    k = KernelBuilder("look_back_frames")
    times, bounds = k.buffer("times", I64), k.buffer("bounds", I64)
    since, until = k.scalar("since"), k.scalar("until")
    begin, end, lane = k.scalar("begin"), k.scalar("end"), k.scalar("lane")
    lo, hi = k.buffer("lo", I64), k.buffer("hi", I64)
    left, right = k.var("from", k.scalar("left")), k.var("to", k.scalar("right"))
    longest, at, here = k.var("longest", 0), k.var("at", begin), k.var("here", lane)

    def advance(pointer: Var, limit: Value, including: bool) -> None:
        """Move past rows up to a time: the row that looks back is later, or the first not to be passed."""
        bound = k.var("bound", limit)
        with k.while_(times[pointer] <= bound if including else times[pointer] < bound):
            k.set(pointer, pointer + 1)

    def pass_equals(row: Value, time: Value, lane_end: Value) -> None:
        """Move past a row and all of its time; whether it moves is a branch, so that no row waits for the last."""
        k.set(right, maximum(right, row + 1))
        with k.while_((right < lane_end) & (times[minimum(right, lane_end - 1)] <= time)):
            k.set(right, right + 1)

    with k.while_(at < end):
        stop = k.var("stop", minimum(bounds[here + 1], end))
        lane_end = k.var("lane_end", bounds[here + 1])
        with k.for_(at, stop, "row") as row:
            time = k.var("time", times[row])
            if newest and not delayed:
                pass_equals(row, time, lane_end)
            else:
                advance(right, time - until, newest)
            advance(left, time - since, not oldest)
            first = k.var("first", minimum(left, right))  # a span before the first row has its ends turned
            k.store(lo, row - begin, first)
            k.store(hi, row - begin, right)
            k.set(longest, maximum(longest, right - first))
        k.set(at, stop)
        k.set(here, here + 1)
        k.set(left, stop)
        k.set(right, stop)
    k.ret(longest)
    return k.build()


def session_starts() -> Kernel:
    """List the rows that begin a session in `lo`: the first of a lane, and each more than `gap` after the last.

    Every row is written, and overwritten by the next unless it counts: that costs no branch. `lo` has room for
    one more than there are rows. Returns how many there are.
    """
    k = KernelBuilder("session_starts")
    times, bounds = k.buffer("times", I64), k.buffer("bounds", I64)
    gap, lanes, lo = k.scalar("gap"), k.scalar("lanes"), k.buffer("lo", I64)
    found = k.var("found", 0)
    with k.for_(0, lanes, "lane") as lane:
        first = k.var("first", bounds[lane])
        k.store(lo, found, first)
        k.set(found, found + 1)
        before = k.var("before", times[first])
        with k.for_(first + 1, bounds[lane + 1], "row") as row:
            time = k.var("time", times[row])
            apart = Bitcast(time - before, U64)  # never negative, but perhaps beyond 63 bits
            k.store(lo, found, row)
            k.set(found, found + (apart > Bitcast(gap, U64)).to(I64))
            k.set(before, time)
    k.ret(found)
    return k.build()


def run_starts() -> Kernel:
    """Mark the rows that begin a run: the first of a lane, then each that is `within` or more after the last mark."""
    k = KernelBuilder("run_starts")
    times, bounds = k.buffer("times", I64), k.buffer("bounds", I64)
    within, lanes, begins = k.scalar("within"), k.scalar("lanes"), k.buffer("begins", U8)
    with k.for_(0, lanes, "lane") as lane:
        first = k.var("first", bounds[lane])
        since = k.var("since", times[first] - within)
        with k.for_(first, bounds[lane + 1], "row") as row:
            new = k.var("new", times[row] - since >= within)
            k.store(begins, row, new.to(U8))
            k.set(since, select(new, times[row], since))
    k.ret(0)
    return k.build()
