"""Write signals that read their own past: one position after the other, whatever else they read being vectors."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.kernels.cells import Cell
from penstock.loop.nodes import I64, U8, Value, Var, const
from penstock.lower.machine import machine_type
from penstock.lower.scope import choose
from penstock.lower.signals.dense.bodies import lowering_at
from penstock.lower.signals.dense.memory import Array
from penstock.lower.signals.dense.plan import Need
from penstock.lower.signals.dense.positions import marks_of
from penstock.lower.signals.dense.states import prepare, release, states_at
from penstock.lower.signals.dense.writer import Here, Stored, Writer
from penstock.temporal.nodes import Feedback, Object, past

_IN_REGISTERS = 8  # so many past results are kept there; older ones are read from memory


@dataclass(frozen=True, slots=True)
class _Past:
    """Past results of a feedback: the latest ones in variables."""

    values: list[Var]
    valid: list[Var]


@dataclass(frozen=True, slots=True)
class History:
    """The results that outlive a block: parameters, and how many entries before the next block's first are kept."""

    values: Array
    valid: Array
    kept: int


def declare_history(writer: Writer, this: Object, body: Feedback) -> History:
    """Declare the memory of past results. It outlives calls, so nobody else uses it."""
    k, need = writer.k, history_need(writer.plan.needs[this.name], body)
    machine = machine_type(this.schema.types[0])
    assert machine is not None
    values, valid = k.buffer("history", machine), k.buffer("history_valid", U8)
    return History(Array(values, need.past), Array(valid, need.past), need.past + need.future)


def history_need(need: Need, body: Feedback) -> Need:
    """What others read of the results, and what it reads of them itself."""
    furthest = max(each.back for each in body.own)
    return Need(max(need.past, furthest - need.future), need.future)


def carry(writer: Writer, name: str, history: History) -> None:
    """Move the results that the next block reads to where it reads them."""
    k = writer.k
    moved = [history.values.buffer, *([history.valid.buffer] if writer.plan.nulls[name] else [])]
    with k.for_(0, history.kept, "j") as j:
        for buffer in moved:
            k.store(buffer, j, buffer[j + writer.count])


def write_feedback(writer: Writer, this: Object, body: Feedback, history: History) -> None:
    """Go on from the results of the block before, one by one; they stay in memory from block to block."""
    for group in writer.plan.groups[this.name]:
        prepare(writer, group)
    need = writer.plan.needs[this.name]
    name = this.schema.names[0]
    k, values = writer.k, history.values
    valid = history.valid if name in writer.plan.nulls[this.name] else None
    start = const(need.future, I64)
    recent = _recent(writer, body, start, values, valid)
    with k.for_(start, writer.count + need.future, "e") as entry:
        own = {past(i): _own(each.back, entry, recent, values, valid) for i, each in enumerate(body.own)}
        states = [states_at(writer, group, Here(1, entry)) for group in writer.plan.groups[this.name]]
        lowering = lowering_at(writer, this, body, Here(1, entry), states, own)
        cell = lowering.bind(lowering.lower_as(writer.plan.fields[this.name][0].expr, this.schema.types[0]))
        mark = writer.mark(this.name, entry)
        if mark is not None:
            # Between and after its samples a feedback keeps its last result.
            cell = choose(k.var("mark", mark), cell, _own(1, entry, recent, values, valid))
        _remember(writer, recent, values, valid, entry, cell)
    for group in writer.plan.groups[this.name]:
        release(writer, group)
    writer.stored[this.name] = Stored(
        {name: values}, {} if valid is None else {name: _shown(writer, this, valid)}
    )


def _shown(writer: Writer, this: Object, valid: Array) -> Array:
    """To others, results begin with the first sample; the feedback itself reads `initial` before that."""
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


def _recent(writer: Writer, body: Feedback, start: Value, values: Array, valid: Array | None) -> _Past:
    k = writer.k
    depth = min(max(1, *(each.back for each in body.own)), _IN_REGISTERS)
    kept = [k.var("past", values[start - back]) for back in range(1, depth + 1)]
    flags = [] if valid is None else [k.var("past_ok", valid[start - back]) for back in range(1, depth + 1)]
    return _Past(kept, flags)


def _own(back: int, entry: Value, recent: _Past, values: Array, valid: Array | None) -> Cell:
    if back <= len(recent.values):
        flag = recent.valid[back - 1].ne(0) if recent.valid else None
        return Cell(recent.values[back - 1], flag)
    return Cell(values[entry - back], None if valid is None else valid[entry - back].ne(0))


def _remember(
    writer: Writer, recent: _Past, values: Array, valid: Array | None, entry: Value, cell: Cell
) -> None:
    k = writer.k
    k.store(values.buffer, values.place(entry), cell.value)
    for newer, older in zip(reversed(recent.values[:-1]), reversed(recent.values[1:]), strict=True):
        k.set(older, newer)
    k.set(recent.values[0], cell.value)
    if valid is None:
        return
    flag = k.var("flag", const(1, U8) if cell.valid is None else cell.valid.to(U8))
    k.store(valid.buffer, valid.place(entry), flag)
    for newer, older in zip(reversed(recent.valid[:-1]), reversed(recent.valid[1:]), strict=True):
        k.set(older, newer)
    k.set(recent.valid[0], flag)
