"""Merge partitions of points into runs ordered by start time, within the cache (a partition is a `lane`).

Sorting the runs and gathering them would read every partition for each few result rows: one page per partition,
several times over. Partitions are already sorted, so the kernel merges them a *bucket* of time at a time: it copies the
next few points of each partition contiguously, sorts them by the time within the bucket, and writes them.

The bucket length adapts to the data. A bucket with too many runs, or too many at nearly the same time, is restarted at
half the length. A bucket with few runs makes the next one longer.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.algorithms.sort.radix import settled
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I64, U8, Buffer, Kernel, Type, Value, Var, maximum, minimum, select

CAPACITY_BITS = 16
"""Of the number of runs in a bucket: so many that a lane's share of them is read as a stream, though they leave the
core's own cache. (By 1,000 keys, 2^13 took nearly twice as long.)"""
LONGEST = 1 << 46  # ticks of a bucket: a time relative to the bucket shares a word with a position
PATIENCE = 4  # insertion steps per run among runs of nearly the same time
NEVER_ENDS = (1 << 63) - 1


def part_of_lanes() -> Kernel:
    """Find each partition's points in [since, before); return the number of points with a value."""
    k = KernelBuilder("part_of_lanes")
    lanes, since, before = k.scalar("lanes"), k.scalar("since"), k.scalar("before")
    bounds, times, valid = k.buffer("bounds", I64), k.buffer("times", I64), k.buffer("valid", U8)
    begins, ends = k.buffer("begins", I64), k.buffer("ends", I64)
    found = k.var("found", 0)
    with k.for_(0, lanes, "lane", scalar=True) as lane:
        first, last = k.var("first", bounds[lane]), k.var("last", bounds[lane + 1])
        begin = _place_of(k, times, first, last, since)
        end = _place_of(k, times, begin, last, before)
        k.store(begins, lane, begin)
        k.store(ends, lane, end)
        with k.for_(begin, end, "i") as i:
            k.set(found, found + valid[i].to(I64))
    k.ret(found)
    return k.build()


def _place_of(k: KernelBuilder, times: Buffer, first: Value, last: Value, time: Value) -> Var:
    """Return the first position with a time not before `time`."""
    at, upto = k.var("at", first), k.var("upto", last)
    with k.while_(at < upto):
        middle = k.var("middle", (at + upto) >> 1)
        earlier = k.var("earlier", times[middle] < time)
        k.set(at, select(earlier, middle + 1, at))
        k.set(upto, select(earlier, upto, middle))
    return at


def interleave(of_points: tuple[Type, ...], of_lanes: tuple[Type, ...], bits: int = CAPACITY_BITS) -> Kernel:
    """Write start, end and columns of the runs of `part_of_lanes` from position `first` on. Return 0 on failure.

    Columns belong to points or to partitions. The kernel fails if more runs begin at one time than a bucket holds, or
    if buckets restart more than `patience` times. A partition adds at most one bucket's capacity before the check, so
    scratch buffers have room for twice the runs of a bucket, plus one dummy.
    """
    return _Interleave(of_points, of_lanes, bits).kernel()


@dataclass(frozen=True)
class _Carried:
    """A column: its input, its scratch buffer for a bucket, and its output."""

    source: Buffer
    kept: Buffer
    target: Buffer


class _Interleave:
    def __init__(self, of_points: tuple[Type, ...], of_lanes: tuple[Type, ...], bits: int) -> None:
        self.capacity, self.slots, self.low = 1 << bits, 1 << bits - 1, bits + 1
        self.k = k = KernelBuilder("interleave")
        self.lanes, self.rows = k.scalar("lanes"), k.scalar("rows")
        self.since, self.before = k.scalar("since"), k.scalar("before")
        self.bounds, self.times = k.buffer("bounds", I64), k.buffer("times", I64)
        self.valid = k.buffer("valid", U8)
        self.begins, self.ends, self.next = (k.buffer(hint, I64) for hint in ("begins", "ends", "next"))
        self.words, self.spare, self.until = (k.buffer(hint, I64) for hint in ("words", "spare", "until"))
        self.counts = k.buffer("counts", I64)
        self.out_start, self.out_end = k.buffer("out_start", I64), k.buffer("out_end", I64)
        self.of_points = [self._carried(each) for each in of_points]
        self.of_lanes = [self._carried(each) for each in of_lanes]
        self.done, self.width = k.var("done", k.scalar("first")), k.var("width", k.scalar("width"))
        self.left = k.var("left", k.scalar("patience"))
        self.lo, self.n = k.var("lo", self.since), k.var("n", 0)
        self.full = k.var("full", False, BOOL)

    def _carried(self, type: Type) -> _Carried:
        k = self.k
        return _Carried(k.buffer("in", type), k.buffer("kept", type), k.buffer("out", type))

    def kernel(self) -> Kernel:
        k = self.k
        with k.while_((self.lo < self.before) & (self.left > 0)):
            hi = k.var("hi", minimum(self.lo + self.width, self.before))
            self._collect(hi)
            with k.if_((self.n > 0) & ~self.full):
                k.set(self.full, ~self._sort(hi))
            with k.if_(self.full):
                self._shorten()
            with k.else_():
                self._accept(hi)
        k.ret((self.left > 0).to(I64))
        return k.build()

    def _shorten(self) -> None:
        """Halve the bucket; give up if it is a single tick long."""
        k = self.k
        k.set(self.left, select(self.width > 1, self.left - 1, 0))
        k.set(self.width, maximum(self.width >> 1, 1))

    def _accept(self, hi: Var) -> None:
        k = self.k
        with k.for_(0, self.lanes, "lane") as lane:
            k.store(self.begins, lane, self.next[lane])
        self._write()
        k.set(self.lo, hi)
        with k.if_(self.n < self.capacity // 4):
            k.set(self.width, minimum(self.width * 2, LONGEST))

    # -- collecting ----------------------------------------------------------------------------------

    def _collect(self, hi: Var) -> None:
        """Copy the points before `hi` that have a value, partition by partition, until the bucket is full."""
        k = self.k
        k.set(self.n, 0)
        k.set(self.full, False)
        lane = k.var("lane", 0)
        with k.while_((lane < self.lanes) & ~self.full):
            at, end = k.var("at", self.begins[lane]), k.var("end", self.ends[lane])
            limit = k.var("limit", minimum(end, at + self.capacity))
            last = k.var("last", maximum(limit - 1, 0))
            behind = k.var("behind", self.bounds[lane + 1])
            with k.while_((at < limit) & (self.times[minimum(at, last)] < hi)):
                self._keep(at, lane, behind)
                k.set(at, at + 1)
            k.store(self.next, lane, at)
            k.set(self.full, (self.n > self.capacity) | (at.eq(limit) & (limit < end)))
            k.set(lane, lane + 1)

    def _keep(self, at: Var, lane: Var, behind: Var) -> None:
        """Store a point; the next overwrites it unless it has a value. This is branch-free."""
        k, n = self.k, self.n
        following = self.times[minimum(at + 1, self.rows - 1)]
        k.store(self.words, n, ((self.times[at] - self.lo) << self.low) | n)
        k.store(self.until, n, select(at + 1 < behind, following, NEVER_ENDS))
        for each in self.of_points:
            k.store(each.kept, n, each.source[at])
        for each in self.of_lanes:
            k.store(each.kept, n, each.source[lane])
        k.set(self.n, n + self.valid[at].ne(0).to(I64))

    # -- sorting and writing -------------------------------------------------------------------------

    def _sort(self, hi: Var) -> Value:
        """Sort words by the high bits of their times, then by insertion; return whether the insertion was short enough."""
        k, words = self.k, self.words
        shift, most = k.var("shift", 0), k.var("most", hi - self.lo - 1)
        with k.while_((most >> shift) >= self.slots):
            k.set(shift, shift + 1)
        slots = k.var("slots", (most >> shift) + 1)
        with k.for_(0, slots, "slot") as slot:
            k.store(self.counts, slot, 0)
        k.set(shift, shift + self.low)
        with k.for_(0, self.n, "i", scalar=True) as i:
            slot = k.var("slot", words[i] >> shift)
            k.store(self.counts, slot, self.counts[slot] + 1)
        total = k.var("total", 0)
        with k.for_(0, slots, "slot") as slot:
            here = k.var("here", self.counts[slot])
            k.store(self.counts, slot, total)
            k.set(total, total + here)
        with k.for_(0, self.n, "i", scalar=True) as i:
            word = k.var("word", words[i])
            slot = k.var("slot", word >> shift)
            place = k.var("place", self.counts[slot])
            k.store(self.spare, place, word)
            k.store(self.counts, slot, place + 1)
        return settled(k, self.spare, self.n, self.n * PATIENCE)

    def _write(self) -> None:
        k, mask = self.k, (1 << self.low) - 1
        with k.for_(0, self.n, "i") as i:
            word = k.var("word", self.spare[i])
            which, to = k.var("which", word & mask), k.var("to", self.done + i)
            k.store(self.out_start, to, self.lo + (word >> self.low))
            k.store(self.out_end, to, self.until[which])
            for each in (*self.of_points, *self.of_lanes):
                k.store(each.target, to, each.kept[which])
        k.set(self.done, self.done + self.n)
