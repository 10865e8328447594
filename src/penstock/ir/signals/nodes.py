"""The temporal language (TiLT, section 4.1): values that vary over time, shared by the plan and the IR.

    program   ::= object* "out" name            for each key apart; `keys` and `time` are the same throughout;
                                                in `pieces`: intervals end at the output's marks, too
    object    ::= "~"name = body                each name is defined once, before its uses
    body      ::= Sampled(input, keys, fields, hold)
                                                samples of an input stream, each holding its values for a while
                | Expression(accesses, reductions, fields)
                                                at every instant t: fields over what is accessed and reduced
                | Feedback(accesses, reductions, fields, own, initial)
                                                the same, at samples, and reading its own past results too
                | Resample(source, every, method, max_gap)
                                                a sample at every multiple of `every`, interpolated or held
                | Chop(source, every, marks, durations)
                                                the same value, sampled at every multiple of `every` as well, and at
                                                the samples of `marks` moved back; with a column of how long each lasts
                | Held(source, clock)           its value at the last sample of ~clock, held until the next
    access    ::= At(source, shift)             ~source[t - shift]
    reduction ::= Over(source, function, args, where, options, span, shift)
                                                ⊕(function, ~source[span before t - shift])
    span      ::= Rolling(size)                 the samples in (t - size, t]
                | Last(rows)                    the last samples up to t, so many
                | Window(size, every)           the samples in [g - size, g), g being t rounded down to every
                | Per(size)                     the samples in [g, g + size), g being t rounded down to size
    own       ::= Own(back) | Own(shift)        the result so many samples ago, which is defined, or at t - shift
    hold      ::= Hold(lasting, until, resolve) until the key's next sample, unless it lasts so many ticks, or until
                                                the time in a column; `resolve` joins what holds at the same time

An object is defined at an instant where one of its fields is not null (φ), from the first change of anything it reads
on; one that has a value where all it reads has none (`or_else(0)`), from the key's first sample of any input on, if that
is earlier; a Feedback or a Resample from its first mark on. Its *marks* are instants too: those of
a Sampled its samples' times; of others those of all they read, moved by the shift, and the multiples of a
Window's `every` or a Per's `size` whose span holds a sample; of a Chop with durations every change. Its *samples* are the marks at which it is defined, and are what
reductions count. So what a value is made of decides when it is sampled, not what it happens to be.

In `fields`, `Column(at(i, name))` is a column of the i-th access and `Column(past(i))` the i-th own
result; `Reduced(j)` is the j-th reduction, null where the span holds no sample. In `args` and `where`, `Column`
is a column of the reduction's source.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    """The object's own result: `back` samples ago (marks where it is not defined are none), or, that being 0, `shift` ticks ago."""

    back: int = 0
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Expression:
    accesses: tuple[At, ...]
    reductions: tuple[WindowReduction, ...]
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Feedback:
    """Own results from before the first are `initial`; the single field has its type."""

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

    def __getitem__(self, name: str) -> Object:
        return next(each for each in self.objects if each.name == name)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the intervals that the output becomes."""
        moments = [pa.field(START, self.time.type), pa.field(END, self.time.type)]
        return pa.schema([*moments, *self.keys, *self[self.output].schema])

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs that are sampled, in order, each once."""
        return tuple(
            dict.fromkeys(each.body.input for each in self.objects if isinstance(each.body, Sampled))
        )


def at(access: int, name: str) -> str:
    """Name a column of an access."""
    return f"{access}.{name}"


def past(place: int) -> str:
    """Name one of an object's own results."""
    return f"own.{place}"


def sources_of(body: Body) -> tuple[str, ...]:
    """Name the objects a definition reads, each once."""
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
    """The same definition over objects, and inputs, of other names."""
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
    accesses = tuple(At(names[each.source], each.shift) for each in body.accesses)
    reductions = tuple(
        WindowReduction(
            names[each.source], each.function, each.args, each.span, each.where, each.options, each.shift
        )
        for each in body.reductions
    )
    return accesses, reductions


def read_columns(body: Sampled) -> frozenset[str]:
    """Name the columns of its input that a Sampled reads, beside the time."""
    until = frozenset() if body.hold.until is None else frozenset({body.hold.until})
    return frozenset(body.keys).union(until, *(columns_of(each.expr) for each in body.fields))
