"""The pane table in the emit kernel: rows in order of time; a window is a range of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from penstock.algorithms.monoids import Monoid, Values
from penstock.algorithms.monoids.base import Combine
from penstock.loop.abi import PaneScratch
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, Buffer, Value, Var, const
from penstock.operators.pane_aggregate.kernels.emit_steps.spec import EmitSpec

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
