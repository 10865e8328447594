"""The fold kernel's parameters, and step 1 of the fold: the pane of each row, by a hash table from pane numbers to slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import cast

import pyarrow as pa

from penstock.algorithms.expressions.calendar import floor_div
from penstock.algorithms.expressions.cells import is_true
from penstock.algorithms.expressions.lowering import Columns, Lowering
from penstock.algorithms.hash_table.kernels import (
    DenseGroups,
    HashGroups,
    KeyTable,
    OneGroup,
    find_or_insert,
    hash_word,
    word_of,
)
from penstock.algorithms.monoids import Monoid, Values
from penstock.algorithms.partials import Partial
from penstock.algorithms.partials.algebra import Contribution, contribution
from penstock.algorithms.sliding.frame_algorithms import has_floats
from penstock.analysis.predicates import conjunction, conjuncts
from penstock.expr import nodes as ex
from penstock.loop.abi import ACCEPTED, ERRORS, FILTERED, KEYS, LANES, NEED_KEYS, SLOTS, STATUS
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I32, I64, Buffer, Value, Var, const, minimum, select
from penstock.physical.nodes import FilterOrder, Sharing
from penstock.types.time import Time


@dataclass
class PaneSlots:
    """The slots of the table. A slot is a row of `width` cells per state; the runtime allocates slots in advance.

    If the free slots are `dirty`, the kernel clears a slot when it takes it, in the cache of the thread that fills it.
    """

    head: Buffer
    width: Value
    monoids: Sequence[Monoid]
    states: tuple[tuple[Buffer, ...], ...]
    panes: Buffer
    buckets: Buffer
    bucket_mask: Var
    capacity: Var
    dirty: Var

    @staticmethod
    def declare(k: KernelBuilder, head: Buffer, width: Value, monoids: Sequence[Monoid]) -> PaneSlots:
        return PaneSlots(
            head,
            width,
            monoids,
            tuple(tuple(k.buffer("state", state.type) for state in monoid.states) for monoid in monoids),
            k.buffer("panes", I64),
            k.buffer("pane_buckets", I32),
            k.scalar("pane_mask"),
            k.scalar("pane_capacity"),
            k.scalar("pane_dirty"),
        )

    def find(self, k: KernelBuilder, pane: Value, stop: Callable[[], None]) -> Var:
        """Return the slot of a pane, and take a new one if there is none; call `stop` if no slot is free."""
        return find_or_insert(
            k,
            k.var("pane_hash", hash_word(pane)),
            self.buckets,
            self.bucket_mask,
            lambda at: self.panes[at].eq(pane),
            lambda: self._insert(k, pane, stop),
        )

    def _insert(self, k: KernelBuilder, pane: Value, stop: Callable[[], None]) -> Value:
        slot = k.var("new_slot", self.head[SLOTS])
        with k.if_(slot >= self.capacity):
            stop()
        with k.if_(self.dirty.ne(0)):
            self._clear(k, k.var("begin", slot * self.width))
        k.store(self.panes, slot, pane)
        k.store(self.head, SLOTS, slot + 1)
        return slot

    def _clear(self, k: KernelBuilder, begin: Value) -> None:
        for monoid, buffers in zip(self.monoids, self.states, strict=True):
            for state, buffer in zip(monoid.states, buffers, strict=True):
                with k.for_(0, self.width, "cell") as cell:
                    k.store(buffer, begin + cell, const(state.identity, state.type))


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


ROWS_BETWEEN_TESTS = 256  # rows whose times are read between two tests for the end of the pane
SHORTEST_RUN = 32  # minimum rows of a run in one pane that is worth a separate chunk


class CurrentPane:
    """The pane of the current row; `single` while all rows of the chunk lie in it."""

    def __init__(self, frame: FoldFrame) -> None:
        self.frame = frame
        k = frame.k
        self.number, self.begin, self.end = (k.var(name, 0) for name in ("pane", "begin", "end"))
        panes = frame.spec.panes
        self.every = const(panes.every, I64)  # a constant, since each row out of order divides by it
        self.offset = k.literal(panes.offset, I64)
        self.middle = k.literal(panes.cut, I64) if panes.cut else None
        self.single = k.var("single", True, BOOL)
        self.orderly = k.var("orderly", True, BOOL)

    def enter(self, time: Value) -> None:
        """Move to the pane that contains a time."""
        k, errors = self.frame.k, self.frame.errors
        at = k.var("time", time)
        k.set(self.number, floor_div(at - self.offset, self.every))
        k.set(self.begin, self.number * self.every + self.offset)
        k.set(self.end, self.begin + self.every)
        if self.middle is not None:
            self._halve(at, self.middle)
        k.set(errors, errors | ~self.inside(at))  # bounds beyond 64 bits have wrapped around

    def _halve(self, at: Value, cut: Value) -> None:
        """Move to the part before or after the cut: panes 2n and 2n + 1."""
        k = self.frame.k
        middle, behind = k.var("middle", self.begin + cut), k.var("behind", at - self.begin >= cut)
        k.set(self.number, self.number * 2 + behind.to(I64))
        k.set(self.end, select(behind, self.end, middle))
        k.set(self.begin, select(behind, middle, self.begin))

    def inside(self, time: Value) -> Value:
        return (time >= self.begin) & (time < self.end)

    def cut(self, n: Var) -> None:
        """Cut a chunk of regular rows at the end of its pane, computed without reading the rows."""
        period = self.frame.spec.time.period
        assert period is not None
        left = (self.end - self.frame.time_at(self.frame.at) + (period - 1)).div(period)
        self.frame.k.set(n, minimum(n, left))

    def reach(self, n: Var) -> None:
        """Cut a chunk at the end of its pane by binary search, assuming rows in order.

        `decide` verifies the order; after a chunk with rows out of order, the next chunk is not cut.
        """
        frame, k = self.frame, self.frame.k
        with k.if_(self.orderly & (frame.time_at(frame.at + n - 1) >= self.end)):
            inside, beyond = k.var("inside", 0), k.var("beyond", n - 1)
            with k.while_(beyond - inside > 1):
                middle = k.var("middle", (inside + beyond) >> 1)
                before = k.var("before", frame.time_at(frame.at + middle) < self.end, BOOL)
                k.set(inside, select(before, middle, inside))
                k.set(beyond, select(before, beyond, middle))
            k.set(self.orderly, beyond >= SHORTEST_RUN)
            with k.if_(self.orderly):
                k.set(n, beyond)

    def decide(self, watch: PaneWatch) -> None:
        """Record whether all rows lie in the pane."""
        k = self.frame.k
        k.set(self.single, watch.all_inside)
        k.set(self.orderly, self.single)

    def watch(self, lanes: Buffer | None = None) -> PaneWatch:
        k = self.frame.k
        return PaneWatch(self, k.var("outside", 0), k.var("last", self.end - 1), lanes)

    def watch_lanes(self) -> PaneWatch:
        """Watch rows of which several are read at once, in SIMD lanes."""
        k = self.frame.k
        lanes = k.local("lanes", I64, LANES)
        with k.for_(0, LANES, "lane", parallel=True) as lane:
            k.store(lanes, lane, 0)
        return self.watch(lanes)

    def check(self, n: Var) -> None:
        """Read the times of the rows, `ROWS_BETWEEN_TESTS` at a time, up to the pane's end.

        The chunk is cut there if at least `SHORTEST_RUN` rows remain in it.
        """
        k = self.frame.k
        watch, seen = self.watch(), k.var("seen", 0)
        with k.while_((seen < n) & watch.all_inside):
            upto = k.var("upto", minimum(seen + ROWS_BETWEEN_TESTS, n))
            with k.for_(seen, upto, "r") as r:
                watch.row(r)
            with k.if_(watch.all_inside):
                k.set(seen, upto)
        k.set(self.single, watch.all_inside)
        with k.if_(~self.single):
            run = self._run(n, seen)
            with k.if_(run >= SHORTEST_RUN):
                k.set(n, run)
                k.set(self.single, const(True, BOOL))

    def _run(self, n: Var, seen: Value) -> Var:
        """Count the rows in the pane before the first row outside; the first `seen` rows are inside."""
        frame = self.frame
        run = frame.k.var("run", seen)
        more = (run < n) & self.inside(frame.time_at(frame.at + minimum(run, n - 1)))
        with frame.k.while_(more):
            frame.k.set(run, run + 1)
        return run


@dataclass(frozen=True)
class PaneWatch:
    """Records, row by row, whether all times of a chunk lie in the pane: `outside` stays at or above 0.

    A time outside makes `time - begin` or `last - time` negative, and one of them stays negative where a
    difference wraps around. A sign costs less than two comparisons and their conjunction.
    """

    pane: CurrentPane
    outside: Var
    last: Var
    lanes: Buffer | None = None  # the same as `outside`, per SIMD lane

    def row(self, r: Value) -> None:
        self.pane.frame.k.set(self.outside, self.outside | self._signs(r))

    def lane(self, r: Value, lane: Value) -> None:
        assert self.lanes is not None
        self.pane.frame.k.store(self.lanes, lane, self.lanes[lane] | self._signs(r))

    def _signs(self, r: Value) -> Value:
        frame = self.pane.frame
        time = frame.k.var("time", frame.time_at(frame.at + r))
        return (time - self.pane.begin) | (self.last - time)

    @property
    def all_inside(self) -> Value:
        lanes = [] if self.lanes is None else [self.lanes[lane] for lane in range(LANES)]
        return reduce(or_, lanes, cast(Value, self.outside)) >= 0
