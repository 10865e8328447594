"""Incremental sliding-window algorithms: frames arrive in blocks, and states persist between blocks.

The algorithms and their invariants are those of the other files. The caller is a kernel that computes frames a block at
a time and reduces each block before it computes the next. `start` begins another partition, whose rows follow those of
the previous one. `sweep(n)` reduces the n frames in the buffers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.algorithms.monoids import Values
from penstock.algorithms.sliding.frame_algorithms import MOST_PREFIX_ROWS, fold_rows, prefix_of
from penstock.algorithms.sliding.slide import Aggregation, Emit, Memory, SlideScratch, scratch
from penstock.loop.nodes import BOOL, Buffer, Value, Var, maximum, minimum, select

# Prefixes restart after at least this many rows, so that the recent ones stay in the cache.
ROWS_HELD_PLAIN = 1 << 12


class Carried(ABC):
    """An incremental algorithm with its state. `lo` and `hi` hold the bounds of a block's frames."""

    def __init__(self, rows: Aggregation, lo: Buffer, hi: Buffer, emit: Emit) -> None:
        self.rows, self.lo, self.hi, self.emit = rows, lo, hi, emit
        self.k = rows.k

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def sweep(self, n: Value) -> None: ...

    @property
    def scratch(self) -> tuple[SlideScratch, ...]:
        return ()


class BoundsAlone(Carried):
    """Frames without aggregates: only the number of rows is available."""

    def start(self) -> None:
        """Do nothing: there is no state."""

    def sweep(self, n: Value) -> None:
        with self.k.for_(0, n, "f") as f:
            self.emit(f, ())


class Recompute(Carried):
    """Recompute every frame from its rows, once for consecutive equal frames."""

    def __init__(self, rows: Aggregation, lo: Buffer, hi: Buffer, emit: Emit) -> None:
        super().__init__(rows, lo, hi, emit)
        self.states = rows.identities("state")
        self.first, self.last = self.k.var("first", -1), self.k.var("last", -1)

    def start(self) -> None:
        self.k.set(self.first, -1)

    def sweep(self, n: Value) -> None:
        k = self.k
        with k.for_(0, n, "f", scalar=True) as f:
            lo, hi = k.var("lo", self.lo[f]), k.var("hi", self.hi[f])
            with k.if_(lo.ne(self.first) | hi.ne(self.last)):
                self.rows.reset(self.states)
                fold_rows(self.rows, self.states, lo, k.var("count", hi - lo))
                k.set(self.first, lo)
                k.set(self.last, hi)
            self.emit(f, self.states)


class Subtract(Carried):
    """Keep one running state: add rows that enter, subtract rows that leave."""

    def __init__(self, rows: Aggregation, lo: Buffer, hi: Buffer, emit: Emit) -> None:
        super().__init__(rows, lo, hi, emit)
        self.states = rows.identities("state")
        self.first, self.last = self.k.var("first", 0), self.k.var("last", 0)

    def start(self) -> None:
        self.k.set(self.last, -1)

    def sweep(self, n: Value) -> None:
        k = self.k
        with k.for_(0, n, "f", scalar=True) as f:
            lo, hi = k.var("lo", self.lo[f]), k.var("hi", self.hi[f])
            with k.if_(lo >= self.last):
                self.rows.reset(self.states)
                k.set(self.first, lo)
                k.set(self.last, lo)
            with k.for_(self.first, lo, "out", scalar=True) as row:
                self.rows.remove(self.states, row)
            with k.for_(self.last, hi, "in", scalar=True) as row:
                self.rows.step(self.states, row)
            k.set(self.first, lo)
            k.set(self.last, hi)
            self.emit(f, self.states)


class TwoStacks(Carried):
    """Suffixes of the older rows in memory, one running state of the newer (see `frame_algorithms.py`)."""

    def __init__(self, rows: Aggregation, lo: Buffer, hi: Buffer, emit: Emit) -> None:
        super().__init__(rows, lo, hi, emit)
        k = self.k
        self.suffix = rows.memory("suffix")
        self.back = rows.identities("back")
        self.first, self.mid, self.upto = k.var("first", 0), k.var("mid", -1), k.var("upto", 0)

    @property
    def scratch(self) -> tuple[SlideScratch, ...]:
        return scratch(self.suffix)

    def start(self) -> None:
        self.k.set(self.mid, -1)

    def sweep(self, n: Value) -> None:
        k = self.k
        with k.for_(0, n, "f", scalar=True) as f:
            lo, hi = k.var("lo", self.lo[f]), k.var("hi", self.hi[f])
            with k.if_(lo >= self.mid):
                self._flip(lo, hi)
            with k.for_(self.upto, hi, "r", scalar=True) as row:
                self.rows.step(self.back, row)
            k.set(self.upto, hi)
            front = self.rows.load(self.suffix, k.var("place", lo - self.first))
            self.emit(f, self.rows.merged(front, self.back))

    def _flip(self, lo: Var, hi: Var) -> None:
        """Store the suffix aggregate [row, hi) for every row of the frame, last to first."""
        k, rows = self.k, self.rows
        front = rows.identities("front")
        rows.store(self.suffix, 0, front)  # for an empty frame
        with k.for_(0, hi - lo, "distance", scalar=True) as distance:
            row = k.var("row", hi - 1 - distance)
            rows.step_before(front, row)
            rows.store(self.suffix, row - lo, front)
        rows.reset(self.back)
        k.set(self.first, lo)
        k.set(self.mid, hi)
        k.set(self.upto, hi)


@dataclass(frozen=True)
class _Base:
    """The first row of the prefixes, the row after their last, and the states there."""

    first: Var
    upto: Var
    states: Sequence[tuple[Var, ...]]


class PrefixTable:
    """Prefix aggregates of a partition's rows from a base row on, shared by all spans of a track."""

    def __init__(self, rows: Aggregation) -> None:
        self.rows, self.k = rows, rows.k
        k = rows.k
        self.prefixes = [prefix_of(rows, place) for place in range(len(rows.monoids))]
        self.memory: Memory = [
            tuple(k.buffer("prefix", state.type) for state in prefixe.states) for prefixe in self.prefixes
        ]
        states = [
            tuple(k.var("sum", state.identity, state.type) for state in prefixe.states)
            for prefixe in self.prefixes
        ]
        self.base = _Base(k.var("base", 0), k.var("summed", 0), states)
        self.doubt = k.var("doubt", False, BOOL)

    @property
    def scratch(self) -> tuple[SlideScratch, ...]:
        return scratch(self.memory)

    def start(self, first: Value) -> None:
        """Begin a partition, and clear `doubt`."""
        self.k.set(self.doubt, False)
        self._begin_at(first)

    def _begin_at(self, row: Value) -> None:
        k, base = self.k, self.base
        k.set(base.first, row)
        k.set(base.upto, row)
        for several, prefixe in zip(base.states, self.prefixes, strict=True):
            for var, state in zip(several, prefixe.states, strict=True):
                k.set(var, state.identity)
        self._store(row - row)

    def extend(self, frames: Sequence[tuple[Buffer, Buffer]], n: Value) -> None:
        """Extend the prefixes over a block's frames; restart at the oldest row if too many rows precede the frames."""
        k, base = self.k, self.base
        oldest, newest = k.var("oldest", frames[0][0][0]), k.var("newest", frames[0][1][n - 1])
        for lo, hi in frames[1:]:
            k.set(oldest, minimum(oldest, lo[0]))
            k.set(newest, maximum(newest, hi[n - 1]))
        many = k.var("many", newest - oldest)
        k.set(self.doubt, self.doubt | (many > MOST_PREFIX_ROWS))
        with k.if_(~self.doubt):
            limit = maximum(minimum(many * 4, MOST_PREFIX_ROWS), ROWS_HELD_PLAIN)
            with k.if_((newest - base.first > limit) & (oldest > base.first)):
                self._begin_at(oldest)
            with k.for_(base.upto, newest, "row", scalar=True) as row:
                self._add(row)
                self._store(row + 1 - base.first)
            k.set(base.upto, maximum(base.upto, newest))

    def _add(self, row: Value) -> None:
        for place, (values, active) in enumerate(self.rows.row(row)):
            states = self.base.states[place]
            self.rows.put(states, self.prefixes[place].step(self.k, states, values), active)

    def _store(self, place: Value) -> None:
        self.rows.store(self.memory, place, self.base.states)

    def between(self, place: int, lo: Value, hi: Value) -> Values:
        """Return the state of rows lo … hi for the monoid at `place`; set `doubt` if the loss of precision is too large."""
        k, buffers = self.k, self.memory[place]
        ends = tuple(
            tuple(k.var("prefix", buffer[at - self.base.first]) for buffer in buffers) for at in (hi, lo)
        )
        values, lost = self.prefixes[place].between(k, *ends)
        k.set(self.doubt, self.doubt | (lost & (lo < hi)))
        identities = self.rows.monoids[place].states
        return tuple(
            k.var("between", select(lo < hi, value, state.identity))
            for value, state in zip(values, identities, strict=True)
        )


class PrefixSums(Carried):
    """Differences of prefixes for the monoids at `places` of a table; two stacks from the first doubt in a partition on."""

    def __init__(self, stacks: TwoStacks, emit: Emit, table: PrefixTable, places: Sequence[int]) -> None:
        super().__init__(stacks.rows, stacks.lo, stacks.hi, emit)
        self.stacks, self.table, self.places = stacks, table, places

    @property
    def scratch(self) -> tuple[SlideScratch, ...]:
        return self.stacks.scratch

    def start(self) -> None:
        self.stacks.start()

    def sweep(self, n: Value) -> None:
        k = self.k
        with k.if_(~self.table.doubt), k.for_(0, n, "f") as f:
            lo, hi = k.var("lo", self.lo[f]), k.var("hi", self.hi[f])
            self.emit(f, [self.table.between(place, lo, hi) for place in self.places])

    def sweep_doubted(self, n: Value) -> None:
        """Recompute the block by two stacks if the table's result is in doubt."""
        with self.k.if_(self.table.doubt):
            self.stacks.sweep(n)
