"""The fold kernel: rows of a batch into panes, filter, keys and aggregates fused into one pass.

Rows are taken a chunk at a time, so that everything between the steps stays in the first-level cache:

    1. which pane?    one for the whole chunk where time is in order (the common case), else row by row
    2. which rows?    the filter, to a list of row offsets, without branches
    3. which key?     to columns of the pane table, by arithmetic or hash
    4. is it exact?   integer sums stay in 64 bits while a running bound proves that none can overflow
    5. add            states[slot, key] = step(states[slot, key], value)

Steps 1-4 change nothing but tables of keys and panes; when one finds that room is missing, the kernel
returns the chunk's first row and step 5 has not happened. Without keys, steps 2-5 become a plain
masked reduction that LLVM vectorises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.expr import nodes as ex
from penstock.kernels.cells import Cell, is_true
from penstock.loop.abi import ACCEPTED, DONE, ERRORS, FILTERED, KEYS, LANES, NEED_KEYS, NEED_WIDE, STATUS, Binding
from penstock.kernels.monoids import Monoid, Values
from penstock.kernels.select import chunk_length, select_rows
from penstock.kernels.tables.keys import DenseKeys, HashKeys, KeyTable, NoKeys
from penstock.kernels.tables.panes import PaneSlots
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, F64, I32, I64, U8, Buffer, Kernel, Value, Var, const, minimum, select
from penstock.lower.calendar import floor_div
from penstock.lower.columns import Columns
from penstock.lower.expressions import Lowering
from penstock.lower.partials import Partial, value_added
from penstock.types.time import Time

CHUNK = 2048
SHORTEST_RUN = 32  # below this, a run of rows in one pane is not worth a chunk of its own
BUDGET = float(1 << 62)


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
    key_table: str  # "none" | "dense" | "hash"
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
    return tuple(Binding(buffer.name, column, role) for (role, column), buffer in k.shared.items())


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
        self.budgets = k.buffer("budgets", F64)
        self.columns = Columns(k, spec.schema, spec.nullable, spec.interned, spec.time, self.first_row)
        self.errors = k.var("errors", False, BOOL)

    def _key_table(self) -> KeyTable:
        match self.spec.key_table:
            case "dense":
                return DenseKeys.declare(self.k, len(self.spec.keys))
            case "hash":
                return HashKeys.declare(self.k, self.head, len(self.spec.keys))
            case _:
                return NoKeys()

    # -- the chunk loop ----------------------------------------------------------------------------

    def write(self) -> None:
        k = self.k
        self.at = k.var("at", self.lo)
        with k.while_(self.at < self.hi):
            self.n = k.var("n", chunk_length(self.hi - self.at, CHUNK))
            self._find_pane()
            if self.spec.keys:
                self._keyed_chunk()
            else:
                self._global_chunk()
            k.set(self.at, self.at + self.n)
        self._report_errors()
        k.store(self.head, STATUS, DONE)
        k.ret(self.hi)

    def _report_errors(self) -> None:
        self.k.store(self.head, ERRORS, self.head[ERRORS] | self.errors.to(I64))

    def _tally(self, accepted: Value) -> None:
        self.k.store(self.head, ACCEPTED, self.head[ACCEPTED] + accepted)
        self.k.store(self.head, FILTERED, self.head[FILTERED] + (self.n - accepted))

    def _stop(self, condition: Value, why: int) -> None:
        """Return to the runtime with this chunk not yet applied."""
        k = self.k
        with k.if_(condition):
            k.store(self.head, STATUS, why)
            k.ret(self.at)

    def _global_chunk(self) -> None:
        k = self.k
        if self.spec.time.implied:
            self._reduce_chunk()
            return
        with k.if_(self.single):
            self._reduce_chunk()
        with k.else_():
            self._scatter_chunk()

    def _keyed_chunk(self) -> None:
        self._scatter_chunk()

    # -- 1. panes ----------------------------------------------------------------------------------

    def _time(self, row: Value) -> Value:
        return self.columns.time_at(row)

    def _find_pane(self) -> None:
        k = self.k
        self.pane = k.var("pane", 0)
        self.begin, self.end = k.var("begin", 0), k.var("end", 0)
        self._enter_pane(self._time(self.at))
        if self.spec.time.period is not None:
            left = (self.end - self._time(self.at) + (self.spec.time.period - 1)).div(self.spec.time.period)
            k.set(self.n, minimum(self.n, left))
            return
        self.single = k.var("single", self._all_inside())
        with k.if_(~self.single):
            self._shorten_to_run()

    def _enter_pane(self, time: Value) -> None:
        k = self.k
        at = k.var("time", time)
        k.set(self.pane, floor_div(at - self.spec.offset, const(self.spec.width, I64)))
        k.set(self.begin, self.pane * self.spec.width + self.spec.offset)
        k.set(self.end, self.begin + self.spec.width)
        k.set(self.errors, self.errors | ~self._inside(at))  # bounds beyond 64 bits have wrapped around

    def _inside(self, time: Value) -> Value:
        return (time >= self.begin) & (time < self.end)

    def _all_inside(self) -> Value:
        """Whether all times of the chunk lie in the pane."""
        k = self.k
        outside = k.var("outside", False, BOOL)
        last = k.var("last", self.end - 1)
        with k.for_(0, self.n, "r") as r:
            time = k.var("time", self._time(self.at + r))
            k.set(outside, outside | (time < self.begin) | (time > last))
        return ~outside

    def _shorten_to_run(self) -> None:
        """Cut the chunk where its first pane ends, if that leaves enough rows."""
        k = self.k
        run = k.var("run", 0)
        more = (run < self.n) & self._inside(self._time(self.at + minimum(run, self.n - 1)))
        with k.while_(more):
            k.set(run, run + 1)
        with k.if_(run >= SHORTEST_RUN):
            k.set(self.n, run)
            k.set(self.single, const(True, BOOL))

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

    def _select(self) -> None:
        k = self.k
        self.count = self.n
        if not self._filtered:
            return
        mask = k.local("mask", U8, CHUNK + LANES)
        self.chosen = k.local("chosen", I32, CHUNK + LANES)
        positions = k.buffer("positions", U8)

        def passes(r: Value) -> Value:
            found = self._passes(self.at + r)
            assert found is not None
            return found

        self.count = select_rows(k, self.n, passes, mask, self.chosen, positions)

    def _row(self, j: Value) -> Value:
        return self.at + (self.chosen[j].to(I64) if self._filtered else j)

    # -- 3. places in the table --------------------------------------------------------------------

    def _scatter_chunk(self) -> None:
        k = self.k
        self._select()
        self.places = k.local("places", I64, CHUNK + LANES)
        self._locate_keys()
        base = k.var("base", 0)
        if self.spec.time.implied:
            self._one_slot(base)
        else:
            with k.if_(self.single):
                self._one_slot(base)
            with k.else_():
                self._slot_per_row()
        self._guard_sums(self._row)
        self._add(base)
        self._tally(self.count)

    def _locate_keys(self) -> None:
        k = self.k
        if isinstance(self.keys, HashKeys):
            capacity = k.scalar("key_capacity")
            self._stop(self.head[KEYS] + self.count > capacity, NEED_KEYS)
        outside = k.var("outside", False, BOOL)
        with k.for_(0, self.count, "j") as j:
            lowering = self._lowering(k.var("row", self._row(j)))
            cells = [lowering.lower(key) for key in self.spec.keys]
            place, beyond = self.keys.locate(k, cells)
            k.store(self.places, j, place)
            if beyond is not None:
                k.set(outside, outside | beyond)
        if isinstance(self.keys, DenseKeys):
            self._stop(outside, NEED_KEYS)

    def _one_slot(self, base: Var) -> None:
        with self.k.if_(self.count > 0):  # a pane that no row enters must not take a slot
            self.k.set(base, self.panes.find(self.k, self.pane, self.at) * self.width)

    def _slot_per_row(self) -> None:
        """Look the pane up again only when a row leaves the last one's."""
        k = self.k
        slot = k.var("slot", -1)
        with k.for_(0, self.count, "j") as j:
            time = k.var("time", self._time(self._row(j)))
            with k.if_(~self._inside(time)):
                self._enter_pane(time)
                k.set(slot, -1)
            with k.if_(slot < 0):
                k.set(slot, self.panes.find(k, self.pane, self.at))
            k.store(self.places, j, self.places[j] + slot * self.width)

    # -- 4. exactness ------------------------------------------------------------------------------

    def _guard_sums(self, row_of: Callable[[Value], Value]) -> None:
        """Charge each guarded sum's budget with the chunk's largest possible contribution."""
        k = self.k
        guarded = [partial for partial, monoid in zip(self.spec.partials, self.spec.monoids) if monoid.guarded]
        spent = []
        for place, partial in enumerate(guarded):
            cost = self._largest(partial, row_of) * self.count.to(F64)
            spent.append(k.var("spent", self.budgets[place] + cost))
        for each in spent:
            self._stop(each > BUDGET, NEED_WIDE)
        for place, each in enumerate(spent):
            k.store(self.budgets, place, each)

    def _largest(self, partial: Partial, row_of: Callable[[Value], Value]) -> Value:
        """A bound on the magnitude of the chunk's values: all their bits, or-ed together.

        A bare column is scanned whole, whatever the filter says: in order, that costs almost nothing.
        """
        k = self.k
        bits = k.var("bits", 0)
        whole = isinstance(partial.arg, ex.Column)
        with k.for_(0, self.n if whole else self.count, "r") as r:
            value = self._value_of(partial, self.at + r if whole else k.var("row", row_of(r)))
            k.set(bits, bits | (value ^ (value >> 63)))
        return bits.to(F64) + 1.0

    def _value_of(self, partial: Partial, row: Value) -> Value:
        assert partial.arg is not None
        cell = self._quiet(row).lower(partial.arg)
        return self.k.var("value", cell.value.to(I64))

    def _quiet(self, row: Value) -> Lowering:
        """Lower without reporting errors: the same expression is lowered again where it counts."""
        lowering = self._lowering(row)
        lowering.fail = lambda condition: None
        return lowering

    # -- 5. add ------------------------------------------------------------------------------------

    def _contributions(self, row: Value, active: Value | None = None) -> list[tuple[Value, Value | None]]:
        lowering = self._lowering(row, active)
        found = []
        for partial in self.spec.partials:
            where = None if partial.where is None else lowering.lower(partial.where)
            cell = None if partial.arg is None else self._argument(lowering, partial)
            found.append(value_added(partial, cell, where))
        return found

    @staticmethod
    def _argument(lowering: Lowering, partial: Partial) -> Cell:
        assert partial.arg is not None
        if partial.kind in ("count", "present"):  # only asks whether there is a value, of whatever type
            return Cell(const(1, I64), lowering.valid(partial.arg))
        return lowering.lower(partial.arg)

    def _add(self, base: Value) -> None:
        k = self.k
        with k.for_(0, self.count, "j") as j:
            place = k.var("place", self.places[j] + base)
            contributions = self._contributions(k.var("row", self._row(j)))
            for monoid, buffers, (value, active) in zip(self.spec.monoids, self.states, contributions, strict=True):
                self._update(monoid, buffers, place, value, active)

    def _update(self, monoid: Monoid, buffers: tuple[Buffer, ...], place: Value, value: Value, active: Value | None) -> None:
        k = self.k
        old = tuple(k.var("old", buffer[place]) for buffer in buffers)
        for buffer, before, after in zip(buffers, old, monoid.step(k, old, value), strict=True):
            k.store(buffer, place, after if active is None else select(active, after, before))

    # -- without keys: a reduction -----------------------------------------------------------------

    def _reduce_chunk(self) -> None:
        """Reduce a chunk that lies in one pane into locals, then add those to the pane once."""
        k = self.k
        self.count = k.var("count", self.n)
        matched = k.var("matched", 0)
        self._guard_sums(lambda r: self.at + r)
        local = [monoid.in_chunk or monoid for monoid in self.spec.monoids]
        total = self._in_lanes(local, matched) if _has_floats(local) else self._in_order(local, matched)
        with k.if_(matched > 0):
            self._add_total(local, total)
        self._tally(matched)

    def _in_order(self, local: list[Monoid], matched: Var) -> list[Values]:
        k = self.k
        totals = [tuple(k.var("sum", state.identity, state.type) for state in monoid.states) for monoid in local]
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
        for monoid, total, (value, active) in zip(local, totals, self._contributions(at, passed), strict=True):
            condition = _conjunction(passed, active)
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
        k = self.k
        place = k.var("place", self.panes.find(k, self.pane, self.at) * self.width)
        for monoid, inner, buffers, total in zip(self.spec.monoids, local, self.states, totals, strict=True):
            old = tuple(k.var("old", buffer[place]) for buffer in buffers)
            new = monoid.merge(k, old, total) if inner is monoid else monoid.step(k, old, total[0])
            for buffer, value in zip(buffers, new, strict=True):
                k.store(buffer, place, value)


def _has_floats(local: list[Monoid]) -> bool:
    return any(state.type.is_float for monoid in local for state in monoid.states)


def _conjunction(a: Value | None, b: Value | None) -> Value | None:
    return b if a is None else a if b is None else a & b
