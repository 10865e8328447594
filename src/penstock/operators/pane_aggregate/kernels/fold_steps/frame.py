"""Shared parts of the fold kernel's steps: its parameters, and the contributions of a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.algorithms.expressions.cells import is_true
from penstock.algorithms.expressions.columns import Columns
from penstock.algorithms.expressions.lowering import Lowering
from penstock.algorithms.hash_table.group_kernels import (
    DenseGroups,
    HashGroups,
    KeyTable,
    OneGroup,
    word_of,
)
from penstock.algorithms.monoids import Monoid, Values
from penstock.algorithms.partials import Partial
from penstock.algorithms.partials.contribution import Contribution, contribution
from penstock.algorithms.sliding.accumulate import has_floats
from penstock.analysis.predicates import conjunction, conjuncts
from penstock.expr import nodes as ex
from penstock.loop.abi import ACCEPTED, ERRORS, FILTERED, KEYS, NEED_KEYS, STATUS
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I64, Buffer, Value, Var, select
from penstock.operators.pane_aggregate.kernels.pane_slots import PaneSlots
from penstock.physical.nodes import FilterOrder, Sharing
from penstock.types.time import Time

FOLD_CHUNK = 8192


@dataclass(frozen=True, slots=True)
class PaneGrid:
    """Intervals between the bounds of windows, which start every `every` ticks from `offset` on.

    Where windows do not end at the start of others, they end `cut` ticks after it: each `every` then has two
    panes. With a `cut` of 0 it has one.
    """

    every: int
    offset: int
    cut: int = 0


@dataclass(frozen=True)
class FoldSpec:
    """The specialisation of the kernel."""

    schema: pa.Schema
    time: Time
    panes: PaneGrid
    where: ex.Expr | None
    keys: tuple[ex.Expr, ...]
    partials: tuple[Partial, ...]
    monoids: tuple[Monoid, ...]
    key_table: str  # "none" | "dense" | "hash" | "sparse"
    nullable: frozenset[str]
    interned: frozenset[str]
    order: FilterOrder | None = (
        None  # groups of conjuncts: the first for every row, others on the rows selected
    )
    sharing: Sharing = "private"  # of the table: with the other workers
    runs: bool = False  # neighbouring rows of one key are added in registers
    instrumented: bool = False  # count what rows show, for a profile

    @property
    def sparse(self) -> bool:
        """Whether the pane is part of the key instead of a row of a grid: for few keys per pane."""
        return self.key_table == "sparse"


@dataclass(frozen=True)
class Update:
    """New states of one partial in a cell, stored where a row is `active` (None: always)."""

    buffers: tuple[Buffer, ...]
    old: Values
    new: Values
    active: Value | None = None


@dataclass(frozen=True)
class Owned:
    """The keys of one worker: those of which component `key` has a word from `low` to `high`."""

    key: Var
    low: Var
    high: Var

    @staticmethod
    def declare(k: KernelBuilder) -> Owned:
        return Owned(k.scalar("own_key"), k.scalar("own_low"), k.scalar("own_high"))

    def holds(self, words: Sequence[Value]) -> Value:
        word = words[0]
        for place, other in enumerate(words[1:], 1):
            word = select(self.key.eq(place), other, word)
        return (word >= self.low) & (word <= self.high)


class FoldFrame:
    """The kernel under construction: its parameters, and the variables that live for a whole call."""

    def __init__(self, spec: FoldSpec) -> None:
        self.spec = spec
        self.k = k = KernelBuilder("fold")
        self.lo, self.hi = k.scalar("lo"), k.scalar("hi")
        first_row = k.scalar("first_row")
        self.head = k.buffer("head", I64)
        self.width = k.scalar("columns")
        self.panes = PaneSlots.declare(k, self.head, self.width, spec.monoids)
        self.states = self.panes.states
        self.keys = _key_table(k, self.head, spec)
        self.columns = Columns(k, spec.schema, spec.nullable, spec.interned, spec.time, first_row)
        self.errors = k.var("errors", False, BOOL)
        self.own = Owned.declare(k) if spec.sharing == "partitioned" else None
        self.key_capacity = k.scalar("key_capacity") if isinstance(self.keys, HashGroups) else None
        self.at = k.var("at", self.lo)

    @property
    def selects(self) -> bool:
        """Whether rows are listed first, then added one by one.

        Without keys, integers alone: any grouping adds them alike. Listing took half the time of a masked reduction at
        each selectivity that was measured.
        """
        spec = self.spec
        keyed = bool(spec.keys) or spec.sparse
        return keyed or (spec.where is not None and not has_floats(spec.monoids))

    def time_at(self, row: Value) -> Value:
        return self.columns.time_at(row)

    # -- leaving -----------------------------------------------------------------------------------

    def leave(self, status: int, reached: Value) -> None:
        """Return the row reached, and store the status."""
        k = self.k
        k.store(self.head, ERRORS, self.head[ERRORS] | self.errors.to(I64))
        k.store(self.head, STATUS, status)
        k.ret(reached)

    def tally(self, rows: Value, accepted: Value) -> None:
        """Count processed rows."""
        k = self.k
        k.store(self.head, ACCEPTED, self.head[ACCEPTED] + accepted)
        k.store(self.head, FILTERED, self.head[FILTERED] + (rows - accepted))

    def reserve_keys(self, rows: Value) -> None:
        """Ensure capacity for a new key per row of the chunk."""
        if self.key_capacity is not None:
            with self.k.if_(self.head[KEYS] + rows > self.key_capacity):
                self.leave(NEED_KEYS, self.at)

    # -- a row -------------------------------------------------------------------------------------

    def lowering(self, row: Value, active: Value | None = None) -> Lowering:
        """Lower expressions at a row; errors count only where the row is `active`."""

        def fail(condition: Value) -> None:
            self.k.set(self.errors, self.errors | (condition if active is None else condition & active))

        return self.columns.lowering(row, fail)

    def passes(self, row: Value) -> Value | None:
        """The filter at a row; None if every row passes."""
        if self.spec.where is None:
            return None
        return is_true(self.lowering(row).lower(self.spec.where))

    def passes_group(self, row: Value, group: tuple[int, ...]) -> Value:
        """Whether a row passes the conjuncts of a group."""
        parts = conjuncts(self.spec.where)
        where = conjunction(parts[number] for number in group)
        assert where is not None
        return is_true(self.lowering(row).lower(where))

    def owned(self, row: Value) -> Value:
        """Whether the row's key belongs to this worker; errors of the key count where the row is added."""
        assert self.own is not None
        lowering = self.columns.lowering(row, lambda failed: None)
        return self.own.holds([word_of(lowering.lower(key)) for key in self.spec.keys])

    def contributions(self, row: Value, active: Value | None = None) -> list[Contribution]:
        """The values that a row adds to each partial, and the condition under which it does (None: always)."""
        lowering = self.lowering(row, active)

        def moment() -> Values:
            return self.time_at(row), self.columns.first_row + row

        return [contribution(lowering, partial, moment) for partial in self.spec.partials]


def _key_table(k: KernelBuilder, head: Buffer, spec: FoldSpec) -> KeyTable:
    match spec.key_table:
        case "dense":
            return DenseGroups.declare(k, len(spec.keys))
        case "hash":
            return HashGroups.declare(k, head, len(spec.keys))
        case "sparse":
            return HashGroups.declare(k, head, len(spec.keys) + 1)
        case _:
            return OneGroup()
