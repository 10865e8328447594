"""The panes of a window in the emit kernel, merged by one of four algorithms, chosen per monoid.

All keys are processed at once: the algorithms' single state is a row of cells here, one per key.

* `InPlace`: a window of one pane is read in place;
* `RecomputePanes`: merge all panes of every window, best where windows overlap little;
* `SubtractOnEvict`: one running row; entering panes are merged, leaving panes are subtracted;
* `PaneStacks`: windows are cut at the multiples of their length. Panes before the cut are merged backwards
  from it, once for all windows with the same cut (the *flip*); panes after it are merged as they enter. Cuts
  depend on time alone, and so does the order of merges: rounding is the same wherever emission stops, resumes
  or is divided among threads.

The last two cost the same for every overlap. Their position is stored in `cursor`, so that a call continues
where the previous one stopped: in the same emission, or in a later one (`pane_assembly.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from penstock.algorithms.monoids import Monoid, Values
from penstock.algorithms.monoids.base import Combine
from penstock.algorithms.partials import MayBeNull, Partial
from penstock.expr import nodes as ex
from penstock.ir.nodes import Reduction
from penstock.loop.abi import CUT, ENTERED, LEFT, PUSHED, Binding, OutputColumn, PaneScratch
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, Buffer, Kernel, Value, Var, const, minimum


@dataclass(frozen=True)
class EmitSpec:
    """The specialisation of the kernel. `fields` are those that must be computed.

    Windows begin every `every` ticks from `offset` on, and are `size` ticks long. `algorithms` gives for each
    monoid the algorithm that merges the panes of a window.
    """

    keys: tuple[tuple[str, pa.DataType], ...]
    bounds: tuple[str, ...]
    size: int
    every: int
    offset: int
    time_type: pa.DataType
    partials: tuple[Partial, ...]
    monoids: tuple[Monoid, ...]
    wide_monoids: tuple[Monoid, ...]
    reductions: tuple[Reduction, ...]
    reduction_types: tuple[pa.DataType, ...]
    fields: tuple[ex.Field, ...]
    having: ex.Expr | None
    may_be_null: MayBeNull
    algorithms: tuple[str, ...]
    key_table: str
    keys_nullable: bool

    @property
    def sparse(self) -> bool:
        """Whether rows of the pane table are (pane, key) pairs: a result then belongs to one pair's key."""
        return self.key_table == "sparse"


@dataclass(frozen=True)
class EmitKernel:
    """The kernel, its computed columns, its scratch memory, and the bindings of the texts it compares."""

    kernel: Kernel
    outputs: tuple[OutputColumn, ...]
    scratch: tuple[PaneScratch, ...]
    bindings: tuple[Binding, ...]


Row = tuple[Buffer, ...]  # the states of one monoid, one cell per key


@dataclass
class WindowPanes:
    """Window w is panes first[w] … last[w] - 1 of those that `order` lists; a pane is `columns` cells wide.

    Windows ascend: neither bound decreases. 64-bit states are widened when read, since panes whose sums fit
    can make a window whose sum does not.
    """

    k: KernelBuilder
    spec: EmitSpec
    scratch: list[PaneScratch] = field(default_factory=list)

    def __post_init__(self) -> None:
        k, spec = self.k, self.spec
        single = spec.sparse or spec.key_table == "none"
        self.columns: Value = const(1, I64) if single else k.scalar("columns")
        self.states = [tuple(k.buffer("state", state.type) for state in m.states) for m in spec.monoids]
        self.order = k.buffer("order", I64)
        self.first = k.buffer("first", I64)

    @property
    def last(self) -> Buffer:
        return self.k.shared_buffer("last", "", I64)

    @property
    def monoids(self) -> Sequence[Monoid]:
        return self.spec.wide_monoids

    def row(self, pane: Value) -> Var:
        """Return the index of a pane's first cell."""
        return self.k.var("pane_row", self.order[pane] * self.columns)

    def cell(self, m: int, place: Value) -> Values:
        """Read the states in a cell of the table."""
        own = zip(self.states[m], self.monoids[m].states, strict=True)
        return tuple(self.k.var("held", buffer[place].to(state.type)) for buffer, state in own)

    def memory(self, hint: str, m: int, deep: bool = False) -> Row:
        """Declare rows of a monoid's states that persist across calls."""
        row = tuple(self.k.buffer(hint, state.type) for state in self.monoids[m].states)
        self.scratch += [PaneScratch(buffer.name, buffer.type, deep) for buffer in row]
        return row

    @contextmanager
    def each_key(self) -> Iterator[Var]:
        with self.k.for_(0, self.columns, "key") as key:
            yield key

    def fill(self, row: Row, m: int) -> None:
        """Fill the first row of a buffer with the identity."""
        with self.each_key() as key:
            for buffer, state in zip(row, self.monoids[m].states, strict=True):
                self.k.store(buffer, key, const(state.identity, state.type))

    def update(self, row: Row, m: int, pane: Value, combine: Combine) -> None:
        """Combine a row with a pane, key by key: small loops over few buffers, which LLVM vectorises."""
        with self.each_key() as key:
            old = tuple(self.k.var("old", buffer[key]) for buffer in row)
            self.put(row, key, combine(self.k, old, self.cell(m, pane + key)))

    def put(self, row: Row, place: Value, values: Values) -> None:
        """Store states; all are computed before any is overwritten."""
        made = [self.k.var("new", value) for value in values]
        for buffer, value in zip(row, made, strict=True):
            self.k.store(buffer, place, value)


class Merging(Protocol):
    """Merges the panes of successive windows, for some of the monoids."""

    def advance(self, w: Value) -> None:
        """Move to window w."""

    def leave(self) -> None:
        """Take out the panes that are dropped after the last window."""

    def read(self, m: int, key: Value) -> Values:
        """Return the states of monoid m over the window, for one key."""


class InPlace:
    """Read a window of one pane without merging."""

    def __init__(self, panes: WindowPanes, members: Sequence[int]) -> None:
        self.panes = panes

    def advance(self, w: Value) -> None:
        self.row = self.panes.row(self.panes.first[w])

    def leave(self) -> None:
        """Do nothing: no pane is taken out."""

    def read(self, m: int, key: Value) -> Values:
        return tuple(self.panes.k.var("held", buffer[self.row + key]) for buffer in self.panes.states[m])


class RecomputePanes:
    """Merge all panes of each window."""

    def __init__(self, panes: WindowPanes, members: Sequence[int]) -> None:
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

    def leave(self) -> None:
        """Do nothing: no pane is taken out."""

    def read(self, m: int, key: Value) -> Values:
        return _at(self.panes, self.merged[m], key)


class SubtractOnEvict:
    """Maintain one running row."""

    def __init__(self, panes: WindowPanes, members: Sequence[int]) -> None:
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
        self._take(first)
        k.store(self.cursor, ENTERED, last)
        k.store(self.cursor, LEFT, first)

    def _take(self, upto: Value) -> None:
        """Subtract the panes before a place that have not left yet."""
        panes = self.panes
        with panes.k.for_(self.cursor[LEFT], upto, "pane") as pane:
            begin = panes.row(pane)
            for m, row in self.running.items():
                take = panes.monoids[m].take
                assert take is not None
                panes.update(row, m, begin, take)

    def leave(self) -> None:
        """Subtract the panes that no later window holds, while they are still there."""
        k = self.panes.k
        gone = k.var("gone", minimum(k.scalar("gone"), self.cursor[ENTERED]))
        with k.if_(gone > self.cursor[LEFT]):
            self._take(gone)
            k.store(self.cursor, LEFT, gone)

    def _forget(self, first: Value) -> None:
        """Reset where the window shares no pane with the previous one."""
        for m, row in self.running.items():
            self.panes.fill(row, m)
        self.panes.k.store(self.cursor, ENTERED, first)
        self.panes.k.store(self.cursor, LEFT, first)

    def read(self, m: int, key: Value) -> Values:
        return _at(self.panes, self.running[m], key)


class PaneStacks:
    """Maintain a stack of merged panes before the cut, indexed by depth, and one row for the panes after it."""

    def __init__(self, panes: WindowPanes, members: Sequence[int]) -> None:
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
        """Push the next earlier pane, merged with all later ones."""
        panes = self.panes
        with panes.each_key() as key:
            later = _at(panes, rows, under + key)
            merged = panes.monoids[m].merge(panes.k, panes.cell(m, pane + key), later)
            panes.put(rows, under + panes.columns + key, merged)

    def leave(self) -> None:
        """Do nothing: no pane is taken out."""

    def read(self, m: int, key: Value) -> Values:
        panes = self.panes
        early, late = _at(panes, self.front[m], self.top + key), _at(panes, self.back[m], key)
        return panes.monoids[m].merge(panes.k, early, late)


def _at(panes: WindowPanes, row: Row, place: Value) -> Values:
    return tuple(panes.k.var("held", buffer[place]) for buffer in row)


ONE_PANE = "one pane"
ASSEMBLY_ALGORITHMS: dict[str, type[InPlace | RecomputePanes | SubtractOnEvict | PaneStacks]] = {
    ONE_PANE: InPlace,
    "recompute": RecomputePanes,
    "subtract-on-evict": SubtractOnEvict,
    "two-stacks": PaneStacks,
}


def algorithms(monoids: Sequence[Monoid], preferred: str) -> tuple[str, ...]:
    """Choose an algorithm per monoid: the preferred one, but two-stacks where subtraction lacks an inverse."""
    subtracts = preferred == "subtract-on-evict"
    return tuple("two-stacks" if subtracts and monoid.take is None else preferred for monoid in monoids)


class Mergers:
    """One algorithm per monoid; monoids with the same algorithm share its loops."""

    def __init__(self, panes: WindowPanes) -> None:
        chosen = panes.spec.algorithms
        self.groups: dict[str, Merging] = {
            name: ASSEMBLY_ALGORITHMS[name](
                panes, [m for m, algorithm in enumerate(chosen) if algorithm == name]
            )
            for name in dict.fromkeys(chosen)
        }
        self.chosen = chosen

    def advance(self, w: Value) -> None:
        for group in self.groups.values():
            group.advance(w)

    def leave(self) -> None:
        for group in self.groups.values():
            group.leave()

    def read(self, m: int, key: Value) -> Values:
        return self.groups[self.chosen[m]].read(m, key)
