"""The kernel of interval joins between pushes: rows of both sides enter lists per key and meet the other side's.

New rows of both sides are visited in order of time, left ones first. A row meets the earlier rows of its key on the
other side, which are in order of time: those too old for it are too old for all rows to come, and leave the list. So
each step of the kernel is a row that enters, a row that leaves, or a pair.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I64, U8, U64, Bitcast, Buffer, Kernel, Value, Var, const, maximum

# Words of `marks`: the next left and right row, the row of the other side that is met next, and the pairs written.
LEFT, RIGHT, AT, MADE = range(4)
NONE, AFRESH = -1, -2
NO_ROOM = 1  # returned when there is no room for a pair


def interval_join(pairs: bool) -> Kernel:
    """Write the pairs of new rows; or, without `pairs`, flag the left rows that have a partner.

    The distance in time to an earlier row of the other side is from `least` to `most`; a side whose rows never meet later
    ones is not `held`.
    """
    return _Interval(KernelBuilder("interval_join"), pairs).kernel()


@dataclass(frozen=True)
class _Side:
    """One side: its rows, the lists of its keys, and which distances its new rows have to the other's."""

    times: Buffer
    keys: Buffer
    links: Buffer
    first: Buffer
    last: Buffer
    end: Var
    least: Var
    most: Var
    held: Var

    @staticmethod
    def declare(k: KernelBuilder, name: str) -> _Side:
        times, keys, links = (k.buffer(f"{name}_{hint}", I64) for hint in ("times", "keys", "links"))
        first, last = k.buffer(f"{name}_first", I64), k.buffer(f"{name}_last", I64)
        end, least, most, held = (k.scalar(f"{name}_{hint}") for hint in ("end", "least", "most", "held"))
        return _Side(times, keys, links, first, last, end, least, most, held)


@dataclass
class _Interval:
    k: KernelBuilder
    pairs: bool

    def __post_init__(self) -> None:
        k = self.k
        self.marks = k.buffer("marks", I64)
        self.sides = _Side.declare(k, "left"), _Side.declare(k, "right")
        self.capacity = k.scalar("capacity")
        self.out = k.buffer("own", I64), k.buffer("other", I64)
        self.flags = k.buffer("flags", U8)
        self.places = k.var("left", self.marks[LEFT]), k.var("right", self.marks[RIGHT])
        self.at, self.made = k.var("at", self.marks[AT]), k.var("made", const(0, I64))

    def kernel(self) -> Kernel:
        k, (left, right) = self.k, self.sides
        mine, its = self.places
        with k.while_((mine < left.end) | (its < right.end)):
            here, there = left.times[_inside(mine, left.end)], right.times[_inside(its, right.end)]
            with k.if_((mine < left.end) & ((its >= right.end) | (here <= there))):
                self._take(0)
            with k.else_():
                self._take(1)
        self._leave(0)
        return k.build()

    def _take(self, side: int) -> None:
        """Visit the next row of a side."""
        k, place, own, other = self.k, self.places[side], self.sides[side], self.sides[1 - side]
        key, time = k.var("key", own.keys[place]), k.var("time", own.times[place])
        with k.if_(key >= 0):
            with k.if_(self.at.eq(AFRESH)):
                self._evict(other, key, time, own.most)
            enters = k.var("enters", own.held.ne(0), BOOL)
            if self.pairs:
                self._write_pairs(side, time)
            elif side == 0:
                self._flag_row(place, time, enters)
            else:
                self._flag_others(key, time)
            with k.if_(enters):
                _append(k, own, place, key)
        k.set(self.at, AFRESH)
        k.set(place, place + 1)

    def _evict(self, side: _Side, key: Value, time: Value, most: Value) -> None:
        """Take the rows from a list that are too old, and begin with the first of the others."""
        k, at = self.k, self.at
        k.set(at, side.first[key])
        with k.while_((at >= 0) & (_apart(side, at, time) > Bitcast(most, U64))):
            k.set(at, side.links[at])
        k.store(side.first, key, at)

    def _is_met(self, side: int, time: Value) -> Value:
        """Whether there is a row of the other side at `at`, old enough for a new row of a side."""
        least = Bitcast(self.sides[side].least, U64)
        return (self.at >= 0) & (_apart(self.sides[1 - side], self.at, time) >= least)

    def _write_pairs(self, side: int, time: Value) -> None:
        k = self.k
        with k.while_(self._is_met(side, time)):
            with k.if_(self.made >= self.capacity):
                self._leave(NO_ROOM)
            k.store(self.out[side], self.made, self.places[side])
            k.store(self.out[1 - side], self.made, self.at)
            k.set(self.made, self.made + 1)
            k.set(self.at, self.sides[1 - side].links[self.at])

    def _flag_row(self, place: Value, time: Value, enters: Var) -> None:
        """Flag a new left row that has a partner; it needs no other."""
        k = self.k
        with k.if_(self._is_met(0, time)):
            k.store(self.flags, place, const(1, U8))
            k.set(enters, const(False, BOOL))

    def _flag_others(self, key: Value, time: Value) -> None:
        """Flag the left rows that a new right row is the first partner of, and take them from their list."""
        k, left = self.k, self.sides[0]
        with k.while_(self._is_met(1, time)):
            k.store(self.flags, self.at, const(1, U8))
            k.set(self.at, left.links[self.at])
        k.store(left.first, key, self.at)

    def _leave(self, status: int) -> None:
        k = self.k
        for word, value in zip((LEFT, RIGHT, AT, MADE), (*self.places, self.at, self.made), strict=True):
            k.store(self.marks, word, value)
        k.ret(status)


def link_rows() -> Kernel:
    """Enter the rows `begin … end` into the lists of their keys, but for those without a key and those flagged."""
    k = KernelBuilder("link_rows")
    keys, links = k.buffer("keys", I64), k.buffer("links", I64)
    first, last, flags = k.buffer("first", I64), k.buffer("last", I64), k.buffer("flags", U8)
    with k.for_(k.scalar("begin"), k.scalar("end"), "row", scalar=True) as row:
        key = k.var("key", keys[row])
        with k.if_((key >= 0) & flags[row].eq(0)):
            _enter(k, (links, first, last), row, key)
    k.ret(0)
    return k.build()


def _append(k: KernelBuilder, side: _Side, row: Value, key: Value) -> None:
    _enter(k, (side.links, side.first, side.last), row, key)


def _enter(k: KernelBuilder, lists: tuple[Buffer, Buffer, Buffer], row: Value, key: Value) -> None:
    links, first, last = lists
    k.store(links, row, NONE)
    with k.if_(first[key] < 0):
        k.store(first, key, row)
    with k.else_():
        k.store(links, last[key], row)
    k.store(last, key, row)


def _apart(side: _Side, place: Value, time: Value) -> Value:
    """How long before a time a row is. Unsigned: the distance may exceed 63 bits."""
    return Bitcast(time - side.times[maximum(place, const(0, I64))], U64)


def _inside(place: Value, end: Value) -> Value:
    """A place that may be read; there is room for a row."""
    return maximum(place - (place >= end).to(I64), const(0, I64))
