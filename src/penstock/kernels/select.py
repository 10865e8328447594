"""Turn a predicate over a chunk of rows into the list of rows that pass, without branches.

Eight rows make a turn: a vector of comparisons, its bits, and by a table the positions of those that are set. Each turn
writes eight entries and keeps as many as were set, so a list needs LANES spare ones.
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
    """What else is done to each row: to one by itself, or to one of eight that are looked at together."""

    def row(self, r: Value) -> None: ...

    def lane(self, r: Value, lane: Value) -> None: ...


@dataclass(frozen=True)
class _List:
    """A list of rows: its first place, and how many it has."""

    begin: int
    count: Var
    watch: Watcher | None


@dataclass(frozen=True)
class Selection:
    """Fills `chosen` with the rows start + r for which `passes(r)`."""

    k: KernelBuilder
    start: Value
    passes: Callable[[Value], Value]
    chosen: Buffer
    positions: Buffer

    def rows(self, n: Value) -> Var:
        """List those of r < n, and return how many there are."""
        k, all_of_them = self.k, self._list()
        turns = k.var("turns", n >> _LANE_BITS)
        with k.for_(0, turns, "turn") as turn:
            self._turn(all_of_them, k.var("done", turn * LANES))
        self._rest(all_of_them, turns * LANES, n)
        return all_of_them.count

    def halves(self, n: Value, watch: Watcher, second: int) -> tuple[Var, Var]:
        """Do the same, but look at both halves side by side, and list those of the second from chosen[second] on.

        Streams of memory that are read side by side arrive together; one after the other they are waited for each by
        itself. What is left over belongs to the second half, which may have 2 * LANES - 1 rows more than the first.
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
        if into.watch is not None:  # in a loop of its own: that can be a vector though the other be none
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
        """Look at the last rows, too few for a turn."""
        k = self.k
        with k.for_(r, n, "r", scalar=True) as each:
            if into.watch is not None:
                into.watch.row(each)
            k.store(self.chosen, into.count + into.begin, (self.start + each).to(I32))
            k.set(into.count, into.count + self.passes(each).to(I64))


def chunk_length(left: Value, chunk: int) -> Value:
    return minimum(left, const(chunk, I64))
