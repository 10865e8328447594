"""Emit the objects of a program inside a block, in order, and signals resampled to a new grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import gcd, lcm

from penstock.algorithms.expressions.calendar import floor_div
from penstock.algorithms.expressions.cells import Cell, both, conjunction, narrow
from penstock.algorithms.expressions.lowering import Lowering
from penstock.algorithms.monoids import Values
from penstock.analysis.positions import is_lenient, marks_of, result_step
from penstock.expr import nodes as ex
from penstock.ir.signals.nodes import Expression, Feedback, Object, Resample, Rolling, Sampled
from penstock.ir.signals.scope import reduced_types, scope
from penstock.loop.nodes import F64, I64, U8, Const, Value, Var, const, maximum, minimum, select
from penstock.loop.numbers import machine_type
from penstock.operators.signals.positional.kernels.plan import PositionNeed, no_text
from penstock.operators.signals.positional.kernels.states import prepare, release, states_at
from penstock.operators.signals.positional.kernels.writer import BlockWriter, Here, Stored, one_of

States = Sequence[Sequence[Values]]  # per group of reductions, the states of its partials


def write_sampled(writer: BlockWriter, this: Object, body: Sampled) -> None:
    """Compute the parts of samples that cannot be read in place: computed values, and validity bytes."""
    plan, k = writer.plan, writer.k
    given, need = writer.inputs[int(body.input)], plan.needs[this.name]
    computed = [column for column in body.fields if plan.edge or not isinstance(column.expr, ex.Column)]
    null = [column for column in body.fields if column.name in plan.nulls[this.name]]
    if not computed and not null:
        return
    stored = Stored(
        {
            field.name: writer.array(1, need, machine_type(this.schema.field(field.name).type))
            for field in computed
        },
        {field.name: writer.array(1, need, U8) for field in null},
    )
    start, stop = writer.bounds(1, need)
    with k.for_(start, stop, "e", scalar=not computed) as entry:
        position = k.var("position", writer.position(entry))
        row, there = _row(writer, body, position)
        lowering = given.columns.lowering(row, writer.fail)
        for column in body.fields:
            if column in computed or column in null:
                _store_sample(writer, stored, column.name, entry, lowering.lower(column.expr), there)
    writer.stored[this.name] = stored


def _row(writer: BlockWriter, body: Sampled, position: Var) -> tuple[Var, Value | None]:
    """The row that holds at a position; on an edge, the nearest row and whether it holds."""
    given, k = writer.inputs[int(body.input)], writer.k
    if not writer.plan.edge:
        return k.var("row", position - given.base), None
    last = k.var("last", given.total - 1)
    there = (position >= 0) & (last >= 0)
    if body.hold.lasting is not None:
        there &= position < last + body.hold.lasting
    return k.var("row", maximum(minimum(position, last) - given.base, 0)), k.var("there", there)


def _store_sample(
    writer: BlockWriter, stored: Stored, name: str, entry: Value, cell: Cell, there: Value | None
) -> None:
    k, values, flags = writer.k, stored.values.get(name), stored.valid.get(name)
    if values is not None:
        k.store(values.buffer, values.place(entry), cell.value.to(values.buffer.type))
    if flags is not None:
        valid = cell.valid if there is None else narrow(cell.valid, there)
        k.store(flags.buffer, flags.place(entry), const(1, U8) if valid is None else valid.to(U8))


# --- expressions --------------------------------------------------------------------------------------------


def lowering_at(
    writer: BlockWriter,
    this: Object,
    body: Expression | Feedback,
    here: Here,
    states: States,
    own: dict[str, Cell],
) -> Lowering:
    """Lower fields over the accesses and reductions at a place."""
    plan = writer.plan

    def column(name: str) -> Cell:
        if name in own:
            return own[name]
        place, _, read = name.partition(".")
        access = body.accesses[int(place)]
        return writer.cell(access.source, read, writer.entry(here, plan.step(access.source), access.shift))

    reduced: dict[int, Cell] = {}
    for group, state in zip(plan.groups[this.name], states, strict=True):
        cells = group.cells(writer.k, state, writer.fail)
        reduced |= zip(group.places, cells, strict=True)
    return Lowering(
        writer.k,
        scope(body, plan.schemas, this.schema.types[0]),
        column,
        writer.fail,
        no_text,
        reduced=[reduced[i] for i in range(len(reduced))],
        reduced_types=reduced_types(body, plan.schemas),
    )


@contextmanager
def each_entry(
    writer: BlockWriter, this: Object, body: Expression | Feedback, need: PositionNeed, brief: bool = False
) -> Iterator[Here]:
    """Loop over the entries of an object; if it reads grids, over the stretches on which those are constant."""
    k, step = writer.k, writer.plan.step(this.name)
    start, stop = writer.bounds(step, need)
    if step > 1:
        with k.for_(start, stop, "window") as window:
            yield Here(step, window, k.var("grid", (window + writer.base(step)) * step))
        return
    stretch = _stretch(writer, body)
    if stretch == 0:
        with k.for_(start, stop, "e", brief=brief) as entry:
            yield Here(1, entry)
        return
    base = writer.base(1)
    with k.for_(
        (base + start).div(stretch), (base + stop + (stretch - 1)).div(stretch), "s", scalar=True
    ) as number:
        grid = k.var("grid", number * stretch)
        begin = k.var("begin", maximum(start, grid - base))
        end = k.var("end", minimum(stop, grid + stretch - base))
        with k.for_(begin, end, "e") as entry:
            yield Here(1, entry, grid)


def _stretch(writer: BlockWriter, body: Expression | Feedback) -> int:
    """The number of positions on which all accesses on grids are constant; 0 if there are none."""
    steps = writer.plan.positions.steps
    read = [(steps[access.source], access.shift) for access in body.accesses]
    read += [(result_step(reduction, steps), reduction.shift) for reduction in body.reductions]
    return gcd(*(length for step, shift in read if step > 1 for length in (step, shift)))


def write_expression(writer: BlockWriter, this: Object, body: Expression, target: Stored | None) -> None:
    """Compute the fields, entry by entry, into memory or into the result."""
    plan, need = writer.plan, writer.plan.needs[this.name]
    for group in plan.groups[this.name]:
        prepare(writer, group)
    stored = target or writer.room(this, need)
    marks = writer.array(plan.step(this.name), need, U8) if _has_marks(writer, this) else None
    with each_entry(writer, this, body, need, brief=writer.brief and target is None) as here:
        states = [states_at(writer, group, here) for group in plan.groups[this.name]]
        lowering = lowering_at(writer, this, body, here, states, {})
        begun = _begun(writer, this, here)
        for column in plan.fields[this.name]:
            cell = lowering.lower_as(column.expr, this.schema.field(column.name).type)
            cell = cell if begun is None else Cell(cell.value, narrow(cell.valid, begun))
            writer.store(this, stored, column.name, here.entry, cell)
        if marks is not None:
            mark = _mark(writer, this, body, here, states)
            writer.k.store(
                marks.buffer, marks.place(here.entry), const(1, U8) if mark is None else mark.to(U8)
            )
    for group in plan.groups[this.name]:
        release(writer, group)
    if target is None:
        writer.stored[this.name] = Stored(stored.values, stored.valid, marks)


def _begun(writer: BlockWriter, this: Object, here: Here) -> Value | None:
    """Whether a lenient expression has begun: at the first sample of the input, or of its operands. None off edges."""
    program = writer.plan.positions.program
    if not writer.plan.edge or not is_lenient(program, this):
        return None
    return writer.position(here.entry) >= min(marks_of(program, this.name)[0], 0)


# --- samples on grids ---------------------------------------------------------------------------------------


def _has_marks(writer: BlockWriter, this: Object) -> bool:
    """Whether samples must be recorded: where windows may be empty and the samples are counted."""
    positions = writer.plan.positions
    counted = this.name in positions.marking and this.name in positions.gridded
    return counted and not writer.plan.is_always_there(this.name)


def _mark(writer: BlockWriter, this: Object, body: Expression, here: Here, states: States) -> Value | None:
    """Whether any operand has a sample here; a window has one where it contains a sample."""
    plan = writer.plan
    found = [
        _on_grid(
            writer,
            here,
            plan.step(access.source),
            access.shift,
            _read_mark(writer, here, access.source, access.shift),
        )
        for access in body.accesses
    ]
    for group, state in zip(plan.groups[this.name], states, strict=True):
        if isinstance(group.span, Rolling):
            mark = _read_mark(writer, here, group.source, group.shift)
        else:
            mark = None if group.sampled else state[0][0].ne(0)
        found.append(_on_grid(writer, here, group.every, group.shift, mark))
    return one_of(found)


def _read_mark(writer: BlockWriter, here: Here, source: str, shift: int) -> Value | None:
    return writer.mark(source, writer.entry(here, writer.plan.step(source), shift))


def _on_grid(writer: BlockWriter, here: Here, step: int, shift: int, mark: Value | None) -> Value | None:
    """Restrict a window's mark to the first position of the window."""
    if step == here.step:
        return mark
    begins = (writer.base(1) + here.entry - shift).rem(step).eq(0)
    return begins if mark is None else mark & begins


# A longer pattern is computed step by step instead of being unrolled.
_LONGEST_PATTERN = 64
_VECTOR = 4  # from this number of outputs on, a pattern fills a vector


@dataclass(frozen=True)
class Pattern:
    """The periodic arrangement of new samples among old ones: `outputs` new samples per `positions` old ones."""

    every: int
    period: int
    start: int

    @property
    def outputs(self) -> int:
        return lcm(self.every, self.period) // self.every

    @property
    def positions(self) -> int:
        return lcm(self.every, self.period) // self.period

    def place(self, number: int) -> tuple[int, int]:
        """The position before the n-th new sample, and the distance in ticks."""
        return divmod(number * self.every - self.start, self.period)

    def first_at(self, position: Value) -> Value:
        """The number of the first new sample from a position on."""
        return floor_div(position * self.period + (self.start + self.every - 1), const(self.every, I64))


@dataclass(frozen=True)
class Alike:
    """Conditions that are always true and always false, but opaque to LLVM: all points of a pattern get the same shape.

    The points then become one vector. Both are written as "less": LLVM rewrites negations and other
    comparisons, which would change the shape of the points.
    """

    yes: Value
    no: Value


def write_resample(writer: BlockWriter, this: Object, body: Resample, target: Stored) -> None:
    """Interpolate: whole patterns unrolled, the rest of a block step by step."""
    k, time = writer.k, writer.plan.positions.time
    assert time.period is not None
    pattern = Pattern(body.every, time.period, time.start)
    lo = k.var("first_out", pattern.first_at(writer.lo))
    begin = k.var("begin", pattern.first_at(writer.start))
    end = k.var("end", pattern.first_at(writer.start + writer.count))
    if pattern.outputs > _LONGEST_PATTERN:
        _follow(writer, this, body, target, pattern, begin, end, lo)
        return
    size = const(pattern.outputs, I64)
    first = k.var("whole", -floor_div(-begin, size))
    last = k.var("whole_end", maximum(floor_div(end, size), first))
    _follow(writer, this, body, target, pattern, begin, minimum(end, first * pattern.outputs), lo)
    wide = body.method == "linear" and pattern.outputs >= _VECTOR
    given = writer.inputs[0]
    alike = (
        Alike(k.var("yes", given.base < given.total), k.var("no", given.total < given.base)) if wide else None
    )
    with k.for_(first, last, "q", scalar=wide) as q:
        base = k.var("entry", q * pattern.positions - writer.start)
        for number in range(pattern.outputs):
            before, rest = pattern.place(number)
            share = const(rest / pattern.period, F64)
            place = q * pattern.outputs + number - lo
            _write(writer, this, body, target, base + before, share, place, alike)
    _follow(writer, this, body, target, pattern, maximum(last * pattern.outputs, begin), end, lo)


def _follow(
    writer: BlockWriter,
    this: Object,
    body: Resample,
    target: Stored,
    pattern: Pattern,
    begin: Value,
    end: Value,
    lo: Value,
) -> None:
    """Compute new samples one by one, with an incremental position."""
    k = writer.k
    ticks = k.var("ticks", k.var("begin", begin) * pattern.every - pattern.start)
    before = k.var("before", floor_div(ticks, const(pattern.period, I64)))
    rest = k.var("rest", ticks - before * pattern.period)
    whole, part = divmod(pattern.every, pattern.period)
    with k.for_(begin, end, "j", scalar=True) as j:
        share = k.var("share", rest.to(F64).div(const(float(pattern.period), F64)))
        _write(writer, this, body, target, k.var("entry", before - writer.start), share, j - lo)
        k.set(rest, rest + part)
        over = k.var("over", rest >= pattern.period)
        k.set(before, before + whole + over.to(I64))
        k.set(rest, select(over, rest - pattern.period, rest))


def _write(
    writer: BlockWriter,
    this: Object,
    body: Resample,
    target: Stored,
    entry: Value,
    share: Value,
    place: Value,
    alike: Alike | None = None,
) -> None:
    for name in this.schema.names:
        first = writer.cell(body.source, name, entry)
        second = writer.cell(body.source, name, entry + 1)
        cell = first if body.method == "last" else _between(first, second, share, alike)
        if writer.plan.edge:
            cell = Cell(cell.value, narrow(cell.valid, _between_marks(writer, body.source, entry, share)))
        writer.store(this, target, name, place, cell)


def _between(first: Cell, second: Cell, share: Value, alike: Alike | None) -> Cell:
    """Interpolate linearly between two samples; on a sample, return the sample."""
    a, b = first.value.to(F64), second.value.to(F64)
    line = a + (b - a) * share
    if isinstance(share, Const):
        there = share.value == 0.0
        cell = first if there else Cell(line, both(first, second))
        return cell if alike is None else Cell(select(alike.yes if there else alike.no, a, line), cell.valid)
    on_it = share.eq(0.0)
    valid = first.valid if second.valid is None else conjunction(first.valid, second.valid | on_it)
    return Cell(select(on_it, a, line), valid)


def _between_marks(writer: BlockWriter, source: str, entry: Value, share: Value) -> Value:
    """Whether there is a sample at or before, and one at or after."""
    here, then = writer.mark(source, entry), writer.mark(source, entry + 1)
    assert here is not None and then is not None
    return here & (then | share.eq(0.0))
