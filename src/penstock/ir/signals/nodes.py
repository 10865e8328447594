"""The temporal language (TiLT, section 4.1): values that vary over time, shared by the plan and the IR.

    program   ::= object* "out" name            evaluated per key; all objects share `keys` and `time`;
                                                with `pieces`, intervals also end at the output's marks
    object    ::= "~"name = body                each name is defined once, before its uses
    body      ::= Sampled(input, keys, fields, hold)
                                                samples of an input stream, each holding its values for a time
                | Expression(accesses, reductions, fields)
                                                at every instant t: fields over accesses and reductions
                | Feedback(accesses, reductions, fields, own, initial)
                                                the same, evaluated at marks, and reading its own past results
                | Resample(source, every, method, max_gap)
                                                a sample at every multiple of `every`, interpolated or held
                | Chop(source, every, marks, durations)
                                                the same value, also sampled at every multiple of `every` and at
                                                the shifted samples of `marks`; optionally with each piece's duration
                | SampleAndHold(source, clock)  its value at the last sample of ~clock, held until the next
    access    ::= At(source, shift)             ~source[t - shift]
    reduction ::= WindowReduction(source, function, args, where, options, span, shift)
                                                ⊕(function, ~source[span before t - shift])
    span      ::= Rolling(size)                 the samples in (t - size, t]
                | Last(rows)                    the last `rows` samples up to t
                | Window(size, every)           the samples in [g - size, g), g being t rounded down to every
                | Per(size)                     the samples in [g, g + size), g being t rounded down to size
    own       ::= SelfReference(back) | SelfReference(shift)
                                                the defined result `back` samples ago, or the result at t - shift
    hold      ::= Hold(lasting, until, resolve) until the key's next sample and at most `lasting` ticks, or until the
                                                time in column `until`; `resolve` reduces samples that hold at once

An object is defined at an instant where one of its fields is not null (φ). It can be defined from the first change of
any input on. An object that has a value where all its inputs are null (`or_else(0)`) can be defined from the key's
first sample of any input on, if that is earlier; a Feedback or a Resample from its first mark on. The *marks* of a
Sampled are the times of its samples. The marks of other objects are those of all their inputs, moved by the shift, and
the multiples of a Window's `every` or a Per's `size` whose span holds a sample; a Chop with durations has a mark at
every change. The *samples* of an object are the marks at which it is defined; reductions count samples. The sampling
times of an object thus depend on its definition, not on its values.

In `fields`, `Column(at(i, name))` is a column of the i-th access and `Column(past(i))` the i-th own
result; `Reduced(j)` is the j-th reduction, null where the span holds no sample. In `args` and `where`, `Column`
is a column of the reduction's source.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from penstock.expr.nodes import Expr, Field, Options, columns_of
from penstock.types.time import Time

START, END, VALUE, DURATION = "start", "end", "value", "duration"


@dataclass(frozen=True, slots=True)
class Hold:
    lasting: int | None = None
    until: str | None = None
    resolve: str | None = None


@dataclass(frozen=True, slots=True)
class Sampled:
    input: str
    keys: tuple[str, ...]
    fields: tuple[Field, ...]
    hold: Hold = Hold()


@dataclass(frozen=True, slots=True)
class At:
    source: str
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Rolling:
    size: int


@dataclass(frozen=True, slots=True)
class Last:
    rows: int


@dataclass(frozen=True, slots=True)
class Window:
    size: int
    every: int


@dataclass(frozen=True, slots=True)
class Per:
    size: int


Span = Rolling | Last | Window | Per


@dataclass(frozen=True, slots=True)
class WindowReduction:
    source: str
    function: str
    args: tuple[Expr, ...]
    span: Span
    where: Expr | None = None
    options: Options = ()
    shift: int = 0


@dataclass(frozen=True, slots=True)
class SelfReference:
    """The object's own result: the `back`-th last defined sample, or, if `back` is 0, the result `shift` ticks ago."""

    back: int = 0
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Expression:
    accesses: tuple[At, ...]
    reductions: tuple[WindowReduction, ...]
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Feedback:
    """`initial` replaces own results before the first; the single field has the type of the own results."""

    accesses: tuple[At, ...]
    reductions: tuple[WindowReduction, ...]
    fields: tuple[Field, ...]
    own: tuple[SelfReference, ...]
    initial: float


@dataclass(frozen=True, slots=True)
class Resample:
    source: str
    every: int
    method: str
    max_gap: int | None = None


@dataclass(frozen=True, slots=True)
class Chop:
    source: str
    every: int | None = None
    marks: At | None = None
    durations: bool = False


@dataclass(frozen=True, slots=True)
class SampleAndHold:
    source: str
    clock: str


Body = Sampled | Expression | Feedback | Resample | Chop | SampleAndHold


@dataclass(frozen=True, slots=True)
class Object:
    """A temporal object: its definition and the columns of its value."""

    name: str
    body: Body
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Program:
    objects: tuple[Object, ...]
    output: str
    keys: pa.Schema
    time: Time
    pieces: bool = False
    _by_name: dict[str, Object] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {obj.name: obj for obj in self.objects})

    def __getitem__(self, name: str) -> Object:
        return self._by_name[name]

    @property
    def schema(self) -> pa.Schema:
        """The columns of the output's intervals."""
        moments = [pa.field(START, self.time.type), pa.field(END, self.time.type)]
        return pa.schema([*moments, *self.keys, *self[self.output].schema])

    @property
    def inputs(self) -> tuple[str, ...]:
        """The sampled inputs in order, without duplicates."""
        return tuple(dict.fromkeys(obj.body.input for obj in self.objects if isinstance(obj.body, Sampled)))


def at(access: int, name: str) -> str:
    """Return the column name of an access."""
    return f"{access}.{name}"


def past(place: int) -> str:
    """Return the column name of one of an object's own results."""
    return f"own.{place}"


def sources_of(body: Body) -> tuple[str, ...]:
    """Return the names of the objects that a definition reads, without duplicates."""
    match body:
        case Sampled():
            return ()
        case (
            Expression(accesses=accesses, reductions=reductions)
            | Feedback(accesses=accesses, reductions=reductions)
        ):
            return tuple(dict.fromkeys([*(a.source for a in accesses), *(r.source for r in reductions)]))
        case Chop(source=source, marks=marks):
            return tuple(dict.fromkeys((source, *(() if marks is None else (marks.source,)))))
        case SampleAndHold(source=source, clock=clock):
            return tuple(dict.fromkeys((source, clock)))
        case Resample(source=source):
            return (source,)


def renamed(body: Body, names: dict[str, str]) -> Body:
    """Return the same definition with objects and inputs renamed."""
    match body:
        case Sampled():
            return Sampled(names[body.input], body.keys, body.fields, body.hold)
        case Expression():
            return Expression(*_renamed(body, names), body.fields)
        case Feedback():
            return Feedback(*_renamed(body, names), body.fields, body.own, body.initial)
        case Resample():
            return Resample(names[body.source], body.every, body.method, body.max_gap)
        case Chop(marks=marks):
            moved = None if marks is None else At(names[marks.source], marks.shift)
            return Chop(names[body.source], body.every, moved, body.durations)
        case SampleAndHold():
            return SampleAndHold(names[body.source], names[body.clock])


def _renamed(
    body: Expression | Feedback, names: dict[str, str]
) -> tuple[tuple[At, ...], tuple[WindowReduction, ...]]:
    accesses = tuple(At(names[access.source], access.shift) for access in body.accesses)
    reductions = tuple(
        WindowReduction(
            names[reduction.source],
            reduction.function,
            reduction.args,
            reduction.span,
            reduction.where,
            reduction.options,
            reduction.shift,
        )
        for reduction in body.reductions
    )
    return accesses, reductions


def read_columns(body: Sampled) -> frozenset[str]:
    """Return the input columns that a Sampled reads, except the time."""
    until = frozenset() if body.hold.until is None else frozenset({body.hold.until})
    return frozenset(body.keys).union(until, *(columns_of(column.expr) for column in body.fields))
