"""The kernels that keep open windows of rows and open sessions as partial states per key, and emit the complete ones.

Rows come in order. `seen[key]` counts the key's rows since its window began: the window is full after `size` rows, and
the next one begins after `every` rows.

The sessions of a key are a list from the newest to the oldest, mostly of one element: they are more than a gap apart.
A row extends one of them, or joins two, or opens a new one. Deadlines are in a binary heap, so expiry reads the
sessions that end, and those that grew since their deadline was filed: at most one for each row that made one grow.

A row behind its arrival watermark is judged in place (docs/semantics.md, 8.7): first the sessions complete at that
watermark are emitted, then the row is late unless an open session of its key lies within the gap, and none that was
emitted does. The end of a key's last emitted session is kept until the watermark is more than two gaps after it and no
open session of the key begins within two gaps after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from penstock.algorithms.keyed_states.kernel import KeyedKernel, KeyedSpec, KeyedStates
from penstock.loop.abi import KEYS, NEED_SLOTS
from penstock.loop.nodes import BOOL, I64, U8, U64, Bitcast, Value, Var, const, maximum, minimum, select
from penstock.types.windows import Count


def counts(spec: KeyedSpec, window: Count) -> KeyedKernel:
    """Add rows and emit the windows that are full; if `final`, then also those that are not, key by key."""
    return _Counts("counts", spec, window).kernel()


@dataclass
class _Counts(KeyedStates):
    window: Count

    def __post_init__(self) -> None:
        super().__post_init__()
        k = self.k
        self.final, self.tail = k.scalar("final", BOOL), k.buffer("tail", I64)
        self.seen, self.start, self.last = (k.buffer(name, I64) for name in ("seen", "start", "last"))
        self.states = self.memory("state")
        self.size, self.every = k.literal(self.window.size, I64), k.literal(self.window.every, I64)

    def kernel(self) -> KeyedKernel:
        k = self.k
        with k.for_(self.lo, self.hi, "r", scalar=True) as r:
            time = k.var("time", self.columns.time_at(r))
            self.reserve_key(r)
            self.reserve_output(r)
            key = k.var("key", self.key_of(r))
            self._take(r, key, time)
        if self.window.partial:
            with k.while_(self.final & (self.tail[0] < self.head[KEYS])):
                self._cut(k.var("cut", self.tail[0]))
        return self.built()

    def _take(self, row: Value, key: Value, time: Value) -> None:
        k, size, every = self.k, self.size, self.every
        place = k.var("place", self.seen[key])
        with k.if_(place.eq(0)):
            k.store(self.start, key, time)
            self.clear(self.states, key)
        with k.if_(place < size):
            self.add(self.states, key, row)
            k.store(self.last, key, time)
            with k.if_(place.eq(size - 1)):
                self.emit(key, self.start[key], time, self.load(self.states, key))
        k.store(self.seen, key, select(place.eq(every - 1), const(0, I64), place + 1))

    def _cut(self, key: Value) -> None:
        """Emit a key's window that is not full."""
        k = self.k
        self.reserve_output(self.hi)
        with k.if_((self.seen[key] > 0) & (self.seen[key] < self.size)):
            self.emit(key, self.start[key], self.last[key], self.load(self.states, key))
        k.store(self.tail, 0, key + 1)


# Words of `marks`: the first free slot (or NONE), the slots used so far, and the length of the heap.
FREE, USED, HEAP = range(3)
NONE = -1
START_OF_TIME, END_OF_TIME = -(1 << 63), (1 << 63) - 1


def sessions(spec: KeyedSpec, judges: bool) -> KeyedKernel:
    """Add rows, then emit the sessions that end before `watermark`, or all if `final`.

    If `judges`, `arrival[row]` is the watermark at the row's arrival, and `late[row]` is set for late rows.
    """
    return _Sessions("sessions", spec, judges).kernel()


@dataclass
class _Sessions(KeyedStates):
    judges: bool
    gap: Var = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        k = self.k
        self.gap, self.watermark = k.scalar("gap"), k.scalar("watermark")
        self.final = k.scalar("final", BOOL)
        self.slots = k.scalar("slots")
        self.marks = k.buffer("marks", I64)
        self.newest, self.oldest = k.buffer("newest", I64), k.buffer("oldest", I64)
        self.ended = k.buffer("ended", I64)
        self.owner = k.buffer("owner", I64)
        self.older, self.newer = k.buffer("older", I64), k.buffer("newer", I64)
        self.start, self.last = k.buffer("start", I64), k.buffer("last", I64)
        self.heap, self.due = k.buffer("heap", I64), k.buffer("due", I64)
        self.states = self.memory("state")
        self.arrival = k.buffer("arrival", I64) if self.judges else None
        self.late = k.buffer("late", U8) if self.judges else None

    def kernel(self) -> KeyedKernel:
        k = self.k
        with k.for_(self.lo, self.hi, "r", scalar=True) as r:
            time = k.var("time", self.columns.time_at(r))
            behind: Value | None = None
            if self.arrival is not None:
                mark = k.var("mark", self.arrival[r])
                behind = k.var("behind", time < mark, BOOL)
                with k.if_(behind):
                    self._expire(mark, const(False, BOOL), r)
            self._reserve(r)
            key = k.var("key", self.key_of(r))
            self._take(r, key, time, behind)
        self._expire(self.watermark, self.final, self.hi)
        return self.built()

    def _reserve(self, row: Value) -> None:
        self.reserve_key(row)
        with self.k.if_((self.marks[FREE] < 0) & (self.marks[USED] >= self.slots)):
            self.leave(NEED_SLOTS, row)

    # -- a row ---------------------------------------------------------------------------------------

    def _take(self, row: Value, key: Value, time: Value, behind: Value | None) -> None:
        """Find the oldest session that the row does not precede by more than the gap, and add the row."""
        k = self.k
        newer, at = k.var("newer", NONE), k.var("at", self.newest[key])
        going = k.var("going", self._precedes(time, at), BOOL)
        with k.while_(going):
            k.set(newer, at)
            k.set(at, self.older[at])
            k.set(going, self._precedes(time, at))
        slot = k.var("slot", maximum(at, const(0, I64)))
        joins = k.var(
            "joins", (at >= 0) & ((time <= self.last[slot]) | self._near(self.last[slot], time)), BOOL
        )
        with self._unless_late(row, key, time, behind, joins):
            with k.if_(joins):
                self._extend(at, time)
            with k.else_():
                k.set(at, self._opened(key, newer, at, time))
            self.add(self.states, at, row)

    def _precedes(self, time: Value, at: Value) -> Value:
        """Return whether a time is more than the gap before a session."""
        start = self.k.var("begin", self.start[maximum(at, const(0, I64))])
        return (at >= 0) & (time < start) & ~self._near(time, start)

    def _near(self, earlier: Value, later: Value) -> Value:
        """Return whether two ordered times differ by at most the gap. Unsigned: the difference may exceed 63 bits."""
        return Bitcast(later - earlier, U64) <= Bitcast(self.gap, U64)

    def _extend(self, at: Value, time: Value) -> None:
        """Extend a session to a time; if it begins earlier now, join the session before it if that is near."""
        k = self.k
        k.store(self.last, at, maximum(self.last[at], time))
        with k.if_(time < self.start[at]):
            k.store(self.start, at, time)
            other = k.var("other", self.older[at])
            before = k.var("before", maximum(other, const(0, I64)))
            with k.if_((other >= 0) & self._near(self.last[before], time)):
                k.store(self.start, at, self.start[other])
                self._link(self.owner[at], at, self.older[other])
                k.store(self.owner, other, NONE)  # its slot is released with its deadline
                both = self.merged(self.load(self.states, other), self.load(self.states, at))
                self.store(self.states, at, both)

    def _opened(self, key: Value, newer: Value, older: Value, time: Value) -> Value:
        """Open a session between two others of its key, and return its slot."""
        k, marks = self.k, self.marks
        new = k.var("new", marks[FREE])
        with k.if_(new < 0):
            k.set(new, marks[USED])
            k.store(marks, USED, new + 1)
        with k.else_():
            k.store(marks, FREE, self.older[new])
        for buffer, value in ((self.owner, key), (self.start, time), (self.last, time)):
            k.store(buffer, new, value)
        self._link(key, newer, new)
        self._link(key, new, older)
        self.clear(self.states, new)
        self._push(new, k.var("deadline", self._end(new)))
        return new

    def _link(self, key: Value, newer: Value, older: Value) -> None:
        """Make two sessions of a key neighbours; NONE is the end of its list."""
        k = self.k
        with k.if_(newer >= 0):
            k.store(self.older, newer, older)
        with k.else_():
            k.store(self.newest, key, older)
        with k.if_(older >= 0):
            k.store(self.newer, older, newer)
        with k.else_():
            k.store(self.oldest, key, newer)

    # -- lateness ------------------------------------------------------------------------------------

    @contextmanager
    def _unless_late(
        self, row: Value, key: Value, time: Value, behind: Value | None, joins: Value
    ) -> Iterator[None]:
        if behind is None or self.late is None or self.arrival is None:
            yield
            return
        k = self.k
        late = k.var("late", False, BOOL)
        with k.if_(behind):
            self._forget(key, self.arrival[row])
            end = k.var("end", self.ended[key])
            k.set(late, ~joins | ((end > START_OF_TIME) & (time <= end)))
        k.store(self.late, row, late.to(U8))
        with k.if_(~late):
            yield

    def _forget(self, key: Value, mark: Value) -> None:
        """Drop the end of the key's last emitted session if no row can reach it any more."""
        k = self.k
        end, twice = k.var("kept_end", self.ended[key]), k.var("twice", self._sum(self.gap, self.gap))
        limit = k.var("limit", self._sum(maximum(end, const(0, I64)), twice))
        k.set(limit, select(end < 0, end + twice, limit))
        with k.if_((end > START_OF_TIME) & (limit < mark) & (limit < END_OF_TIME)):
            oldest = k.var("oldest_of", self.oldest[key])
            begins = k.var("begins", self.start[maximum(oldest, const(0, I64))])
            with k.if_((oldest < 0) | (begins > limit)):
                k.store(self.ended, key, START_OF_TIME)

    @staticmethod
    def _sum(a: Value, b: Value) -> Value:
        """Add two non-negative times, up to the end of time."""
        return select(a > const(END_OF_TIME, I64) - b, const(END_OF_TIME, I64), a + b)

    # -- expiry --------------------------------------------------------------------------------------

    def _end(self, slot: Value) -> Value:
        last = self.k.var("last_time", self.last[slot])
        return select(last > const(END_OF_TIME, I64) - self.gap, const(END_OF_TIME, I64), last + self.gap)

    def _expire(self, watermark: Value, final: Value, row: Value) -> None:
        """Emit the sessions that end before a watermark, in the order of their ends."""
        k = self.k
        top = k.var("top", self.heap[0])
        going = k.var("going", self._is_due(watermark, final), BOOL)
        with k.while_(going):
            with k.if_(self.owner[top] < 0):
                self._pop(top)
            with k.else_():
                end = k.var("end", self._end(top))
                with k.if_(end > self.due[0]):
                    self._sink(top, end)
                with k.else_():
                    self.reserve_output(row)
                    self._close(top, end)
                    self._pop(top)
            k.set(top, self.heap[0])
            k.set(going, self._is_due(watermark, final))

    def _is_due(self, watermark: Value, final: Value) -> Value:
        return (self.marks[HEAP] > 0) & ((self.due[0] < watermark) | final)

    def _close(self, slot: Value, end: Value) -> None:
        """Emit a session, and take it out of its key's list."""
        k = self.k
        key = k.var("owned", self.owner[slot])
        self.emit(key, self.start[slot], self.last[slot], self.load(self.states, slot))
        k.store(self.ended, key, maximum(self.ended[key], end))
        self._link(key, self.newer[slot], self.older[slot])

    # -- the heap of deadlines -----------------------------------------------------------------------

    def _push(self, slot: Value, deadline: Value) -> None:
        k = self.k
        place = k.var("leaf", self.marks[HEAP])
        k.store(self.marks, HEAP, place + 1)
        parent = k.var("parent", self._parent(place))
        with k.while_((place > 0) & (self.due[parent] > deadline)):
            self._place(place, self.heap[parent], self.due[parent])
            k.set(place, parent)
            k.set(parent, self._parent(place))
        self._place(place, slot, deadline)

    def _place(self, place: Value, slot: Value, deadline: Value) -> None:
        self.k.store(self.heap, place, slot)
        self.k.store(self.due, place, deadline)

    @staticmethod
    def _parent(place: Value) -> Value:
        return maximum(place - 1, const(0, I64)) >> 1

    def _pop(self, top: Value) -> None:
        """Remove the root of the heap, and release its slot."""
        k, marks = self.k, self.marks
        k.store(self.older, top, marks[FREE])
        k.store(marks, FREE, top)
        left = k.var("left", marks[HEAP] - 1)
        k.store(marks, HEAP, left)
        with k.if_(left > 0):
            self._sink(k.var("moved", self.heap[left]), k.var("deadline", self.due[left]))

    def _sink(self, slot: Value, deadline: Value) -> None:
        """Put a slot at the root of the heap, and move it down to its place."""
        k = self.k
        size, place, child = k.var("size", self.marks[HEAP]), k.var("place", 0), k.var("child", 1)
        going = k.var("sinking", size > 1, BOOL)
        with k.while_(going):
            right = k.var("right", minimum(child + 1, size - 1))
            k.set(child, select(self.due[right] < self.due[child], right, child))
            k.set(going, self.due[child] < deadline)
            with k.if_(going):
                self._place(place, self.heap[child], self.due[child])
                k.set(place, child)
                k.set(child, place * 2 + 1)
                k.set(going, child < size)
        self._place(place, slot, deadline)
