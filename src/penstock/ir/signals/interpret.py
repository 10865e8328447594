"""Evaluate a temporal program tick by tick: the reference semantics of signals.

For one key, the interpreter evaluates each object at every instant: its value, and whether the instant is one of
its marks. It visits every tick between the first and the last relevant one, so use it on small inputs only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from typing import Any

import pyarrow as pa

from penstock.errors import SignalError
from penstock.expr.aggregates import reduce
from penstock.expr.comparison import equality_key
from penstock.expr.evaluate import evaluator
from penstock.expr.nodes import Aggregate, Column
from penstock.expr.typing import type_of
from penstock.ir.signals.nodes import (
    DURATION,
    END,
    START,
    Chop,
    Expression,
    Feedback,
    Last,
    Object,
    Per,
    Program,
    Resample,
    Rolling,
    SampleAndHold,
    Sampled,
    SelfReference,
    Window,
    WindowReduction,
    at,
    past,
)
from penstock.ir.signals.scope import is_lenient, reach, reduced_types, scope

Row = dict[str, Any]
Samples = Mapping[str, Sequence["SignalSample"]]


@dataclass(frozen=True, slots=True)
class SignalSample:
    """One row of an input: its time, its end if the row has one, and its columns."""

    time: int
    until: int | None
    row: Row


def intervals(program: Program, key: Row, samples: Samples) -> list[Row]:
    """List the intervals on which the output is constant, for the samples of one key, in order.

    Equal values may differ in their bits (-0.0 and 0.0); an interval has the value at its start. If the program
    is in `pieces`, every mark of the output begins another interval.

    `samples` maps the name of each Sampled object to its samples.
    """
    signals = KeySignals(program, samples)
    found: list[Row] = []
    for t in signals.ticks:
        value = signals.value(program.output, t)
        last = found[-1] if found and found[-1][END] is None else None
        cut = program.pieces and signals.is_mark(program.output, t)
        if last is not None and (cut or not _same(last, value)):
            last[END] = t
            last = None
        if last is None and defined(value):
            found.append({START: t, END: None, **key, **value})
    return found


def defined(value: Row) -> bool:
    """Return whether any column is not null."""
    return any(part is not None for part in value.values())


def _same(interval: Row, value: Row) -> bool:
    """Return whether two values are equal: NaN equals NaN, and -0.0 equals 0.0."""
    return all(equality_key(interval[name]) == equality_key(part) for name, part in value.items())


@dataclass
class KeySignals:
    """The objects of a program, evaluated for one key."""

    program: Program
    samples: Samples
    ticks: range = field(init=False)
    _known: dict[str, dict[int, Row]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        times = [
            t for several in self.samples.values() for sample in several for t in (sample.time, sample.until)
        ]
        known = [t for t in times if t is not None]
        far = reach(self.program)
        self.ticks = range(min(known) - far, max(known) + far + 1) if known else range(0)
        self.schemas = {obj.name: obj.schema for obj in self.program.objects}
        self.beginning = min(
            (sample.time for several in self.samples.values() for sample in several), default=0
        )
        self.value = cache(self._value)
        self.is_mark = cache(self._is_mark)
        self.samples_of = cache(self._samples_of)
        self.has_begun = cache(self._has_begun)
        self.last_event = cache(self._last_event)

    def _value(self, name: str, t: int) -> Row:
        this = self.program[name]
        match this.body:
            case Sampled() as body:
                return _held(this, body, self.samples[name], t)
            case Expression() as body:
                return self._fields(this, body, t, ()) if self.has_begun(name, t) else _nothing(this)
            case Feedback() as body:
                return self._feedback(this, t)
            case Resample() as body:
                return self._resampled(body, t)
            case Chop() as body:
                return self._chopped(this, body, t)
            case SampleAndHold(source=source, clock=clock):
                last = max((s for s in self.samples_of(clock) if s <= t), default=None)
                return _nothing(this) if last is None else self.value(source, last)

    def _is_mark(self, name: str, t: int) -> bool:
        body = self.program[name].body
        match body:
            case Sampled():
                return any(sample.time == t for sample in self.samples[name])
            case (
                Expression(accesses=accesses, reductions=reductions)
                | Feedback(accesses=accesses, reductions=reductions)
            ):
                return any(self.is_mark(access.source, t - access.shift) for access in accesses) or any(
                    self._marks_of(reduction, t - reduction.shift) for reduction in reductions
                )
            case Resample(every=every):
                return t % every == 0 and defined(self.value(name, t))
            case Chop(durations=durations):
                return self._is_piece(body, t) if durations else self._is_cut(body, t)
            case SampleAndHold(clock=clock):
                return t in self.samples_of(clock)

    def _has_begun(self, name: str, t: int) -> bool:
        """Return whether an input of the object has begun by t, or, for a lenient object, any sample of the key."""
        body = self.program[name].body
        match body:
            case Sampled():
                return any(sample.time <= t for sample in self.samples[name])
            case Expression() if t >= self.beginning and is_lenient(body, self.schemas):
                return True
            case Expression(accesses=accesses, reductions=reductions):
                return any(self.has_begun(access.source, t - access.shift) for access in accesses) or any(
                    self._has_entered(reduction, t - reduction.shift) for reduction in reductions
                )
            case Chop(source=source):
                return self.has_begun(source, t)
            case Resample() | Feedback():
                return any(self.is_mark(name, s) for s in self.ticks if s <= t)
            case SampleAndHold(clock=clock):
                return any(s <= t for s in self.samples_of(clock))

    def _has_entered(self, over: WindowReduction, t: int) -> bool:
        match over.span:
            case Window(every=every):
                return any(s < t - t % every for s in self._sample_times(over.source))
            case Per(size=size):
                return any(s - s % size <= t for s in self._sample_times(over.source))
            case _:
                return self.has_begun(over.source, t)

    def _sample_times(self, name: str) -> list[int]:
        body = self.program[name].body
        if isinstance(body, Sampled) and _is_multiset(body):
            return [sample.time for sample in self.samples[name] if defined(sample.row)]
        return self.samples_of(name)

    def _samples_of(self, name: str) -> list[int]:
        return [t for t in self.ticks if self.is_mark(name, t) and defined(self.value(name, t))]

    # -- expressions ---------------------------------------------------------------------------------

    def _fields(self, this: Object, body: Expression | Feedback, t: int, own: Sequence[Any]) -> Row:
        names = scope(body, self.schemas, this.schema.types[0])
        row = {
            at(i, name): value
            for i, access in enumerate(body.accesses)
            for name, value in self.value(access.source, t - access.shift).items()
        } | {past(i): value for i, value in enumerate(own)}
        reduced = tuple(self._reduced(reduction, t - reduction.shift) for reduction in body.reductions)
        types = reduced_types(body, self.schemas)
        return {column.name: evaluator(column.expr, names, types)(row, reduced) for column in body.fields}

    def _reduced(self, over: WindowReduction, t: int) -> Any:
        schema = self.program[over.source].schema
        rows = self._counted(over, t)
        if not rows:
            return None
        if over.where is not None:
            rows = [row for row in rows if evaluator(over.where, schema)(row, ()) is True]
        args = [tuple(evaluator(arg, schema)(row, ()) for arg in over.args) for row in rows]
        return reduce(over.function, args, [type_of(arg, schema) for arg in over.args], over.options)

    def _counted(self, over: WindowReduction, t: int) -> list[Row]:
        """List the samples in a span; overlapping intervals without `resolve` count separately."""
        body = self.program[over.source].body
        if isinstance(body, Sampled) and _is_multiset(body):
            rows = [sample for sample in self.samples[over.source] if defined(sample.row)]
            inside = set(_covered(over, t, [record.time for record in rows]))
            return [record.row for record in rows if record.time in inside]
        return [self.value(over.source, s) for s in _covered(over, t, self.samples_of(over.source))]

    def _marks_of(self, over: WindowReduction, t: int) -> bool:
        match over.span:
            case Window(every=every) | Per(size=every):
                return t % every == 0 and bool(self._counted(over, t))
            case _:
                return self.is_mark(over.source, t)

    # -- feedback ------------------------------------------------------------------------------------

    def _feedback(self, this: Object, t: int) -> Row:
        """Return the result at the last mark up to t; the own results it reads are earlier."""
        results = self._results(this.name)
        last = max((mark for mark in results if mark <= t), default=None)
        return _nothing(this) if last is None else results[last]

    def _results(self, name: str) -> dict[int, Row]:
        """Compute the results at all marks in order, once per object."""
        this = self.program[name]
        body = this.body
        assert isinstance(body, Feedback)
        if name not in self._known:
            results = self._known[name] = {}
            for t in self.ticks:
                if self.is_mark(name, t):
                    own = [
                        self._past(self_reference, t, results, body.initial) for self_reference in body.own
                    ]
                    results[t] = self._fields(this, body, t, own)
        return self._known[name]

    @staticmethod
    def _past(own: SelfReference, t: int, results: dict[int, Row], initial: float) -> Any:
        before = [s for s in results if s <= t - own.shift]
        if own.back:
            before = [s for s in results if s < t and defined(results[s])]
        place = own.back or 1
        return initial if len(before) < place else next(iter(results[before[-place]].values()))

    # -- resampling ----------------------------------------------------------------------------------

    def _resampled(self, body: Resample, t: int) -> Row:
        this = self.program[body.source]
        grid = t - t % body.every
        marks = [s for s in self.ticks if self.is_mark(body.source, s)]
        before = max((s for s in marks if s <= grid), default=None)
        after = min((s for s in marks if s >= grid), default=None)
        if before is None:
            return _nothing(this)
        if body.method == "last":
            far = body.max_gap is not None and grid - before > body.max_gap
            known = not far and self._is_underway(body.source, grid)
            return self.value(body.source, grid) if known else _nothing(this)
        if after is None:
            return _nothing(this)
        first, second = self.value(body.source, before), self.value(body.source, after)
        if body.max_gap is not None and after - before > body.max_gap:
            return _nothing(this)
        share = 0.0 if after == before else (grid - before) / (after - before)
        return {name: _between(first[name], second[name], share) for name in first}

    def _chopped(self, this: Object, body: Chop, t: int) -> Row:
        value = self.value(body.source, t)
        if not body.durations:
            return value
        if not defined(value):
            return value | {DURATION: None}
        cuts = [s for s in self.ticks if self._is_piece(body, s)]
        since = max((s for s in cuts if s <= t), default=self.ticks[0])
        until = min((s for s in cuts if s > t), default=None)
        return value | {DURATION: None if until is None else until - since}

    def _is_cut(self, body: Chop, t: int) -> bool:
        on_grid = body.every is not None and t % body.every == 0 and self._is_underway(body.source, t)
        marked = body.marks is not None and self.is_mark(body.marks.source, t - body.marks.shift)
        return on_grid or marked or self.is_mark(body.source, t)

    def _is_underway(self, name: str, t: int) -> bool:
        """Return whether an object is defined at t, and its last mark or change is at or after t."""
        return defined(self.value(name, t)) and t <= self.last_event(name)

    def _last_event(self, name: str) -> int:
        """Return the last instant at which an object is marked or its value changes."""
        return max((t for t in self.ticks if self.is_mark(name, t) or self._changes(name, t)), default=0)

    def _changes(self, name: str, t: int) -> bool:
        return not _same(self.value(name, t - 1), self.value(name, t))

    def _is_piece(self, body: Chop, t: int) -> bool:
        return self._is_cut(body, t) or self._changes(body.source, t)


def _covered(over: WindowReduction, t: int, samples: Iterable[int]) -> list[int]:
    match over.span:
        case Rolling(size=size):
            return [s for s in samples if t - size < s <= t]
        case Last(rows=rows):
            return [s for s in samples if s <= t][-rows:]
        case Window(size=size, every=every):
            grid = t - t % every
            return [s for s in samples if grid - size <= s < grid]
        case Per(size=size):
            grid = t - t % size
            return [s for s in samples if grid <= s < grid + size]


def _held(this: Object, body: Sampled, samples: Sequence[SignalSample], t: int) -> Row:
    """Return the value that holds at an instant; of several samples the last, or their `resolve` reduction."""
    starts = sorted({sample.time for sample in samples})
    following = {start: after for start, after in zip_longest(starts, starts[1:]) if start is not None}

    def until(sample: SignalSample) -> int | None:
        return _end(sample, body, following[sample.time])

    holding = [
        sample for sample in samples if sample.time <= t and ((end := until(sample)) is None or t < end)
    ]
    if not holding:
        return _nothing(this)
    latest = [sample for sample in holding if sample.time == holding[-1].time]
    if body.hold.until is not None and len(latest) < len(holding) and body.hold.resolve is None:
        raise SignalError(OVERLAP)
    return _resolved(body.hold.resolve, [sample.row for sample in holding], this.schema)


def _is_multiset(body: Sampled) -> bool:
    """Return whether several samples may hold at once and count separately."""
    return body.hold.until is not None and body.hold.resolve is None


OVERLAP = (
    "two intervals of one key overlap, so that the signal has two values at once; "
    "say which counts with resolve=, such as resolve='last' or resolve='sum'"
)


def _end(sample: SignalSample, body: Sampled, following: int | None) -> int | None:
    match body.hold:
        case _ if body.hold.until is not None:
            return sample.until
        case _ if body.hold.lasting is not None:
            last = sample.time + body.hold.lasting
            return last if following is None else min(last, following)
        case _:
            return following


def _resolved(how: str | None, rows: Sequence[Row], schema: pa.Schema) -> Row:
    if how is None or how == "last":
        return rows[-1]
    return {column.name: _joined(how, [row[column.name] for row in rows], column) for column in schema}


def _joined(how: str, values: Sequence[Any], column: pa.Field) -> Any:
    made = reduce(how, [(value,) for value in values], [column.type], ())
    given = type_of(Aggregate(how, (Column(column.name),)), pa.schema([column]))
    assert given == column.type
    return made


def _nothing(this: Object) -> Row:
    return dict.fromkeys(this.schema.names)


def _between(first: float | None, second: float | None, share: float) -> float | None:
    if first is None or second is None:
        return None
    return first if share == 0.0 else first + (second - first) * share
