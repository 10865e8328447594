"""Emit signals that read past results: a sequential loop over positions, with the last results in variables or a ring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.algorithms.expressions.cells import Cell, choose
from penstock.analysis.positions import marks_of
from penstock.ir.signals.nodes import Feedback, Object, SelfReference, past
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, U8, Buffer, Value, Var, const, select
from penstock.loop.numbers import machine_type
from penstock.operators.signals.positional.kernels.objects import lowering_at
from penstock.operators.signals.positional.kernels.plan import PositionNeed
from penstock.operators.signals.positional.kernels.states import prepare, release, states_at
from penstock.operators.signals.positional.kernels.writer import Array, BlockWriter, Here, Stored


class Recent(Protocol):
    """Past results by number of samples; marks without a result are not counted."""

    def ago(self, back: int) -> Value:
        """Return the result `back` samples ago."""

    def push(self, value: Value, defined: Value | None) -> None:
        """Append a result, if it is defined."""

    def leave(self) -> None:
        """Store the results for the next block, the latest last."""


def recent_results(k: KernelBuilder, buffer: Buffer, many: int, in_registers: int) -> Recent:
    """Load the results of previous blocks from the front of a buffer."""
    if many > in_registers:
        return _Ring(k, buffer, many, k.var("end", 0, I64))
    return _Registers(k, buffer, [k.var("past", buffer[many - back]) for back in range(1, many + 1)])


@dataclass(frozen=True, slots=True)
class _Registers:
    k: KernelBuilder
    buffer: Buffer
    values: list[Var]  # latest first

    def ago(self, back: int) -> Value:
        return self.values[back - 1]

    def push(self, value: Value, defined: Value | None) -> None:
        newer = [value, *self.values][: len(self.values)]
        for variable, new in reversed(list(zip(self.values, newer, strict=True))):
            self.k.set(variable, new if defined is None else select(defined, new, variable))

    def leave(self) -> None:
        for back, variable in enumerate(self.values, 1):
            self.k.store(self.buffer, len(self.values) - back, variable)


@dataclass(frozen=True, slots=True)
class _Ring:
    k: KernelBuilder
    buffer: Buffer
    size: int
    end: Var  # the index of the oldest result, which the next one overwrites

    def ago(self, back: int) -> Value:
        place = self.k.var("ago", self.end - back)
        return self.buffer[select(place < 0, place + self.size, place)]

    def push(self, value: Value, defined: Value | None) -> None:
        k, oldest = self.k, self.buffer[self.end]
        k.store(self.buffer, self.end, value if defined is None else select(defined, value, oldest))
        step = const(1, I64) if defined is None else defined.to(I64)
        after = k.var("after", self.end + step)
        k.set(self.end, select(after >= self.size, const(0, I64), after))

    def leave(self) -> None:
        """Rotate the ring by three reversals, so that its oldest result comes first."""
        self._reverse(const(0, I64), self.end)
        self._reverse(self.end, const(self.size, I64))
        self._reverse(const(0, I64), const(self.size, I64))

    def _reverse(self, begin: Value, end: Value) -> None:
        k = self.k
        with k.for_(0, (end - begin).div(2), "j", scalar=True) as j:
            low, high = k.var("low", begin + j), k.var("high", end - 1 - j)
            one, other = k.var("one", self.buffer[low]), k.var("other", self.buffer[high])
            k.store(self.buffer, low, other)
            k.store(self.buffer, high, one)


_IN_REGISTERS = 8  # most past results in registers; if more are read, all are in a ring buffer


@dataclass(frozen=True, slots=True)
class FeedbackHistory:
    """The results that persist across blocks: parameters, and the number of entries kept before the next block.

    The last `recent` defined results come first, the latest last; a mark without a result does not count.
    """

    values: Array
    valid: Array
    kept: int
    recent: int


def declare_history(writer: BlockWriter, this: Object, body: Feedback) -> FeedbackHistory:
    """Declare the memory of past results. It persists across calls, so it is not pooled."""
    k, need = writer.k, history_need(writer.plan.needs[this.name], body)
    machine = machine_type(this.schema.types[0])
    assert machine is not None
    values, valid = k.buffer("history", machine), k.buffer("history_valid", U8)
    recent = max(self_reference.back for self_reference in body.own)
    head = recent + need.past
    return FeedbackHistory(Array(values, head), Array(valid, head), head + need.future, recent)


def history_need(need: PositionNeed, body: Feedback) -> PositionNeed:
    """The positions that readers need, those the feedback reads by time, and the result that is held."""
    furthest = max(1, *(self_reference.shift for self_reference in body.own))
    return PositionNeed(max(need.past, furthest - need.future), need.future)


def carry(writer: BlockWriter, name: str, history: FeedbackHistory) -> None:
    """Move the results that the next block reads to the front."""
    k = writer.k
    moved = [history.values.buffer, *([history.valid.buffer] if writer.plan.nulls[name] else [])]
    with k.for_(history.recent, history.kept, "j") as j:
        for buffer in moved:
            k.store(buffer, j, buffer[j + writer.count])


def write_feedback(writer: BlockWriter, this: Object, body: Feedback, history: FeedbackHistory) -> None:
    """Compute results one by one from those of the previous block; they stay in memory from block to block."""
    for group in writer.plan.groups[this.name]:
        prepare(writer, group)
    need = writer.plan.needs[this.name]
    name = this.schema.names[0]
    k, values = writer.k, history.values
    valid = history.valid if name in writer.plan.nulls[this.name] else None
    start = const(need.future, I64)
    recent = recent_results(k, values.buffer, history.recent, _IN_REGISTERS)
    held, held_valid = _last(k, values, valid, start)
    with k.for_(start, writer.count + need.future, "e") as entry:
        own = {
            past(i): _own(self_reference, entry, recent, values, valid)
            for i, self_reference in enumerate(body.own)
        }
        states = [states_at(writer, group, Here(1, entry)) for group in writer.plan.groups[this.name]]
        lowering = lowering_at(writer, this, body, Here(1, entry), states, own)
        cell = lowering.bind(lowering.lower_as(writer.plan.fields[this.name][0].expr, this.schema.types[0]))
        mark, defined = writer.mark(this.name, entry), cell.valid
        if mark is not None:
            # Between and after its samples a feedback keeps its last result.
            at_mark = k.var("mark", mark)
            defined = at_mark if cell.valid is None else at_mark & cell.valid
            cell = choose(at_mark, cell, Cell(held, None if held_valid is None else held_valid.ne(0)))
        recent.push(cell.value, None if defined is None else k.var("defined", defined))
        _remember(k, values, valid, entry, cell, (held, held_valid))
    recent.leave()
    for group in writer.plan.groups[this.name]:
        release(writer, group)
    writer.stored[this.name] = Stored(
        {name: values}, {} if valid is None else {name: _shown(writer, this, valid)}
    )


def _last(k: KernelBuilder, values: Array, valid: Array | None, start: Value) -> tuple[Var, Var | None]:
    """The result that holds when a block begins."""
    return k.var("held", values[start - 1]), None if valid is None else k.var("held_ok", valid[start - 1])


def _own(own: SelfReference, entry: Value, recent: Recent, values: Array, valid: Array | None) -> Cell:
    if own.back:
        return Cell(recent.ago(own.back))
    return Cell(values[entry - own.shift], None if valid is None else valid[entry - own.shift].ne(0))


def _remember(
    k: KernelBuilder,
    values: Array,
    valid: Array | None,
    entry: Value,
    cell: Cell,
    held: tuple[Var, Var | None],
) -> None:
    k.store(values.buffer, values.place(entry), cell.value)
    k.set(held[0], cell.value)
    if valid is None or held[1] is None:
        return
    flag = k.var("flag", const(1, U8) if cell.valid is None else cell.valid.to(U8))
    k.store(valid.buffer, valid.place(entry), flag)
    k.set(held[1], flag)


def _shown(writer: BlockWriter, this: Object, valid: Array) -> Array:
    """The validity for readers: false before the first sample, where the feedback itself reads `initial`."""
    if not writer.plan.edge:
        return valid
    k, need = writer.k, writer.plan.needs[this.name]
    first, _ = marks_of(writer.plan.positions.program, this.name)
    shown = writer.array(1, need, U8)
    start, stop = writer.bounds(1, need)
    with k.for_(start, stop, "e") as entry:
        there = valid[entry].ne(0) & (writer.position(entry) >= first)
        k.store(shown.buffer, shown.place(entry), there.to(U8))
    return shown
