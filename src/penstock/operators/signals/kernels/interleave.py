"""Merge partitions of points into runs ordered by start time, within the cache (a partition is a `partition`).

Sorting the runs and gathering them would read every partition for each few result rows: one page per partition,
several times over. Partitions are already sorted, so the kernel merges them a *bucket* of time at a time: it copies the
next few points of each partition contiguously, sorts them by the time within the bucket, and writes them.

The bucket length adapts to the data. A bucket with too many runs, or too many at nearly the same time, is restarted at
half the length. A bucket with few runs makes the next one longer.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.algorithms.sort.kernels import settled
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I64, U8, Buffer, Kernel, Type, Value, Var, maximum, minimum, select

CAPACITY_BITS = 16
"""Of the number of runs in a bucket: so many that a partition's share of them is read as a stream, though they leave the
core's own cache. (By 1,000 keys, 2^13 took nearly twice as long.)"""
LONGEST_BUCKET = 1 << 46  # ticks of a bucket: a time relative to the bucket shares a word with a position
INSERTION_STEPS = 4  # insertion steps per run among runs of nearly the same time
NEVER_ENDS = (1 << 63) - 1


def part_of_partitions() -> Kernel:
    """Find each partition's points in [since, before); return the number of points with a value."""
    k = KernelBuilder("part_of_partitions")
    partitions, since, before = k.scalar("partitions"), k.scalar("since"), k.scalar("before")
    bounds, times, valid = k.buffer("bounds", I64), k.buffer("times", I64), k.buffer("valid", U8)
    begins, ends = k.buffer("begins", I64), k.buffer("ends", I64)
    found = k.var("found", 0)
    with k.for_(0, partitions, "partition", scalar=True) as partition:
        first, last = k.var("first", bounds[partition]), k.var("last", bounds[partition + 1])
        begin = _place_of(k, times, first, last, since)
        end = _place_of(k, times, begin, last, before)
        k.store(begins, partition, begin)
        k.store(ends, partition, end)
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


def interleave(
    of_points: tuple[Type, ...], of_partitions: tuple[Type, ...], bits: int = CAPACITY_BITS
) -> Kernel:
    """Write start, end and columns of the runs of `part_of_partitions` from position `first` on. Return 0 on failure.

    Columns belong to points or to partitions. The kernel fails if more runs begin at one time than a bucket holds, or
    if buckets restart more than `patience` times. A partition adds at most one bucket's capacity before the check, so
    scratch buffers have room for twice the runs of a bucket, plus one dummy.
    """
    return _Interleave(of_points, of_partitions, bits).kernel()


@dataclass(frozen=True)
class _Carried:
    """A column: its input, its scratch buffer for a bucket, and its output."""

    source: Buffer
    kept: Buffer
    target: Buffer


class _Interleave:
    def __init__(self, of_points: tuple[Type, ...], of_partitions: tuple[Type, ...], bits: int) -> None:
        self.capacity, self.slots, self.low = 1 << bits, 1 << bits - 1, bits + 1
        self.k = k = KernelBuilder("interleave")
        self.partitions, self.rows = k.scalar("partitions"), k.scalar("rows")
        self.since, self.before = k.scalar("since"), k.scalar("before")
        self.bounds, self.times = k.buffer("bounds", I64), k.buffer("times", I64)
        self.valid = k.buffer("valid", U8)
        self.begins, self.ends, self.next = (k.buffer(hint, I64) for hint in ("begins", "ends", "next"))
        self.words, self.spare, self.until = (k.buffer(hint, I64) for hint in ("words", "spare", "until"))
        self.counts = k.buffer("counts", I64)
        self.out_start, self.out_end = k.buffer("out_start", I64), k.buffer("out_end", I64)
        self.of_points = [self._carried(point) for point in of_points]
        self.of_partitions = [self._carried(partition) for partition in of_partitions]
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
        with k.for_(0, self.partitions, "partition") as partition:
            k.store(self.begins, partition, self.next[partition])
        self._write()
        k.set(self.lo, hi)
        with k.if_(self.n < self.capacity // 4):
            k.set(self.width, minimum(self.width * 2, LONGEST_BUCKET))

    # -- collecting ----------------------------------------------------------------------------------

    def _collect(self, hi: Var) -> None:
        """Copy the points before `hi` that have a value, partition by partition, until the bucket is full."""
        k = self.k
        k.set(self.n, 0)
        k.set(self.full, False)
        partition = k.var("partition", 0)
        with k.while_((partition < self.partitions) & ~self.full):
            at, end = k.var("at", self.begins[partition]), k.var("end", self.ends[partition])
            limit = k.var("limit", minimum(end, at + self.capacity))
            last = k.var("last", maximum(limit - 1, 0))
            behind = k.var("behind", self.bounds[partition + 1])
            with k.while_((at < limit) & (self.times[minimum(at, last)] < hi)):
                self._keep(at, partition, behind)
                k.set(at, at + 1)
            k.store(self.next, partition, at)
            k.set(self.full, (self.n > self.capacity) | (at.eq(limit) & (limit < end)))
            k.set(partition, partition + 1)

    def _keep(self, at: Var, partition: Var, behind: Var) -> None:
        """Store a point; the next overwrites it unless it has a value. This is branch-free."""
        k, n = self.k, self.n
        following = self.times[minimum(at + 1, self.rows - 1)]
        k.store(self.words, n, ((self.times[at] - self.lo) << self.low) | n)
        k.store(self.until, n, select(at + 1 < behind, following, NEVER_ENDS))
        for point in self.of_points:
            k.store(point.kept, n, point.source[at])
        for column in self.of_partitions:
            k.store(column.kept, n, column.source[partition])
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
        return settled(k, self.spare, self.n, self.n * INSERTION_STEPS)

    def _write(self) -> None:
        k, mask = self.k, (1 << self.low) - 1
        with k.for_(0, self.n, "i") as i:
            word = k.var("word", self.spare[i])
            which, to = k.var("which", word & mask), k.var("to", self.done + i)
            k.store(self.out_start, to, self.lo + (word >> self.low))
            k.store(self.out_end, to, self.until[which])
            for point in (*self.of_points, *self.of_partitions):
                k.store(point.target, to, point.kept[which])
        k.set(self.done, self.done + self.n)
