"""The kernels of order statistics: quantiles, mode and count of distinct values, at once or sliding.

Values are given as *ranks*: 0 for the smallest distinct value of the rows, 1 for the next, negative for rows without a
value. A structure counts the ranks of the rows in the frame. Results are ranks.

    RankCounts   the count of each rank, and the number of ranks that occur
    RankCursors  cursors that follow quantiles: the k-th smallest (`rank_cursors.py`)
    RankPeaks    the counts in a tree whose nodes hold maxima: the most frequent

A tree node has FANOUT children: 16 counts of 32 bits, one cache line. Level 0 holds the counts by rank. Node i of a
level summarises the 16 nodes from 16 i on of the level below. The top level is one cache line.

Cost: one node per level for each row that enters or leaves, and for each result; a tree has log16(ranks) levels.
Memory: slightly more than one count per rank, in the caller's buffer, which is zero before and after use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from penstock.algorithms.order_statistics.rank_cursors import RankCursors
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import F64, I32, I64, U8, U64, Buffer, Kernel, Type, Value, Var, maximum, select

FANOUT = 16
_BITS = 4
_LEVELS = 16  # enough for ranks of 63 bits

# If at least 1/16 as many rows as the memory has counts leave at once, clear all counts instead.
_CLEARED_WITH_A_ROW = 16


def memory_length(distinct: int) -> int:
    """Return the number of counts in a structure's memory for a number of ranks.

    >>> memory_length(1), memory_length(16), memory_length(17), memory_length(1000)
    (16, 16, 48, 1088)
    """
    level = total = _lines(distinct)
    while level > FANOUT:
        level = _lines(level // FANOUT)
        total += level
    return total


def _lines(nodes: int) -> int:
    return max(-(-nodes // FANOUT), 1) * FANOUT


class Structure(Protocol):
    """A structure that counts the ranks of the rows in a frame."""

    def add(self, rank: Value) -> None: ...
    def remove(self, rank: Value) -> None: ...
    def length(self) -> Value: ...
    def clear(self) -> None: ...


@dataclass(frozen=True)
class Ranked:
    """A column of ranks, and the structures that count them."""

    ranks: Buffer
    structures: Sequence[Structure]


def order_statistics(
    k: KernelBuilder,
    frames: tuple[Buffer, Buffer],
    span: tuple[Value, Value],
    columns: Sequence[Ranked],
    emit: Callable[[Value], None],
    base: Value | int = 0,
) -> None:
    """Emit the loop over the frames [span): remove and add rows, then call `emit`, which reads the structures.

    `base` is the first row's number in frame bounds.
    """
    lows, highs = frames
    first, last = k.var("first", 0), k.var("last", 0)  # the rows in the structures
    with k.for_(*span, "f") as f:
        lo, hi = k.var("lo", lows[f] - base), k.var("hi", highs[f] - base)
        with k.if_(lo >= last):
            _leave(k, columns, first, last)
            k.set(first, lo)
            k.set(last, lo)
        for column in columns:
            _update_rows(k, column, first, lo, entering=False)
            _update_rows(k, column, last, hi, entering=True)
        k.set(first, lo)
        k.set(last, hi)
        emit(f)
    _leave(k, columns, first, last)


def _leave(k: KernelBuilder, columns: Sequence[Ranked], first: Value, last: Value) -> None:
    """Remove all rows: one by one, or by clearing all counts if that is cheaper."""
    for column in columns:
        most = column.structures[0].length()
        with k.if_(last - first < most.div(_CLEARED_WITH_A_ROW)):
            _update_rows(k, column, first, last, entering=False)
        with k.else_():
            for structure in column.structures:
                structure.clear()


def _update_rows(k: KernelBuilder, column: Ranked, start: Value, stop: Value, entering: bool) -> None:
    with k.for_(start, stop, "r") as r:
        rank = k.var("rank", column.ranks[r].to(I64))
        with k.if_(rank >= 0):
            for structure in column.structures:
                (structure.add if entering else structure.remove)(rank)


class RankCounts:
    """The count of each rank; `distinct` is the number of ranks that occur."""

    def __init__(self, k: KernelBuilder, distinct: Value, memory: Buffer) -> None:
        self.k, self.ranks, self.memory = k, distinct, memory
        self.distinct = k.var("distinct", 0)

    def add(self, rank: Value) -> None:
        """Increment a rank's count."""
        old = self.k.var("old", self.memory[rank])
        self.k.set(self.distinct, self.distinct + old.eq(0).to(I64))
        self.k.store(self.memory, rank, old + 1)

    def remove(self, rank: Value) -> None:
        """Decrement a rank's count."""
        old = self.k.var("old", self.memory[rank])
        self.k.set(self.distinct, self.distinct - old.eq(1).to(I64))
        self.k.store(self.memory, rank, old - 1)

    def length(self) -> Value:
        return self.ranks

    def clear(self) -> None:
        """Clear all counts."""
        with self.k.for_(0, self.ranks, "i") as i:
            self.k.store(self.memory, i, 0)
        self.k.set(self.distinct, 0)


class _Tree:
    """Levels of counts in one buffer, the lowest first. `base` holds the start of each."""

    def __init__(self, k: KernelBuilder, distinct: Value, memory: Buffer) -> None:
        self.k, self.memory = k, memory
        self.base = k.local("base", I64, _LEVELS)
        self.levels, self.end = k.var("levels", 1), k.var("end", _line_of(k, distinct))
        self._lay_out()

    def _lay_out(self) -> None:
        k = self.k
        nodes = k.var("nodes", self.end)
        k.store(self.base, 0, 0)
        with k.while_(nodes > FANOUT):
            k.store(self.base, self.levels, self.end)
            k.set(nodes, _line_of(k, nodes >> _BITS))
            k.set(self.end, self.end + nodes)
            k.set(self.levels, self.levels + 1)

    def length(self) -> Value:
        return self.end

    def clear(self) -> None:
        """Clear all counts."""
        with self.k.for_(0, self.end, "i") as i:
            self.k.store(self.memory, i, 0)

    @contextmanager
    def upwards(self, rank: Value) -> Iterator[tuple[Var, Var]]:
        """Emit a loop over the levels; yield the level and the rank's node on it."""
        node = self.k.var("node", rank)
        with self.k.for_(0, self.levels, "level", scalar=True) as level:
            yield level, node
            self.k.set(node, node >> _BITS)

    @contextmanager
    def downwards(self) -> Iterator[tuple[Var, list[Var]]]:
        """Emit a loop from the top level down; yield the node, to be set to the chosen child, and its children's counts."""
        k = self.k
        node, level = k.var("node", 0), k.var("level", self.levels)
        with k.while_(level > 0):
            k.set(level, level - 1)
            k.set(node, node << _BITS)
            start = k.var("start", self.base[level] + node)
            yield node, [k.var("count", self.memory[start + child]) for child in range(FANOUT)]


def _line_of(k: KernelBuilder, nodes: Value) -> Value:
    """Round up to whole cache lines, at least one."""
    return maximum(((nodes + (FANOUT - 1)) >> _BITS) << _BITS, FANOUT)


class RankPeaks(_Tree):
    """The counts of ranks, and the largest count."""

    def add(self, rank: Value) -> None:
        """Increment a rank's count, and update the maxima above it."""
        k = self.k
        count = k.var("count", self.memory[rank] + 1)
        with self.upwards(rank) as (level, node):
            place = k.var("place", self.base[level] + node)
            k.store(self.memory, place, maximum(self.memory[place], count))

    def remove(self, rank: Value) -> None:
        """Decrement a rank's count; recompute the maximum of each node in which it was the largest."""
        k = self.k
        node, level = k.var("node", rank), k.var("level", 0)
        count = k.var("count", self.memory[rank] - 1)
        with k.while_(level < self.levels):
            k.store(self.memory, self.base[level] + node, count)
            k.set(level, level + 1)
            with k.if_(level < self.levels):
                self._largest(level, node, count)

    def _largest(self, level: Var, node: Var, count: Var) -> None:
        """Move to the parent, and stop if its maximum is unchanged."""
        k = self.k
        line = k.var("line", self.base[level - 1] + ((node >> _BITS) << _BITS))
        k.set(node, node >> _BITS)
        k.set(count, self.memory[line])
        for child in range(1, FANOUT):
            k.set(count, maximum(count, self.memory[line + child]))
        with k.if_(count.eq(self.memory[self.base[level] + node])):
            k.set(level, self.levels)

    def mode(self) -> Value:
        """Return the rank with the largest count, the smallest of several, or -1 for an empty frame."""
        k = self.k
        most = k.var("most", 0, I32)
        with self.downwards() as (node, counts):
            k.set(most, counts[0])
            place = k.var("place", 0)
            for child, count in enumerate(counts[1:], 1):
                k.set(place, select(count > most, child, place))
                k.set(most, maximum(most, count))
            k.set(node, node + place)
        return select(most > 0, node, -1)


_S = TypeVar("_S", RankPeaks, RankCounts)


@dataclass(frozen=True, slots=True)
class RankStatistic:
    """A statistic of a frame's ranks: "quantile" (at `fraction`), "mode" or "count_distinct"."""

    kind: str
    fraction: float = 0.0


def build_rank_slide(questions: tuple[RankStatistic, ...], shared: bool = False) -> Kernel:
    """Build the kernel for several statistics, with one structure for all that need the same.

    Quantiles read the `places` of rows, distinct unless they are `shared`, and interpolate between the
    `values` there; the others read `ranks`, which equal values share. Results go to `out` buffers in the
    order of the questions: for a quantile its value and validity; else one value, with -1 for the mode of no
    rows.
    """
    return _RankSlide(questions, shared).write()


@dataclass
class _RankSlide:
    questions: tuple[RankStatistic, ...]
    shared: bool
    k: KernelBuilder = field(default_factory=lambda: KernelBuilder("rank_slide"))
    structures: dict[str, Structure] = field(default_factory=dict)
    cursors: RankCursors | None = None

    def write(self) -> Kernel:
        k = self.k
        frames = k.buffer("lo", I64), k.buffer("hi", I64)
        span, base = (k.scalar("begin"), k.scalar("end")), k.scalar("base")
        self.distinct, self.many = k.scalar("distinct"), k.scalar("many")
        answers = [self._answer(question) for question in self.questions]
        columns = [Ranked(k.buffer("places", I32), [self.cursors])] if self.cursors else []
        if self.structures:
            columns.append(Ranked(k.buffer("ranks", I64), list(self.structures.values())))

        def emit(frame: Value) -> None:
            for answer in answers:
                answer(frame)

        order_statistics(k, frames, span, columns, emit, base)
        k.ret(0)
        return k.build()

    def _answer(self, question: RankStatistic) -> Callable[[Value], None]:
        match question.kind:
            case "quantile":
                return self._quantile(question.fraction)
            case "mode":
                peaks = self._structure("peaks", RankPeaks)
                return self._written(lambda: [peaks.mode()], [I64])
            case _:
                counts = self._structure("counts", RankCounts)
                return self._written(lambda: [counts.distinct], [I64])

    def _quantile(self, fraction: float) -> Callable[[Value], None]:
        cursors = self._cursors()
        cursor = cursors.cursor(fraction)

        def values() -> list[Value]:
            lower, upper, between = cursors.neighbours(cursor)
            some = self.k.var("some", cursors.count > 0)
            low, high = (self.k.var("value", self.values[select(some, place, 0)]) for place in (lower, upper))
            exact = between.eq(0.0) | low.eq(high)  # also for infinite neighbours
            return [select(exact, low, low + (high - low) * between), some.to(U8)]

        return self._written(values, [F64, U8])

    def _cursors(self) -> RankCursors:
        """Return the cursors, shared by all quantiles."""
        if self.cursors is None:
            self.values = self.k.buffer("values", F64)
            counts = self.k.buffer("counts", I32) if self.shared else None
            self.cursors = RankCursors(self.k, self.many, self.k.buffer("bits", U64), counts)
        return self.cursors

    def _structure(self, name: str, kind: type[_S]) -> _S:
        if name not in self.structures:
            self.structures[name] = kind(self.k, self.distinct, self.k.buffer("memory", I32))
        found = self.structures[name]
        assert isinstance(found, kind)
        return found

    def _written(self, values: Callable[[], list[Value]], types: list[Type]) -> Callable[[Value], None]:
        buffers = [self.k.buffer("out", dtype) for dtype in types]

        def write(frame: Value) -> None:
            for buffer, value in zip(buffers, values(), strict=True):
                self.k.store(buffer, frame, value)

        return write
