"""The kernel of session joins between pushes: which rows are in sessions that are complete.

New rows of both sides are visited in order of time. Before a row, the rows at least a gap before it expire, in order of time:
the session of a key ends with a row that expires while it is still the key's last one. So each step is a row that
enters, one that expires, or one that leaves with its session.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import (
    BOOL,
    I64,
    U8,
    U64,
    Bitcast,
    Buffer,
    Kernel,
    Value,
    Var,
    const,
    maximum,
    minimum,
)

# Words of `marks`: for the left and the right side the next new row, the next to expire, and the rows that have left.
NEW, EXPIRING, GONE = 0, 2, 4
NONE = -1


def session_join() -> Kernel:
    """Enter new rows, and write those of the sessions that end before `watermark`; when `closing`, those of all."""
    return _Sessions(KernelBuilder("session_join")).kernel()


@dataclass(frozen=True)
class _Side:
    times: Buffer
    keys: Buffer
    links: Buffer
    gone: Buffer
    first: Buffer
    last: Buffer
    out: Buffer
    end: Var
    new: Var
    expiring: Var
    left: Var


@dataclass
class _Sessions:
    k: KernelBuilder

    def __post_init__(self) -> None:
        k = self.k
        self.marks, self.latest = k.buffer("marks", I64), k.buffer("latest", I64)
        self.sides = self._side("left", 0), self._side("right", 1)
        self.gap, self.watermark, self.closing = (k.scalar(n) for n in ("gap", "watermark", "closing"))

    def _side(self, name: str, place: int) -> _Side:
        k = self.k
        times, keys, links = (k.buffer(f"{name}_{hint}", I64) for hint in ("times", "keys", "links"))
        gone = k.buffer(f"{name}_gone", U8)
        first, last, out = (k.buffer(f"{name}_{hint}", I64) for hint in ("first", "last", "out"))
        end = k.scalar(f"{name}_end")
        new, expiring = (k.var(name, self.marks[word + place]) for word in (NEW, EXPIRING))
        return _Side(
            times, keys, links, gone, first, last, out, end, new, expiring, k.var("leaving", const(0, I64))
        )

    def kernel(self) -> Kernel:
        k, (left, right) = self.k, self.sides
        with k.while_((left.new < left.end) | (right.new < right.end)):
            here, there = _time(left, left.new, left.end), _time(right, right.new, right.end)
            with k.if_((left.new < left.end) & ((right.new >= right.end) | (here <= there))):
                self._enter(left)
            with k.else_():
                self._enter(right)
        self._expire(self.watermark, self.closing.ne(0))
        for place, side in enumerate(self.sides):
            for word, value in ((NEW, side.new), (EXPIRING, side.expiring), (GONE, side.left)):
                k.store(self.marks, word + place, value)
        k.ret(0)
        return k.build()

    def _enter(self, side: _Side) -> None:
        k, row = self.k, side.new
        time, key = k.var("time", side.times[row]), k.var("key", side.keys[row])
        self._expire(time, const(False, BOOL))
        k.store(side.links, row, NONE)
        with k.if_(side.first[key] < 0):
            k.store(side.first, key, row)
        with k.else_():
            k.store(side.links, side.last[key], row)
        k.store(side.last, key, row)
        k.store(self.latest, key, time)
        k.set(row, row + 1)

    def _expire(self, time: Value, always: Value) -> None:
        """Visit the rows that have entered and are more than a gap before a time, in order."""
        k, (left, right) = self.k, self.sides
        going = k.var("going", True, BOOL)
        with k.while_(going):
            here, there = _time(left, left.expiring, left.new), _time(right, right.expiring, right.new)
            is_left = k.var(
                "is_left",
                (left.expiring < left.new) & ((right.expiring >= right.new) | (here <= there)),
                BOOL,
            )
            oldest = k.var("oldest", minimum(here, there))
            with k.if_(right.expiring >= right.new):
                k.set(oldest, here)
            with k.if_(left.expiring >= left.new):
                k.set(oldest, there)
            some = (left.expiring < left.new) | (right.expiring < right.new)
            over = (oldest < time) & (Bitcast(time - oldest, U64) > Bitcast(self.gap, U64))
            k.set(going, some & (always | over))
            with k.if_(going):
                with k.if_(is_left):
                    self._visit(left)
                with k.else_():
                    self._visit(right)

    def _visit(self, side: _Side) -> None:
        """Close the session of a row's key if the row is its last one."""
        k = self.k
        key = k.var("expired", side.keys[side.expiring])
        last = self.latest[key].eq(side.times[side.expiring])
        with k.if_(last & side.gone[side.expiring].eq(0)):
            for own in self.sides:
                self._leave(own, key)
        k.set(side.expiring, side.expiring + 1)

    def _leave(self, side: _Side, key: Value) -> None:
        k = self.k
        row = k.var("row", side.first[key])
        with k.while_(row >= 0):
            k.store(side.out, side.left, row)
            k.store(side.gone, row, const(1, U8))
            k.set(side.left, side.left + 1)
            k.set(row, side.links[row])
        k.store(side.first, key, NONE)


def _time(side: _Side, row: Value, end: Value) -> Value:
    """The time of a row; of the one before if there is none."""
    return side.times[maximum(row - (row >= end).to(I64), const(0, I64))]
