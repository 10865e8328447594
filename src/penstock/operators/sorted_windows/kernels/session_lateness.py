"""The kernel that decides which rows are late for sessions, row by row in the order of arrival.

Time is divided into buckets as wide as the gap. So all rows of a key in a bucket are in one session, and a session is a
run of adjacent buckets. A *pair* is a (key, bucket). Pairs are numbered by key, then bucket, and hold the least and the
largest time of the rows in open sessions. Each row reads three pairs. Pairs of emitted sessions are cleared once
each, so the cost per row is constant.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I64, U8, U64, Bitcast, Kernel, Value, Var, maximum, minimum

ACCEPTED, LATE, CUT = 0, 1, 2
START_OF_TIME, END_OF_TIME = -(1 << 63), (1 << 63) - 1


def session_lateness(begin_earlier: bool) -> Kernel:
    """Write each row's status: accepted, late, or accepted after the sessions complete at its watermark are emitted.

    `marks[row]` is the watermark at the row's arrival; `safe[row]` is that watermark minus the gap. The end of a key's
    last emitted session is kept until the watermark is more than `twice` after it and no open session begins within
    `twice` after it; ends greater than `most` are always kept. `earliest[key]` is the start of the key's open session
    before the rows of this call.
    """
    return _Lateness(KernelBuilder("session_lateness"), begin_earlier).kernel()


@dataclass
class _Lateness:
    k: KernelBuilder
    begin_earlier: bool

    def __post_init__(self) -> None:
        k = self.k
        self.times, self.marks, self.safe = (k.buffer(name, I64) for name in ("times", "marks", "safe"))
        self.keys, self.pairs = k.buffer("keys", I64), k.buffer("pairs", I64)
        self.buckets, self.low, self.high = (k.buffer(name, I64) for name in ("buckets", "low", "high"))
        self.bounds, self.front, self.reach = (k.buffer(name, I64) for name in ("bounds", "front", "reach"))
        self.ended, self.upto, self.earliest = (k.buffer(name, I64) for name in ("ended", "upto", "earliest"))
        self.fates = k.buffer("fates", U8)
        self.gap, self.twice, self.most = k.scalar("gap"), k.scalar("twice"), k.scalar("most")

    def kernel(self) -> Kernel:
        k = self.k
        with k.for_(0, k.scalar("rows"), "row") as row:
            fate = k.var("fate", ACCEPTED)
            key, pair, time = (
                k.var(name, buffer[row])
                for name, buffer in (("key", self.keys), ("pair", self.pairs), ("time", self.times))
            )
            with k.if_(time < self.marks[row]):
                stop = k.var("stop", self.bounds[key + 1])
                self._close(key, stop, k.var("before", self.safe[row]))
                self._forget(key, stop, k.var("mark", self.marks[row]))
                self._judge(fate, key, pair, time, stop)
            k.store(self.fates, row, fate.to(U8))
            with k.if_(fate.ne(LATE)):
                self._insert(key, pair, time)
        k.ret(0)
        return k.build()

    def _close(self, key: Value, stop: Value, before: Value) -> None:
        """Clear a key's sessions whose last row is before a time, and store the end of the last of them."""
        k = self.k
        first, last = k.var("first", self.front[key]), k.var("last", self.reach[key])
        going = k.var("going", first < stop, BOOL)
        with k.while_(going):
            self._walk(last, stop, before)
            k.set(going, self.high[last] < before)
            with k.if_(going):
                k.store(self.ended, key, self.high[last] + self.gap)
                k.store(self.upto, key, self.high[last] + self.gap)
                k.store(self.earliest, key, END_OF_TIME)
                self._clear(first, last, stop)
                k.set(last, first)
                k.set(going, first < stop)
        k.store(self.front, key, first)
        k.store(self.reach, key, last)

    def _walk(self, last: Var, stop: Value, before: Value) -> None:
        """Advance through a session's pairs until one has a row at or after a time."""
        k = self.k
        more = k.var("more", self.high[last] < before, BOOL)
        with k.while_(more):
            k.set(more, self._chained(last, last + 1, stop))
            with k.if_(more):
                k.set(last, last + 1)
                k.set(more, self.high[last] < before)

    def _chained(self, pair: Value, following: Value, stop: Value) -> Value:
        """Return whether the next pair continues the session of a pair."""
        there = self.k.var("there", minimum(following, stop - 1))
        return (
            (following < stop)
            & self.buckets[there].eq(self.buckets[pair] + 1)
            & (self.low[there] <= self.high[there])
            & self._within(self.high[pair], self.low[there])
        )

    def _within(self, earlier: Value, later: Value) -> Value:
        """Return whether two ordered times differ by at most the gap. Unsigned: the difference may exceed 63 bits."""
        return Bitcast(later - earlier, U64) <= Bitcast(self.gap, U64)

    def _clear(self, first: Var, last: Value, stop: Value) -> None:
        """Clear pairs, and advance to the next pair that holds a row."""
        k = self.k
        empty = k.var("empty", first < stop, BOOL)
        with k.while_(empty):
            with k.if_(first <= last):
                k.store(self.low, first, END_OF_TIME)
                k.store(self.high, first, START_OF_TIME)
            k.set(empty, self.low[first] > self.high[first])
            with k.if_(empty):
                k.set(first, first + 1)
                k.set(empty, first < stop)

    def _forget(self, key: Value, stop: Value, mark: Value) -> None:
        k = self.k
        end, first = k.var("end", self.ended[key]), k.var("first", self.front[key])
        with k.if_((end > START_OF_TIME) & (end <= self.most)):
            limit = k.var("limit", end + self.twice)
            here = (first < stop) & (self.low[minimum(first, stop - 1)] <= limit)
            opened = k.var("opened", here | (self.earliest[key] <= limit))
            with k.if_((mark > limit) & ~opened):
                k.store(self.ended, key, START_OF_TIME)

    def _judge(self, fate: Var, key: Value, pair: Value, time: Value, stop: Value) -> None:
        k = self.k
        emitted = (self.ended[key] > START_OF_TIME) & (time <= self.ended[key])
        with k.if_(emitted | ~self._near(key, pair, time, stop)):
            k.set(fate, LATE)
        with k.else_(), k.if_((self.upto[key] > START_OF_TIME) & (time <= self.upto[key])):
            k.set(fate, CUT)

    def _near(self, key: Value, pair: Value, time: Value, stop: Value) -> Value:
        """Return whether an open session of the key is within the gap of a time."""
        k = self.k
        begin = k.var("begin", self.bounds[key])
        before = k.var("earlier", maximum(pair - 1, begin))
        found = k.var(
            "found",
            (pair > begin)
            & self.buckets[before].eq(self.buckets[pair] - 1)
            & (self.low[before] <= self.high[before])
            & self._within(self.high[before], time),
            BOOL,
        )
        here = self.low[pair] <= self.high[pair]
        if not self.begin_earlier:
            return found | (here & (self.low[pair] <= time))
        after = k.var("later", minimum(pair + 1, stop - 1))
        follows = (
            (pair + 1 < stop)
            & self.buckets[after].eq(self.buckets[pair] + 1)
            & (self.low[after] <= self.high[after])
            & self._within(time, self.low[after])
        )
        return found | here | follows

    def _insert(self, key: Value, pair: Value, time: Value) -> None:
        k = self.k
        k.store(self.low, pair, minimum(self.low[pair], time))
        k.store(self.high, pair, maximum(self.high[pair], time))
        first = k.var("first", self.front[key])
        with k.if_(pair < first):
            joined = k.var("joined", first.eq(pair + 1), BOOL)
            with k.if_(~(joined & self._chained(pair, pair + 1, self.bounds[key + 1]))):
                k.store(self.reach, key, pair)
            k.store(self.front, key, pair)
