"""Emit a resampled signal: values on a new grid, between the samples of another."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

from penstock.algorithms.expressions.calendar import floor_div
from penstock.algorithms.expressions.cells import Cell, both, conjunction, narrow
from penstock.ir.signals.nodes import Object, Resample
from penstock.loop.nodes import F64, I64, Const, Value, const, maximum, minimum, select
from penstock.operators.signals.positional.kernels.writer import BlockWriter, Stored

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
