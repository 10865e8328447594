"""The fold kernel: aggregate the rows of a batch into panes; filter, keys and aggregates are fused into one pass.

Rows are processed in chunks, so that intermediate results stay in the first-level cache:

    1. pane          one for the whole chunk where time is in order (the common case), else row by row
    2. selection     the filter, to a list of row offsets, without branches
    3. add           for each selected row: look up the key's group, step the states of (pane, key)

Without keys, steps 2 and 3 become a plain masked reduction that LLVM vectorises. Step 1 is in
`fold_panes.py`, step 2 in `fold_selection.py`.

A row is added wholly or not at all. When there is no room for its key or pane, or an integer sum would
overflow 64 bits, the kernel returns that row's number: the rows before it are done; the runtime provides a
larger table or wider sums and calls again from there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.algorithms.expressions.cells import Cell, disjunction, is_nan
from penstock.algorithms.expressions.lowering import RowKernel, arenas
from penstock.algorithms.hash_table.kernels import null_bits, word_of
from penstock.algorithms.monoids import Values
from penstock.algorithms.partials import PRESENT
from penstock.algorithms.partials.algebra import Contribution
from penstock.algorithms.selection import chunk_length
from penstock.loop.abi import DONE, NEED_KEYS, NEED_SLOTS, NEED_WIDE
from penstock.loop.nodes import (
    I64,
    U64,
    Bitcast,
    Overflows,
    Value,
    Var,
    as_value,
    const,
    select,
)
from penstock.operators.pane_aggregate.kernels.fold_panes import (
    FOLD_CHUNK,
    CurrentPane,
    FoldFrame,
    FoldSpec,
    Update,
)
from penstock.operators.pane_aggregate.kernels.fold_selection import SelectedRows, select_chunk
from penstock.operators.pane_aggregate.kernels.fold_variants import ChunkReduction, Instrument

# The atomic operation of each monoid whose state is one integer that has one.
ATOMIC_OPERATIONS = {"present": "or", "count": "add", "sum": "add", "least": "min", "greatest": "max"}
LARGEST_SHARED = 1 << 40  # values added to a shared sum are below
FULL_SHARED = 1 << 62  # a shared sum stops beyond: no number of threads reaches 2**63 from there
_FEW_STATES = 3  # per row: its presence, and a sum or two


@dataclass(frozen=True)
class Addition:
    """Adds the chosen rows of a chunk of `n` rows."""

    frame: FoldFrame
    pane: CurrentPane
    n: Var
    chosen: SelectedRows

    def write(self) -> None:
        """Emit two loops: the code for several panes would slow the common case of one."""
        k = self.frame.k
        with k.if_(self.chosen.count > 0):  # a pane without rows must not take a slot
            if self.frame.spec.time.implied:
                self._to_one_pane()
            else:
                with k.if_(self.pane.single):
                    self._to_one_pane()
                with k.else_():
                    self._to_several_panes()
        self.frame.tally(self.n, self.chosen.count)

    def _to_one_pane(self) -> None:
        frame, k = self.frame, self.frame.k
        base: Value = const(0, I64)
        if not frame.spec.sparse:
            slot = frame.panes.find(k, self.pane.number, lambda: frame.leave(NEED_SLOTS, frame.at))
            base = k.var("base", slot * frame.width)
        if frame.spec.runs:
            self._in_runs(base)
            return
        with self.chosen.each(unrolled=self._light()) as (row, j):
            self._row(row, j, base)

    def _light(self) -> bool:
        """Whether the work per row is small: unrolled code then compiles fast, and loop overhead matters."""
        spec = self.frame.spec
        states = sum(len(monoid.states) for monoid in spec.monoids)
        return spec.key_table == "dense" and len(spec.keys) == 1 and states <= _FEW_STATES

    def _to_several_panes(self) -> None:
        """Look the pane up again only when a row lies outside the previous row's pane."""
        k = self.frame.k
        slot = k.var("slot", -1)
        with self.chosen.each() as (row, j):
            time = k.var("time", self.frame.time_at(row))
            with k.if_(~self.pane.inside(time)):
                self.pane.enter(time)
                k.set(slot, -1)
            self._row(row, j, self._base_of(slot, row, j))

    def _base_of(self, slot: Var, row: Value, j: Value) -> Value:
        """The first cell of the current pane's row in the grid."""
        frame, k = self.frame, self.frame.k
        if frame.spec.sparse:
            return const(0, I64)
        with k.if_(slot < 0):
            k.set(slot, frame.panes.find(k, self.pane.number, lambda: self._stop(NEED_SLOTS, row, j)))
        return k.var("base", slot * frame.width)

    def _stop(self, why: int, row: Value, j: Value) -> None:
        """Return before a row that cannot be added yet."""
        self.frame.tally(row - self.frame.at, j)
        self.frame.leave(why, row)

    # -- one row -----------------------------------------------------------------------------------

    def _row(self, row: Value, j: Value, base: Value) -> None:
        k = self.frame.k
        at = k.var("place", self._place(row, j)) + base
        contributions = self.frame.contributions(row)
        if self.frame.spec.sharing == "shared":
            self._add_atomically(row, j, at, contributions)
            return
        updates = [self._update(m, at, *added) for m, added in enumerate(contributions)]
        overflow = self._overflow(updates, contributions)
        if overflow is not None:
            with k.if_(overflow):
                self._stop(NEED_WIDE, row, j)
        self._store(at, updates)

    def _place(self, row: Value, j: Value) -> Value:
        """The group of the row's key."""
        frame, k = self.frame, self.frame.k
        lowering = frame.lowering(row)
        cells = [lowering.lower(key) for key in frame.spec.keys]
        place, beyond = frame.keys.locate(k, [Cell(self.pane.number), *cells] if frame.spec.sparse else cells)
        if beyond is not None:
            with k.if_(beyond):
                self._stop(NEED_KEYS, row, j)
        return place

    def _update(self, m: int, at: Value, values: Values, active: Value | None) -> Update:
        k, buffers = self.frame.k, self.frame.states[m]
        old = tuple(k.var("old", buffer[at]) for buffer in buffers)
        return Update(buffers, old, self.frame.spec.monoids[m].step(k, old, values), active)

    # -- runs of rows with one key, in one pane ------------------------------------------------------

    def _in_runs(self, base: Value) -> None:
        """Hold the states of the last row's key in registers: memory and the key table are used once for a run.

        Rows are added in the same order as one by one, so floats have the same bits.
        """
        k = self.frame.k
        run = RunOfKey(self.frame, base)
        with self.chosen.each() as (row, j):
            run.enter(self.pane.number, row, lambda: self._stop(NEED_KEYS, row, j))
            contributions = self.frame.contributions(row)
            updates = [run.update(m, *added) for m, added in enumerate(contributions)]
            overflow = self._overflow(updates, contributions)
            if overflow is not None:
                with k.if_(overflow):
                    run.leave()
                    self._stop(NEED_WIDE, row, j)
            run.take(updates)
        run.leave()

    # -- one row, while other workers add theirs -----------------------------------------------------

    def _add_atomically(self, row: Value, j: Value, at: Value, contributions: Sequence[Contribution]) -> None:
        """Add a row by one atomic operation for each state.

        A sum stops the kernel far below 64 bits: before a large value, and after the row that brought it near. What
        other workers add until they stop as well cannot reach the limit then.
        """
        k, added = self.frame.k, []
        for m, (values, active) in enumerate(contributions):
            added.append(k.var("added", self._atomic_value(m, values, active)))
        sums = [value for m, value in enumerate(added) if self.frame.spec.monoids[m].guarded]
        large = disjunction([_beyond(value, LARGEST_SHARED) for value in sums])
        if large is not None:
            with k.if_(large):
                self._stop(NEED_WIDE, row, j)
        before: list[Value] = []
        for monoid, buffers, value in zip(self.frame.spec.monoids, self.frame.states, added, strict=True):
            old = k.atomic(
                ATOMIC_OPERATIONS[monoid.name], buffers[0], at, value, "before" if monoid.guarded else None
            )
            before += [] if old is None else [old]
        full = disjunction([_beyond(old, FULL_SHARED) for old in before])
        if full is not None:
            with k.if_(full):
                self.frame.tally(row + 1 - self.frame.at, j + 1)
                self.frame.leave(NEED_WIDE, row + 1)

    def _atomic_value(self, m: int, values: Values, active: Value | None) -> Value:
        """What a row adds to a state: its value, or the identity if it adds nothing."""
        monoid = self.frame.spec.monoids[m]
        state = monoid.states[0]
        match monoid.name:
            case "present" | "count":
                found: Value = const(1, state.type)
            case "sum":
                found = values[0].to(I64)
                if values[0].type == U64:  # beyond 63 bits: as large as can be
                    found = select(found < 0, const(LARGEST_SHARED, I64), found)
            case _:
                found = values[0].to(state.type)
        return found if active is None else select(active, found, as_value(state.identity, state.type))

    def _overflow(self, updates: Sequence[Update], contributions: Sequence[Contribution]) -> Value | None:
        """Whether a 64-bit sum would overflow with the row; None if there are no such sums."""
        overflows: list[Value] = []
        for monoid, update, (values, active) in zip(
            self.frame.spec.monoids, updates, contributions, strict=True
        ):
            if monoid.guarded:
                leaves = _leaves_64_bits(update.old[0], values[0])
                overflows.append(leaves if active is None else leaves & active)
        return disjunction(overflows)

    def _store(self, at: Value, updates: Sequence[Update]) -> None:
        spec, k = self.frame.spec, self.frame.k
        if spec.partials[0] == PRESENT and len(updates) > 1:
            self._mark_present(at, updates[1].old[0], spec.monoids[1].states[0].identity)
            updates = updates[1:]
        for update in updates:
            for buffer, before, after in zip(update.buffers, update.old, update.new, strict=True):
                k.store(buffer, at, after if update.active is None else select(update.active, after, before))

    def _mark_present(self, at: Value, old: Value, identity: float) -> None:
        """Mark a cell whose second state is still the identity, as it is on the first row.

        The branch is taken once per cell and predicted afterwards; a store per row would cost more.
        """
        k = self.frame.k
        with k.if_(is_nan(old) if math.isnan(identity) else old.eq(as_value(identity, old.type))):
            k.store(self.frame.states[0][0], at, 1)


class RunOfKey:
    """The states of one key in registers, while neighbouring rows have that key."""

    def __init__(self, frame: FoldFrame, base: Value) -> None:
        self.frame, self.base = frame, base
        k = frame.k
        self.place = k.var("run_place", -1)
        self.words = [k.var("run_word", 0) for _ in frame.spec.keys]
        self.nulls = k.var("run_nulls", 0)
        self.held = [
            tuple(k.var("held", as_value(state.identity, state.type)) for state in monoid.states)
            for monoid in frame.spec.monoids
        ]

    def enter(self, pane: Var, row: Value, stop: Callable[[], None]) -> None:
        """Move to the cell of a row's key, if it is another one."""
        k = self.frame.k
        lowering = self.frame.lowering(row)
        cells = [lowering.lower(key) for key in self.frame.spec.keys]
        words = [k.var("word", word_of(cell)) for cell in cells]
        bits = null_bits(cells)
        nulls = k.var("nulls", const(0, I64) if bits is None else bits)
        same = self.nulls.eq(nulls) & (self.place >= 0)
        for known, word in zip(self.words, words, strict=True):
            same = same & known.eq(word)
        with k.if_(~same):
            self.leave()
            k.set(self.place, -1)  # nothing is held if the kernel stops here
            place, beyond = self.frame.keys.locate(
                k, [Cell(pane), *cells] if self.frame.spec.sparse else cells
            )
            found = k.var("found", place)
            if beyond is not None:
                with k.if_(beyond):
                    stop()
            self._load(found)
            for known, word in zip((*self.words, self.nulls), (*words, nulls), strict=True):
                k.set(known, word)

    def _load(self, found: Var) -> None:
        k = self.frame.k
        k.set(self.place, found)
        for buffers, held in zip(self.frame.states, self.held, strict=True):
            for buffer, state in zip(buffers, held, strict=True):
                k.set(state, buffer[self.base + found])

    def leave(self) -> None:
        """Write the states back."""
        k = self.frame.k
        with k.if_(self.place >= 0):
            for buffers, held in zip(self.frame.states, self.held, strict=True):
                for buffer, state in zip(buffers, held, strict=True):
                    k.store(buffer, self.base + self.place, state)

    def update(self, m: int, values: Values, active: Value | None) -> Update:
        """The states of a partial with a row."""
        k, held = self.frame.k, self.held[m]
        stepped = tuple(k.var("next", new) for new in self.frame.spec.monoids[m].step(k, held, values))
        return Update(self.frame.states[m], held, stepped, active)

    def take(self, updates: Sequence[Update]) -> None:
        """Hold the new states."""
        k = self.frame.k
        for held, update in zip(self.held, updates, strict=True):
            for state, new in zip(held, update.new, strict=True):
                k.set(state, new if update.active is None else select(update.active, new, state))


def _beyond(value: Value, limit: int) -> Value:
    """Whether a number's magnitude reaches a power of two."""
    return Bitcast(value + limit, U64) >= 2 * limit


def _leaves_64_bits(total: Value, value: Value) -> Value:
    """Whether adding a value to a signed 64-bit sum overflows, or the value does not fit one."""
    signed = value.to(I64)
    overflow = Overflows("add", total, signed)
    return overflow | (signed < 0) if value.type == U64 else overflow


def build_fold(spec: FoldSpec) -> RowKernel:
    """Build the fold kernel for a specification."""
    frame = FoldFrame(spec)
    pane = CurrentPane(frame)
    k = frame.k
    instrument = Instrument(frame) if spec.instrumented else None
    with k.while_(frame.at < frame.hi):
        n = k.var("n", chunk_length(frame.hi - frame.at, FOLD_CHUNK))
        pane.enter(frame.time_at(frame.at))
        if frame.selects:
            _add_chunk(frame, pane, n)
        else:
            _reduce_chunk(frame, pane, n)
        if instrument is not None:
            instrument.count(n)
        k.set(frame.at, frame.at + n)
    frame.leave(DONE, frame.hi)
    return RowKernel(k.build(), (*frame.columns.bindings, *arenas(k)))


def _add_chunk(frame: FoldFrame, pane: CurrentPane, n: Var) -> None:
    chosen = _settled_rows(frame, pane, n)
    frame.reserve_keys(chosen.count)
    Addition(frame, pane, n, chosen).write()


def _settled_rows(frame: FoldFrame, pane: CurrentPane, n: Var) -> SelectedRows:
    """Find the pane and the selected rows of a chunk: in one loop, where both read every row."""
    if frame.spec.time.implied:
        pane.cut(n)
        return select_chunk(frame, n)
    if frame.spec.where is None and frame.own is None:
        pane.check(n)
        return select_chunk(frame, n)
    pane.reach(n)
    watch = pane.watch_lanes()
    chosen = select_chunk(frame, n, watch)
    pane.decide(watch)
    return chosen


def _reduce_chunk(frame: FoldFrame, pane: CurrentPane, n: Var) -> None:
    if frame.spec.time.implied:
        pane.cut(n)
        ChunkReduction(frame, pane, n).write()
        return
    pane.check(n)
    with frame.k.if_(pane.single):
        ChunkReduction(frame, pane, n).write()
    with frame.k.else_():
        Addition(frame, pane, n, select_chunk(frame, n)).write()
