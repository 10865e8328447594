"""The fold kernel: rows of a batch into panes, filter, keys and aggregates fused into one pass.

Rows are taken a chunk at a time, so that what lies between the steps stays in the first-level cache:

    1. which pane?   one for the whole chunk where time is in order (the common case), else row by row
    2. which rows?   the filter, to a list of row offsets, without branches
    3. add           for each of them: find the key's column, step the states of (pane, key)

Without keys, steps 2 and 3 become a plain masked reduction that LLVM vectorises.

A row is added wholly or not at all. When its key or pane finds no room, or an integer sum would leave
64 bits, the kernel returns that row's number: the rows before it are done, the runtime helps (a larger
table, wider sums) and calls again from there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.expr import nodes as ex
from penstock.kernels.cells import Cell, is_nan, is_true
from penstock.kernels.monoids import Monoid, Values
from penstock.kernels.select import chunk_length, select_rows
from penstock.kernels.tables.keys import DenseKeys, HashKeys, KeyTable, NoKeys
from penstock.kernels.tables.panes import PaneSlots
from penstock.loop.abi import (
    ACCEPTED,
    DONE,
    ERRORS,
    FILTERED,
    KEYS,
    LANES,
    NEED_KEYS,
    NEED_SLOTS,
    NEED_WIDE,
    STATUS,
    Binding,
)
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import (
    BOOL,
    I32,
    I64,
    U8,
    U64,
    Kernel,
    Overflows,
    Value,
    Var,
    as_value,
    const,
    maximum,
    minimum,
    select,
)
from penstock.lower.calendar import floor_div
from penstock.lower.columns import Columns
from penstock.lower.expressions import Lowering
from penstock.lower.partials import PRESENT, Partial, value_added
from penstock.types.time import Time

CHUNK = 8192
LARGEST_IN_CHUNK = (1 << 63) // CHUNK  # a chunk of values below this cannot overflow 64 bits
SHORTEST_RUN = 32  # below this, a run of rows in one pane is not worth a chunk of its own


@dataclass(frozen=True)
class FoldSpec:
    """All that the kernel is specialised to."""

    schema: pa.Schema
    time: Time
    width: int
    offset: int
    where: ex.Expr | None
    keys: tuple[ex.Expr, ...]
    partials: tuple[Partial, ...]
    monoids: tuple[Monoid, ...]
    key_table: str  # "none" | "dense" | "hash" | "sparse"
    nullable: frozenset[str]
    interned: frozenset[str]


@dataclass(frozen=True)
class RowKernel:
    """A kernel over a batch's rows, and what to bind its column parameters to."""

    kernel: Kernel
    bindings: tuple[Binding, ...]


def build_fold(spec: FoldSpec) -> RowKernel:
    """Write the fold kernel for a specification."""
    fold = _Fold(spec)
    fold.write()
    return RowKernel(fold.k.build(), (*fold.columns.bindings, *arenas(fold.k)))


def arenas(k: KernelBuilder) -> tuple[Binding, ...]:
    """What fills the buffers of interned texts that a kernel compares."""
    return tuple(Binding(buffer.name, column, role) for (role, column), buffer in k.shared.items() if column)


@dataclass
class _Fold:
    spec: FoldSpec
    k: KernelBuilder = field(default_factory=lambda: KernelBuilder("fold"))

    def __post_init__(self) -> None:
        k, spec = self.k, self.spec
        self.lo, self.hi = k.scalar("lo"), k.scalar("hi")
        self.first_row = k.scalar("first_row")
        self.head = k.buffer("head", I64)
        self.width = k.scalar("columns")
        self.panes = PaneSlots.declare(k, self.head)
        self.keys = self._key_table()
        self.states = tuple(
            tuple(k.buffer("state", state.type) for state in monoid.states) for monoid in spec.monoids
        )
        self.columns = Columns(k, spec.schema, spec.nullable, spec.interned, spec.time, self.first_row)
        self.errors = k.var("errors", False, BOOL)

    def _key_table(self) -> KeyTable:
        match self.spec.key_table:
            case "dense":
                return DenseKeys.declare(self.k, len(self.spec.keys))
            case "hash":
                return HashKeys.declare(self.k, self.head, len(self.spec.keys))
            case "sparse":
                return HashKeys.declare(self.k, self.head, len(self.spec.keys) + 1)
            case _:
                return NoKeys()

    # -- the chunk loop ----------------------------------------------------------------------------

    def write(self) -> None:
        k = self.k
        if isinstance(self.keys, HashKeys):
            self.key_capacity = k.scalar("key_capacity")
        self.at = k.var("at", self.lo)
        self.pane, self.begin, self.end = (k.var(name, 0) for name in ("pane", "begin", "end"))
        self.single = k.var("single", True, BOOL)
        with k.while_(self.at < self.hi):
            self.n = k.var("n", chunk_length(self.hi - self.at, CHUNK))
            self._enter_pane(self._time(self.at))
            if self.spec.keys:
                self._keyed_chunk()
            else:
                self._global_chunk()
            k.set(self.at, self.at + self.n)
        self._leave(DONE, self.hi)

    def _leave(self, status: Value | int, reached: Value) -> None:
        k = self.k
        k.store(self.head, ERRORS, self.head[ERRORS] | self.errors.to(I64))
        k.store(self.head, STATUS, status)
        k.ret(reached)

    def _tally(self, rows: Value, accepted: Value) -> None:
        k = self.k
        k.store(self.head, ACCEPTED, self.head[ACCEPTED] + accepted)
        k.store(self.head, FILTERED, self.head[FILTERED] + (rows - accepted))

    def _keyed_chunk(self) -> None:
        if self.spec.time.implied:
            self._end_with_pane()
            self._select()
        elif self._filtered:
            self._select(self._watch_time())
            self._settle_pane()
        else:
            self._check_times()
            self._select()
        self._keyed_room()
        self._add()

    def _keyed_room(self) -> None:
        """See to it that every row of the chunk may bring a new key."""
        k = self.k
        if isinstance(self.keys, HashKeys):
            with k.if_(self.head[KEYS] + self.count > self.key_capacity):
                self._leave(NEED_KEYS, self.at)

    def _global_chunk(self) -> None:
        k = self.k
        if self.spec.time.implied and not self._sparse:
            self._end_with_pane()
            self._reduce_chunk()
            return
        if self.spec.time.implied:
            self._end_with_pane()
        else:
            self._check_times()
        if self._sparse:
            self._select()
            self._keyed_room()
            self._add()
            return
        with k.if_(self.single):
            self._reduce_chunk()
        with k.else_():
            self._select()
            self._add()

    # -- 1. panes ----------------------------------------------------------------------------------

    def _time(self, row: Value) -> Value:
        return self.columns.time_at(row)

    def _enter_pane(self, time: Value) -> None:
        k = self.k
        at = k.var("time", time)
        k.set(self.pane, floor_div(at - self.spec.offset, const(self.spec.width, I64)))
        k.set(self.begin, self.pane * self.spec.width + self.spec.offset)
        k.set(self.end, self.begin + self.spec.width)
        k.set(self.errors, self.errors | ~self._inside(at))  # bounds beyond 64 bits have wrapped around

    def _inside(self, time: Value) -> Value:
        return (time >= self.begin) & (time < self.end)

    def _end_with_pane(self) -> None:
        """Cut a chunk of regular rows where its pane ends: that needs no look at the rows."""
        period = self.spec.time.period
        assert period is not None
        left = (self.end - self._time(self.at) + (period - 1)).div(period)
        self.k.set(self.n, minimum(self.n, left))

    def _watch_time(self) -> Callable[[Value], None]:
        """Note, row by row, whether all times of the chunk lie in the pane."""
        k = self.k
        outside = k.var("outside", 0)
        last = k.var("last", self.end - 1)

        def watch(r: Value) -> None:
            time = k.var("time", self._time(self.at + r))
            k.set(outside, outside | ((time < self.begin) | (time > last)).to(I64))

        self._outside = outside
        return watch

    def _check_times(self) -> None:
        watch = self._watch_time()
        with self.k.for_(0, self.n, "r") as r:
            watch(r)
        self.count = self.n
        self._settle_pane()

    def _settle_pane(self) -> None:
        """Decide whether the chunk has one pane; cut it where its first pane ends, if that leaves enough rows."""
        k = self.k
        k.set(self.single, self._outside.eq(0))
        with k.if_(~self.single):
            run = k.var("run", 0)
            more = (run < self.n) & self._inside(self._time(self.at + minimum(run, self.n - 1)))
            with k.while_(more):
                k.set(run, run + 1)
            with k.if_(run >= SHORTEST_RUN):
                k.set(self.n, run)
                k.set(self.single, const(True, BOOL))
                self._forget_rows_beyond(run)

    def _forget_rows_beyond(self, run: Value) -> None:
        """Drop the chosen rows that the shortened chunk no longer holds."""
        if self.count is self.n:
            return
        k, count = self.k, self.count
        assert isinstance(count, Var)
        beyond = (count > 0) & (self.chosen[maximum(count - 1, const(0, I64))].to(I64) >= run)
        with k.while_(beyond):
            k.set(count, count - 1)

    # -- 2. rows -----------------------------------------------------------------------------------

    def _lowering(self, row: Value, active: Value | None = None) -> Lowering:
        def fail(condition: Value) -> None:
            self.k.set(self.errors, self.errors | (condition if active is None else condition & active))

        return Lowering(
            self.k,
            self.spec.schema,
            lambda name: self.columns.cell(name, row),
            fail,
            lambda name, text: self.columns.text_equals(name, text, row),
            lambda name: self.columns.valid(name, row),
        )

    def _passes(self, row: Value) -> Value | None:
        """The filter at a row; None when every row passes."""
        if self.spec.where is None:
            return None
        return is_true(self._lowering(row).lower(self.spec.where))

    @property
    def _filtered(self) -> bool:
        return self.spec.where is not None

    def _select(self, meanwhile: Callable[[Value], None] | None = None) -> None:
        k = self.k
        self.count = self.n
        if not self._filtered:
            return
        mask = k.local("mask", U8, CHUNK + LANES)
        self.chosen = k.local("chosen", I32, CHUNK + LANES)
        positions = k.shared_buffer("positions", "", U8)

        def passes(r: Value) -> Value:
            found = self._passes(self.at + r)
            assert found is not None
            return found

        self.count = select_rows(k, self.n, passes, mask, self.chosen, positions, meanwhile)

    def _row(self, j: Value) -> Value:
        return self.at + (self.chosen[j].to(I64) if self._filtered else j)

    # -- 3. add ------------------------------------------------------------------------------------

    def _add(self) -> None:
        """Two loops, since what a chunk of several panes needs would burden the common one."""
        k = self.k
        with k.if_(self.count > 0):  # a pane that no row enters must not take a slot
            if self.spec.time.implied:
                self._add_to_one_pane()
            else:
                with k.if_(self.single):
                    self._add_to_one_pane()
                with k.else_():
                    self._add_to_several_panes()
        self._tally(self.n, self.count)

    def _add_to_one_pane(self) -> None:
        k = self.k
        base: Value = const(0, I64)
        if not self._sparse:
            slot = self.panes.find(k, self.pane, lambda: self._leave(NEED_SLOTS, self.at))
            base = k.var("base", slot * self.width)
        with k.for_(0, self.count, "j") as j:
            self._add_row(k.var("row", self._row(j)), j, base)

    @property
    def _sparse(self) -> bool:
        """Whether the pane is part of the key, instead of a row of a grid: few keys meet in a pane."""
        return self.spec.key_table == "sparse"

    def _add_to_several_panes(self) -> None:
        """Look the pane up again only when a row leaves the last one's."""
        k = self.k
        slot = k.var("slot", -1)
        with k.for_(0, self.count, "j") as j:
            row = k.var("row", self._row(j))
            time = k.var("time", self._time(row))
            with k.if_(~self._inside(time)):
                self._enter_pane(time)
                k.set(slot, -1)
            self._add_row(row, j, self._base_of(slot, row, j))

    def _base_of(self, slot: Var, row: Value, j: Value) -> Value:
        """Where the current pane's row of the grid begins."""
        k = self.k
        if self._sparse:
            return const(0, I64)
        with k.if_(slot < 0):
            k.set(slot, self.panes.find(k, self.pane, lambda: self._stop(NEED_SLOTS, row, j)))
        return k.var("base", slot * self.width)

    def _stop(self, why: Value | int, row: Value, j: Value) -> None:
        """Return before a row that cannot be added yet."""
        self._tally(row - self.at, j)
        self._leave(why, row)

    def _add_row(self, row: Value, j: Value, base: Value) -> None:
        k = self.k
        lowering = self._lowering(row)
        cells = [lowering.lower(key) for key in self.spec.keys]
        place, beyond = self.keys.locate(k, [Cell(self.pane), *cells] if self._sparse else cells)
        if beyond is not None:
            with k.if_(beyond):
                self._stop(NEED_KEYS, row, j)
        at = k.var("place", place + base)
        updates = []
        overflow: Value | None = None
        contributions = self._contributions(row)
        for monoid, buffers, (value, active) in zip(
            self.spec.monoids, self.states, contributions, strict=True
        ):
            old = tuple(k.var("old", buffer[at]) for buffer in buffers)
            new = monoid.step(k, old, value)
            if monoid.guarded:
                leaves = _conjunction(_leaves_64_bits(old[0], value), active)
                overflow = leaves if overflow is None else overflow | leaves
            updates.append((buffers, old, new, active))
        if overflow is not None:
            with k.if_(overflow):
                self._stop(NEED_WIDE, row, j)
        if self.spec.partials[0] == PRESENT and len(updates) > 1:
            self._mark_present(at, updates[1][1][0], self.spec.monoids[1].states[0].identity)
            updates = updates[1:]
        for buffers, old, new, active in updates:
            for buffer, before, after in zip(buffers, old, new, strict=True):
                k.store(buffer, at, after if active is None else select(active, after, before))

    def _mark_present(self, at: Value, old: Value, identity: float) -> None:
        """Mark a cell the first time it is met: then, at least, another state of it is still the identity.

        The branch is taken once for each cell and predicted ever after; a store for each row is not free.
        """
        k = self.k
        with k.if_(is_nan(old) if math.isnan(identity) else old.eq(as_value(identity, old.type))):
            k.store(self.states[0][0], at, 1)

    def _contributions(self, row: Value, active: Value | None = None) -> list[tuple[Value, Value | None]]:
        lowering = self._lowering(row, active)
        found = []
        for partial in self.spec.partials:
            if partial.where is None:
                cell = None if partial.arg is None else self._argument(lowering, partial)
                found.append(value_added(partial, cell, None))
                continue
            where = lowering.lower(partial.where)
            with lowering.under(is_true(where)):
                cell = None if partial.arg is None else self._argument(lowering, partial)
            found.append(value_added(partial, cell, where))
        return found

    @staticmethod
    def _argument(lowering: Lowering, partial: Partial) -> Cell:
        assert partial.arg is not None
        if partial.kind in ("count", "present"):  # only asks whether there is a value, of whatever type
            return Cell(const(1, I64), lowering.valid(partial.arg))
        return lowering.lower(partial.arg)

    # -- without keys: a reduction -----------------------------------------------------------------

    def _reduce_chunk(self) -> None:
        """Reduce a chunk that lies in one pane into locals, then add those to the pane once."""
        k = self.k
        matched = k.var("matched", 0)
        self.magnitudes = [k.var("magnitude", 0) if m.guarded else None for m in self.spec.monoids]
        local = [monoid.in_chunk or monoid for monoid in self.spec.monoids]
        total = self._in_lanes(local, matched) if _has_floats(local) else self._in_order(local, matched)
        with k.if_(matched > 0):
            self._add_total(local, total)
        self._tally(self.n, matched)

    def _in_order(self, local: list[Monoid], matched: Var) -> list[Values]:
        k = self.k
        totals = [
            tuple(k.var("sum", state.identity, state.type) for state in monoid.states) for monoid in local
        ]
        with k.for_(0, self.n, "r") as r:
            self._step_locals(local, totals, self.at + r, matched)
        return list(totals)

    def _step_locals(
        self, local: list[Monoid], totals: list[tuple[Var, ...]], row: Value, matched: Var
    ) -> None:
        k = self.k
        at = k.var("row", row)
        passed = self._passes(at)
        passed = None if passed is None else k.var("passed", passed)
        contributions = self._contributions(at, passed)
        for monoid, total, magnitude, (value, active) in zip(
            local, totals, self.magnitudes, contributions, strict=True
        ):
            condition = _conjunction(passed, active)
            if magnitude is not None:
                k.set(magnitude, magnitude | _magnitude(k, value))
            stepped = [k.var("next", new) for new in monoid.step(k, total, value)]
            for target, new in zip(total, stepped, strict=True):
                k.set(target, new if condition is None else select(condition, new, target))
        k.set(matched, matched + (const(1, I64) if passed is None else passed.to(I64)))

    def _in_lanes(self, local: list[Monoid], matched: Var) -> list[Values]:
        """Sum floats in LANES fixed lanes: the same order, hence the same result, on every CPU."""
        k = self.k
        lanes = [
            [tuple(k.var("lane", state.identity, state.type) for state in monoid.states) for monoid in local]
            for _ in range(LANES)
        ]
        with k.for_(0, self.n >> 3, "g") as g:
            for place, totals in enumerate(lanes):
                self._step_locals(local, totals, self.at + g * LANES + place, matched)
        with k.for_((self.n >> 3) << 3, self.n, "r") as r:
            self._step_locals(local, lanes[0], self.at + r, matched)
        merged: list[Values] = list(lanes[0])
        for totals in lanes[1:]:
            merged = [m.merge(k, a, b) for m, a, b in zip(local, merged, totals, strict=True)]
        return merged

    def _add_total(self, local: list[Monoid], totals: list[Values]) -> None:
        """Add a chunk's totals, unless a 64-bit one may have wrapped: its bits bound how large it can be."""
        k = self.k
        slot = self.panes.find(k, self.pane, lambda: self._leave(NEED_SLOTS, self.at))
        place = k.var("place", slot * self.width)
        updates = []
        for monoid, inner, buffers, total in zip(self.spec.monoids, local, self.states, totals, strict=True):
            old = tuple(k.var("old", buffer[place]) for buffer in buffers)
            new = monoid.merge(k, old, total) if inner is monoid else monoid.step(k, old, total[0])
            updates.append((buffers, old, total, new))
        for magnitude, (_, old, total, _) in zip(self.magnitudes, updates, strict=True):
            if magnitude is not None:
                wraps = (magnitude >= LARGEST_IN_CHUNK) | Overflows("add", old[0], total[0])
                with k.if_(wraps):
                    self._leave(NEED_WIDE, self.at)
        for buffers, _, _, new in updates:
            for buffer, value in zip(buffers, new, strict=True):
                k.store(buffer, place, value)


def _leaves_64_bits(total: Value, value: Value) -> Value:
    """Whether adding a value to a signed 64-bit sum overflows, or the value itself does not fit one."""
    signed = value.to(I64)
    overflow = Overflows("add", total, signed)
    return overflow | (signed < 0) if value.type == U64 else overflow


def _magnitude(k: KernelBuilder, value: Value) -> Value:
    """Bits that bound a value's size; all of them when an unsigned one does not fit 64 signed bits."""
    bits = k.var("bits", value.to(I64))
    if value.type == U64:
        return select(bits < 0, const((1 << 63) - 1, I64), bits)
    return bits ^ (bits >> 63)


def _has_floats(local: list[Monoid]) -> bool:
    return any(state.type.is_float for monoid in local for state in monoid.states)


def _conjunction(a: Value | None, b: Value | None) -> Value | None:
    return b if a is None else a if b is None else a & b
