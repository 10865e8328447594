"""How the panes of a window become one: four ways, and each monoid of a query may take its own.

All keys are dealt with side by side: what an algorithm keeps for one value elsewhere is a row of cells here.

* `InPlace`: a window of one pane is read where it lies;
* `Recompute`: merge all panes of every window, best where windows overlap little;
* `SubtractOnEvict`: one running row; panes that enter are merged, panes that leave are taken out;
* `TwoStacks`: windows are cut at the multiples of their length. What lies before the cut was merged from
  there backwards, once for all windows with the same cut (the *flip*), what lies behind it is merged as it
  enters. Since cuts depend on nothing but time, so does the order in which panes are merged: wherever
  emission stops, resumes or is divided among threads, rounding is the same.

The last two cost the same for every overlap. Their place is kept in `cursor`, so that a call goes on where
the one before stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.kernels.monoids import Monoid, Values
from penstock.loop.nodes import I64, Value, Var
from penstock.lower.emit_steps.panes import Panes, Row

PUSHED, CUT, ENTERED, LEFT = range(4)


class Merging(Protocol):
    """Brings together the panes of one window after the other, for some of the monoids."""

    def advance(self, w: Value) -> None:
        """Go on to window w."""

    def read(self, m: int, key: Value) -> Values:
        """Give the states of monoid m over the window, for one key."""


class InPlace:
    """Nothing to merge."""

    def __init__(self, panes: Panes, members: Sequence[int]) -> None:
        self.panes = panes

    def advance(self, w: Value) -> None:
        self.row = self.panes.row(self.panes.first[w])

    def read(self, m: int, key: Value) -> Values:
        return tuple(self.panes.k.var("held", buffer[self.row + key]) for buffer in self.panes.states[m])


class Recompute:
    """Merge every window anew."""

    def __init__(self, panes: Panes, members: Sequence[int]) -> None:
        self.panes = panes
        self.merged = {m: panes.memory("merged", m) for m in members}

    def advance(self, w: Value) -> None:
        panes = self.panes
        start = panes.row(panes.first[w])
        for m, row in self.merged.items():
            with panes.each_key() as key:
                panes.put(row, key, panes.cell(m, start + key))
        with panes.k.for_(panes.first[w] + 1, panes.last[w], "pane") as pane:
            begin = panes.row(pane)
            for m, row in self.merged.items():
                panes.update(row, m, begin, panes.monoids[m].merge)

    def read(self, m: int, key: Value) -> Values:
        return _at(self.panes, self.merged[m], key)


class SubtractOnEvict:
    """Keep one running row."""

    def __init__(self, panes: Panes, members: Sequence[int]) -> None:
        self.panes = panes
        self.cursor = panes.k.shared_buffer("cursor", "", I64)
        self.running = {m: panes.memory("running", m) for m in members}

    def advance(self, w: Value) -> None:
        panes, k = self.panes, self.panes.k
        first, last = k.var("first_pane", panes.first[w]), k.var("last_pane", panes.last[w])
        with k.if_(first >= self.cursor[ENTERED]):
            self._forget(first)
        with k.for_(self.cursor[ENTERED], last, "pane") as pane:
            begin = panes.row(pane)
            for m, row in self.running.items():
                panes.update(row, m, begin, panes.monoids[m].merge)
        with k.for_(self.cursor[LEFT], first, "pane") as pane:
            begin = panes.row(pane)
            for m, row in self.running.items():
                take = panes.monoids[m].take
                assert take is not None
                panes.update(row, m, begin, take)
        k.store(self.cursor, ENTERED, last)
        k.store(self.cursor, LEFT, first)

    def _forget(self, first: Value) -> None:
        """Start anew where the window shares no pane with the one before."""
        for m, row in self.running.items():
            self.panes.fill(row, m)
        self.panes.k.store(self.cursor, ENTERED, first)
        self.panes.k.store(self.cursor, LEFT, first)

    def read(self, m: int, key: Value) -> Values:
        return _at(self.panes, self.running[m], key)


class TwoStacks:
    """Keep the merged panes before the cut, by how many they are, and one row for those behind it."""

    def __init__(self, panes: Panes, members: Sequence[int]) -> None:
        self.panes = panes
        self.cursor = panes.k.shared_buffer("cursor", "", I64)
        self.cuts = panes.k.buffer("cuts", I64)
        self.front = {m: panes.memory("front", m, deep=True) for m in members}
        self.back = {m: panes.memory("back", m) for m in members}

    def advance(self, w: Value) -> None:
        panes, k = self.panes, self.panes.k
        cut, last = k.var("cut", self.cuts[w]), k.var("last_pane", panes.last[w])
        depth = k.var("depth", cut - panes.first[w])
        with k.if_(cut.ne(self.cursor[CUT])):
            self._flip(cut, depth)
        with k.for_(self.cursor[PUSHED], last, "pane") as pane:
            begin = panes.row(pane)
            for m, row in self.back.items():
                panes.update(row, m, begin, panes.monoids[m].merge)
        k.store(self.cursor, PUSHED, last)
        self.top = k.var("top", depth * panes.columns)

    def _flip(self, cut: Var, depth: Var) -> None:
        panes, k = self.panes, self.panes.k
        for m in self.front:
            panes.fill(self.front[m], m)
            panes.fill(self.back[m], m)
        with k.for_(0, depth, "d") as d:
            begin = panes.row(cut - 1 - d)
            for m, rows in self.front.items():
                self._push(rows, m, begin, k.var("under", d * panes.columns))
        k.store(self.cursor, CUT, cut)
        k.store(self.cursor, PUSHED, cut)

    def _push(self, rows: Row, m: int, pane: Value, under: Value) -> None:
        """Put the next earlier pane on top of the stack, merged with all later ones."""
        panes = self.panes
        with panes.each_key() as key:
            later = _at(panes, rows, under + key)
            merged = panes.monoids[m].merge(panes.k, panes.cell(m, pane + key), later)
            panes.put(rows, under + panes.columns + key, merged)

    def read(self, m: int, key: Value) -> Values:
        panes = self.panes
        early, late = _at(panes, self.front[m], self.top + key), _at(panes, self.back[m], key)
        return panes.monoids[m].merge(panes.k, early, late)


def _at(panes: Panes, row: Row, place: Value) -> Values:
    return tuple(panes.k.var("held", buffer[place]) for buffer in row)


ONE_PANE = "one pane"
ALGORITHMS: dict[str, type[InPlace | Recompute | SubtractOnEvict | TwoStacks]] = {
    ONE_PANE: InPlace,
    "recompute": Recompute,
    "subtract-on-evict": SubtractOnEvict,
    "two-stacks": TwoStacks,
}


def algorithms(monoids: Sequence[Monoid], preferred: str) -> tuple[str, ...]:
    """Choose for each monoid: what is preferred, but what cannot be taken out again is never subtracted."""
    subtracts = preferred == "subtract-on-evict"
    return tuple("two-stacks" if subtracts and each.take is None else preferred for each in monoids)


class Mergers:
    """One algorithm for each monoid; monoids that take the same one share its loops."""

    def __init__(self, panes: Panes) -> None:
        chosen = panes.spec.algorithms
        self.groups: dict[str, Merging] = {
            name: ALGORITHMS[name](panes, [m for m, each in enumerate(chosen) if each == name])
            for name in dict.fromkeys(chosen)
        }
        self.chosen = chosen

    def advance(self, w: Value) -> None:
        for group in self.groups.values():
            group.advance(w)

    def read(self, m: int, key: Value) -> Values:
        return self.groups[self.chosen[m]].read(m, key)
