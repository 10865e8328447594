"""Sliding median, quantile, mode and count of distinct values, without looking at the whole window.

Values come as *ranks*: 0 for the smallest distinct value of the rows, 1 for the next, below 0 for rows that
hold none. A structure counts the ranks of the rows in the frame; answers are ranks again.

    RankCounts   how often each rank occurs, and how many of them do
    RankCursors  cursors at the places of quantiles: the k-th smallest (`rank_cursors.py`)
    RankPeaks    the counts in a tree whose nodes hold maxima: the most frequent

A tree has FANOUT children a node: 16 counts of 32 bits, one line of the cache. Level 0 are the counts by rank,
and node i of a level is about the 16 nodes from 16 i on of the level below. The top level is one line.

Cost: one node a level for each row that enters or leaves, and for an answer; log16 of the number of ranks.
Memory: a little more than a count for each rank, in the caller's buffer, which is all zeros before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I32, I64, Buffer, Value, Var, maximum, select

FANOUT = 16
_BITS = 4
_LEVELS = 16  # more than ranks of 63 bits need

# Where more rows than this part of the memory leave at once, all of it is cleared instead.
_CLEARED_WITH_A_ROW = 16


def memory_length(distinct: int) -> int:
    """Give the counts a structure's memory holds for that many ranks.

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
    """Counts the ranks of the rows in a frame."""

    def add(self, rank: Value) -> None: ...
    def remove(self, rank: Value) -> None: ...
    def length(self) -> Value: ...
    def clear(self) -> None: ...


@dataclass(frozen=True)
class Ranked:
    """Rows of ranks, and the structures that count them."""

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
    """Write the loop over the frames [span): rows leave and enter, then `emit` asks the structures.

    `base` is the number that frames give the first of the rows.
    """
    lows, highs = frames
    first, last = k.var("first", 0), k.var("last", 0)  # the rows that are counted
    with k.for_(*span, "f") as f:
        lo, hi = k.var("lo", lows[f] - base), k.var("hi", highs[f] - base)
        with k.if_(lo >= last):
            _leave(k, columns, first, last)
            k.set(first, lo)
            k.set(last, lo)
        for column in columns:
            _each(k, column, first, lo, entering=False)
            _each(k, column, last, hi, entering=True)
        k.set(first, lo)
        k.set(last, hi)
        emit(f)
    _leave(k, columns, first, last)


def _leave(k: KernelBuilder, columns: Sequence[Ranked], first: Value, last: Value) -> None:
    """Forget all rows: one by one, or everything where that is less."""
    for column in columns:
        most = column.structures[0].length()
        with k.if_(last - first < most.div(_CLEARED_WITH_A_ROW)):
            _each(k, column, first, last, entering=False)
        with k.else_():
            for structure in column.structures:
                structure.clear()


def _each(k: KernelBuilder, column: Ranked, start: Value, stop: Value, entering: bool) -> None:
    with k.for_(start, stop, "r") as r:
        rank = k.var("rank", column.ranks[r].to(I64))
        with k.if_(rank >= 0):
            for structure in column.structures:
                (structure.add if entering else structure.remove)(rank)


class RankCounts:
    """How often each rank occurs; `distinct` is how many occur."""

    def __init__(self, k: KernelBuilder, distinct: Value, memory: Buffer) -> None:
        self.k, self.ranks, self.memory = k, distinct, memory
        self.distinct = k.var("distinct", 0)

    def add(self, rank: Value) -> None:
        """Count a rank that enters."""
        old = self.k.var("old", self.memory[rank])
        self.k.set(self.distinct, self.distinct + old.eq(0).to(I64))
        self.k.store(self.memory, rank, old + 1)

    def remove(self, rank: Value) -> None:
        """Count a rank that leaves."""
        old = self.k.var("old", self.memory[rank])
        self.k.set(self.distinct, self.distinct - old.eq(1).to(I64))
        self.k.store(self.memory, rank, old - 1)

    def length(self) -> Value:
        return self.ranks

    def clear(self) -> None:
        """Count nothing."""
        with self.k.for_(0, self.ranks, "i") as i:
            self.k.store(self.memory, i, 0)
        self.k.set(self.distinct, 0)


class _Tree:
    """Levels of counts in one buffer, the lowest first. `base` says where each begins."""

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
        """Count nothing."""
        with self.k.for_(0, self.end, "i") as i:
            self.k.store(self.memory, i, 0)

    @contextmanager
    def upwards(self, rank: Value) -> Iterator[tuple[Var, Var]]:
        """Write a loop over the levels: the level, and the node there that a rank belongs to."""
        node = self.k.var("node", rank)
        with self.k.for_(0, self.levels, "level", scalar=True) as level:
            yield level, node
            self.k.set(node, node >> _BITS)

    @contextmanager
    def downwards(self) -> Iterator[tuple[Var, list[Var]]]:
        """Write a loop from the top: the node to set to the chosen child, and the counts of its children."""
        k = self.k
        node, level = k.var("node", 0), k.var("level", self.levels)
        with k.while_(level > 0):
            k.set(level, level - 1)
            k.set(node, node << _BITS)
            start = k.var("start", self.base[level] + node)
            yield node, [k.var("count", self.memory[start + child]) for child in range(FANOUT)]


def _line_of(k: KernelBuilder, nodes: Value) -> Value:
    """Round up to whole lines, at least one."""
    return maximum(((nodes + (FANOUT - 1)) >> _BITS) << _BITS, FANOUT)


class RankPeaks(_Tree):
    """The counts of ranks and the largest among them."""

    def add(self, rank: Value) -> None:
        """Count a rank that enters: a larger count may be the largest of its line, and so on upwards."""
        k = self.k
        count = k.var("count", self.memory[rank] + 1)
        with self.upwards(rank) as (level, node):
            place = k.var("place", self.base[level] + node)
            k.store(self.memory, place, maximum(self.memory[place], count))

    def remove(self, rank: Value) -> None:
        """Count a rank that leaves: where it was the largest of its line, look for the largest again."""
        k = self.k
        node, level = k.var("node", rank), k.var("level", 0)
        count = k.var("count", self.memory[rank] - 1)
        with k.while_(level < self.levels):
            k.store(self.memory, self.base[level] + node, count)
            k.set(level, level + 1)
            with k.if_(level < self.levels):
                self._largest(level, node, count)

    def _largest(self, level: Var, node: Var, count: Var) -> None:
        """Go up to the parent; stop where it stays as it is."""
        k = self.k
        line = k.var("line", self.base[level - 1] + ((node >> _BITS) << _BITS))
        k.set(node, node >> _BITS)
        k.set(count, self.memory[line])
        for child in range(1, FANOUT):
            k.set(count, maximum(count, self.memory[line + child]))
        with k.if_(count.eq(self.memory[self.base[level] + node])):
            k.set(level, self.levels)

    def mode(self) -> Value:
        """Find the rank with the largest count, the smallest of several; -1 where nothing is counted."""
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
