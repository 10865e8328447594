"""Selection: turn a predicate over a chunk of rows into a selection vector, without branches.

Each iteration handles eight rows: a vector comparison, its bit mask, and a table lookup of the positions of the set
bits. It writes eight entries and advances by the number of set bits, so a selection vector needs LANES spare entries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.loop.abi import LANES
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I32, I64, Buffer, Unary, Value, Var, const, minimum

_LANE_BITS = 3
assert LANES == 1 << _LANE_BITS


class Watcher(Protocol):
    """Further work per row: `row` for a single row, `lane` for one of eight rows of an iteration."""

    def row(self, r: Value) -> None: ...

    def lane(self, r: Value, lane: Value) -> None: ...


@dataclass(frozen=True)
class _List:
    """A selection vector: its first position and its length."""

    begin: int
    count: Var
    watch: Watcher | None


@dataclass(frozen=True)
class Selection:
    """Emit code that fills `chosen` with the rows start + r for which `passes(r)`."""

    k: KernelBuilder
    start: Value
    passes: Callable[[Value], Value]
    chosen: Buffer
    positions: Buffer

    def rows(self, n: Value) -> Var:
        """Select among the rows r < n, and return the number selected."""
        k, all_of_them = self.k, self._list()
        turns = k.var("turns", n >> _LANE_BITS)
        with k.for_(0, turns, "turn") as turn:
            self._turn(all_of_them, k.var("done", turn * LANES))
        self._rest(all_of_them, turns * LANES, n)
        return all_of_them.count

    def halves(self, n: Value, watch: Watcher, second: int) -> tuple[Var, Var]:
        """Select as `rows` does, with both halves interleaved; write the second half's rows from chosen[second] on.

        Two interleaved memory streams overlap their latencies. Remaining rows belong to the second half, which may have
        2 * LANES - 1 rows more than the first.
        """
        k, lists = self.k, (self._list(0, watch), self._list(second, watch))
        turns = k.var("turns", n >> (_LANE_BITS + 1))
        half = k.var("half", turns * LANES)
        with k.for_(0, turns, "turn") as turn:
            done = k.var("done", turn * LANES)
            self._turn(lists[0], done)
            self._turn(lists[1], half + done)
        self._rest(lists[1], half * 2, n)
        return lists[0].count, lists[1].count

    def _list(self, begin: int = 0, watch: Watcher | None = None) -> _List:
        return _List(begin, self.k.var("count", 0), watch)

    def _turn(self, into: _List, r: Value) -> None:
        k = self.k
        if into.watch is not None:  # a separate loop: it may vectorise even if the next does not
            with k.for_(0, LANES, "lane", parallel=True) as lane:
                into.watch.lane(k.var("r", r + lane), lane)
        bits = k.var("bits", 0)
        with k.for_(0, LANES, "lane", parallel=True) as lane:
            k.set(bits, bits | (self.passes(k.var("r", r + lane)).to(I64) << lane))
        first = k.var("first", (self.start + r).to(I32))
        with k.for_(0, LANES, "lane", parallel=True) as lane:
            position = self.positions[bits * LANES + lane].to(I32)
            k.store(self.chosen, into.count + into.begin + lane, position + first)
        k.set(into.count, into.count + Unary("popcount", bits))

    def _rest(self, into: _List, r: Value, n: Value) -> None:
        """Select among the remaining rows, one at a time."""
        k = self.k
        with k.for_(r, n, "r", scalar=True) as row:
            if into.watch is not None:
                into.watch.row(row)
            k.store(self.chosen, into.count + into.begin, (self.start + row).to(I32))
            k.set(into.count, into.count + self.passes(row).to(I64))


def chunk_length(left: Value, chunk: int) -> Value:
    return minimum(left, const(chunk, I64))
