"""Express a temporal program in positions: the i-th sample of a regular time is at position i.

Where every input has the same implied time and every length is a whole number of periods, time needs no
column. An object is one value per position, or one per `step` positions where it changes only on a grid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, lcm

import pyarrow as pa

from penstock.errors import UnsupportedError
from penstock.expr.aggregates import AGGREGATES
from penstock.expr.custom import Definition
from penstock.expr.nodes import Column, Field
from penstock.ir.signals import scope
from penstock.ir.signals.nodes import (
    At,
    Expression,
    Feedback,
    Last,
    Object,
    Per,
    Program,
    Resample,
    Rolling,
    Sampled,
    SelfReference,
    Span,
    Window,
    WindowReduction,
    at,
    sources_of,
)
from penstock.ir.signals.scope import NO_END
from penstock.loop.numbers import machine_type
from penstock.types.time import Time

# A longer span's intermediate results exceed the caches, and blocks consist mostly of halo.
LONGEST_SPAN = 1 << 16


class DoesNotFit(UnsupportedError):  # noqa: N818 - a result of the check, not a failure
    """A program cannot be evaluated by position; the message says why."""


@dataclass(frozen=True, slots=True)
class Positions:
    """A program whose lengths are numbers of positions.

    `steps` gives the number of positions over which an object keeps its value: 1, or that of its grid.
    Position 0 is position `phase` of the grids, on which the objects in `gridded` have samples. `time` is
    that of the inputs.
    """

    program: Program
    time: Time
    steps: Mapping[str, int]
    gridded: frozenset[str]
    phase: int

    @property
    def grid(self) -> int:
        """The period of all grids combined, in positions."""
        steps = [over.span.every for over in self.overs if isinstance(over.span, Window)]
        return lcm(*self.steps.values(), *steps, *(pane_of(over, self.steps) for over in self.overs))

    @property
    def marking(self) -> frozenset[str]:
        """The objects whose samples are counted, and the objects that determine where those have samples."""
        found = {over.source for over in self.overs}
        for this in reversed(self.program.objects):
            if this.name in found:
                found.update(sources_of(this.body))
        return frozenset(found)

    @property
    def overs(self) -> list[WindowReduction]:
        """All reductions."""
        return [over for obj in self.program.objects for over in reductions_of(obj.body)]


def reductions_of(body: object) -> tuple[WindowReduction, ...]:
    """The reductions of a definition."""
    return body.reductions if isinstance(body, Expression | Feedback) else ()


Inputs = Sequence[tuple[pa.Schema, Time]]


def why_not(program: Program, inputs: Inputs) -> str | None:
    """Return the reason why a program cannot be evaluated by position, or None if it can."""
    try:
        positions_of(program, inputs)
    except DoesNotFit as reason:
        return str(reason)
    return None


def fits(program: Program, inputs: Inputs) -> bool:
    """Return whether a program can be evaluated by position."""
    return why_not(program, inputs) is None


def positions_of(program: Program, inputs: Inputs) -> Positions:
    """Express a program in positions of its inputs; raise `DoesNotFit` with the reason if that is impossible."""
    times = [inputs[int(input_)][1] for input_ in program.inputs]
    return in_positions(_with_computed_output(program), times)


def _with_computed_output(program: Program) -> Program:
    """Replace an output that is a sample or feedback by an expression that reads it: outputs are always computed."""
    this = program[program.output]
    if not isinstance(this.body, Sampled | Feedback):
        return program
    fields = tuple(Field(name, Column(at(0, name))) for name in this.schema.names)
    shown = Object(f"{this.name}'", Expression((At(this.name),), (), fields), this.schema)
    return replace(program, objects=(*program.objects, shown), output=shown.name)


def in_positions(program: Program, times: Sequence[Time]) -> Positions:
    """Divide all lengths by the period; raise `DoesNotFit` if that is impossible."""
    time = _common(times)
    _require(not len(program.keys), "samples have keys")
    scale = _Scale(program, time)
    objects = tuple(Object(obj.name, scale.body(obj), obj.schema) for obj in program.objects)
    found = replace(program, objects=objects)
    steps, gridded = _steps(found)
    period = time.period or 1
    _require(
        (max(steps.values()) == 1 and not gridded) or time.start % period == 0,
        "the first sample lies between two multiples of the period, so windows begin between samples",
    )
    positions = Positions(found, time, steps, gridded, 0)
    _require(positions.grid <= LONGEST_SPAN, f"windows meet only every {positions.grid:,} samples")
    return replace(positions, phase=time.start // period % positions.grid)


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise DoesNotFit(otherwise)


def _common(times: Sequence[Time]) -> Time:
    first = times[0]
    _require(all(time.period is not None for time in times), "time is a column, not pk.every(...)")
    alike = all(
        (time.period, time.start, time.unit) == (first.period, first.start, first.unit) for time in times
    )
    _require(alike, "the inputs begin at different times, or have different periods")
    return first


# --- lengths ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Scale:
    program: Program
    time: Time

    def body(self, this: Object) -> Sampled | Expression | Feedback | Resample:
        for column in this.schema:
            _require(machine_type(column.type) is not None, f"a value is of type {column.type}")
        match this.body:
            case Sampled() as body:
                return self._sampled(body)
            case Expression(accesses=accesses, reductions=reductions, fields=fields):
                return Expression(self._accesses(accesses), self._reductions(reductions), fields)
            case Feedback(accesses=accesses, reductions=reductions, fields=fields, own=own, initial=initial):
                past = tuple(
                    SelfReference(
                        self_reference.back, self._whole(self_reference.shift, "a shift of past results")
                    )
                    for self_reference in own
                )
                return Feedback(self._accesses(accesses), self._reductions(reductions), fields, past, initial)
            case Resample() as body:
                return self._resample(this, body)
            case other:
                raise DoesNotFit(f"a signal is a {type(other).__name__}, whose samples lie between others")

    def _whole(self, ticks: int, what: str) -> int:
        period = self.time.period or 1
        _require(ticks % period == 0, f"{what} is not a multiple of the period")
        _require(abs(ticks // period) <= LONGEST_SPAN, f"{what} is more than {LONGEST_SPAN:,} samples long")
        return ticks // period

    def _sampled(self, body: Sampled) -> Sampled:
        hold = body.hold
        _require(hold.until is None, "samples hold until a time in a column")
        _require(hold.resolve is None, "values of the same time are resolved")
        lasting = None if hold.lasting is None else self._whole(hold.lasting, "lasting=")
        return replace(body, hold=replace(hold, lasting=lasting))

    def _accesses(self, accesses: tuple[At, ...]) -> tuple[At, ...]:
        return tuple(At(access.source, self._whole(access.shift, "a shift")) for access in accesses)

    def _reductions(self, reductions: tuple[WindowReduction, ...]) -> tuple[WindowReduction, ...]:
        for reduction in reductions:
            self._check(reduction)
        return tuple(
            replace(reduction, span=self._span(reduction.span), shift=self._whole(reduction.shift, "a shift"))
            for reduction in reductions
        )

    def _check(self, over: WindowReduction) -> None:
        algebra, options = AGGREGATES[over.function], dict(over.options)
        definition = options.get("definition")
        if isinstance(definition, Definition):
            _require(
                definition.merge is not None and definition.commutative,
                "an aggregate has no merge=, or depends on order",
            )
        else:
            splits = not algebra.holistic and over.function not in ("first", "last")
            _require(splits, f"{over.function} depends on all samples of a span, or on their order")

    def _span(self, span: Span) -> Span:
        match span:
            case Rolling(size=size):
                _require(size < NO_END, "a span has no end")
                return Rolling(self._whole(size, "the size of rolling"))
            case Window(size=size, every=every):
                return Window(
                    self._whole(size, "the size of a window"), self._whole(every, "the step of a window")
                )
            case Per(size=size):
                return Per(self._whole(size, "the size of a window"))
            case Last():
                raise DoesNotFit("a span counts samples, not time")

    def _resample(self, this: Object, body: Resample) -> Resample:
        _require(this.name == self.program.output, "a resampled signal is computed with")
        period = self.time.period or 1
        _require(body.max_gap is None or body.max_gap >= period, "max_gap= is shorter than the period")
        _require(body.every <= LONGEST_SPAN * period, f"every= is more than {LONGEST_SPAN:,} samples long")
        return body


# --- grids --------------------------------------------------------------------------------------------------


def _steps(program: Program) -> tuple[dict[str, int], frozenset[str]]:
    """Compute the step of each object, in order, and the set of objects with samples on grids."""
    steps: dict[str, int] = {}
    marked: set[str] = set()  # objects that have a sample at each of their steps
    gridded: set[str] = set()  # objects that have samples where a window on a grid has some
    for this in program.objects:
        for over in reductions_of(this.body):
            _require(over.source in marked, "samples are reduced that lie on several grids")
            _check_grid(over, steps)
        steps[this.name] = _step(this.body, steps)
        if steps[this.name] > 1 or _marked(this.body, steps, marked):
            marked.add(this.name)
        if _reads_grid(this.body, gridded):
            gridded.add(this.name)
        if isinstance(this.body, Feedback | Resample):
            _require(this.name not in gridded, "a feedback, or what is resampled, reads windows on a grid")
        if this.name in gridded:
            _require(not is_lenient(program, this), "a constant fills in where windows on a grid are empty")
    if program.pieces:
        _require(len(program.inputs) == 1, "samples of several inputs are computed one by one")
        _require(program.output not in gridded, "samples on a grid are computed one by one")
    return steps, frozenset(gridded)


def _step(body: object, steps: Mapping[str, int]) -> int:
    match body:
        case Expression(accesses=accesses, reductions=reductions):
            read = {(steps[access.source], access.shift) for access in accesses}
            read |= {(result_step(reduction, steps), reduction.shift) for reduction in reductions}
            common = {step for step, _ in read}
            alike = len(common) == 1 and all(shift % step == 0 for step, shift in read)
            return common.pop() if alike else 1
        case _:
            return 1


def result_step(over: WindowReduction, steps: Mapping[str, int]) -> int:
    """The number of positions over which a reduction keeps its value."""
    match over.span:
        case Window(every=every) | Per(size=every):
            return every
        case _:
            return steps[over.source]


def pane_of(over: WindowReduction, steps: Mapping[str, int]) -> int:
    """The number of positions that are reduced to one pane before panes are merged to spans."""
    match over.span:
        case Window(size=size, every=every):
            return gcd(size, every)
        case Per(size=size):
            return size
        case _:
            return steps[over.source]


def _check_grid(over: WindowReduction, steps: Mapping[str, int]) -> None:
    own = steps[over.source]
    lengths = (over.span.size,) if isinstance(over.span, Rolling) else (pane_of(over, steps),)
    _require(all(length % own == 0 for length in lengths), "a span cuts the windows that it reduces")


def _marked(body: object, steps: Mapping[str, int], marked: set[str]) -> bool:
    """Whether an object of step 1 has a sample at every position where its inputs have one."""
    match body:
        case Sampled():
            return True
        case (
            Expression(accesses=accesses, reductions=reductions)
            | Feedback(accesses=accesses, reductions=reductions)
        ):
            fine = [access.source for access in accesses]
            fine += [reduction.source for reduction in reductions if result_step(reduction, steps) == 1]
            return any(steps[source] == 1 and source in marked for source in fine)
        case _:
            return any(source in marked for source in sources_of(body))  # type: ignore[arg-type]


def _reads_grid(body: object, gridded: set[str]) -> bool:
    on_grid = any(isinstance(reduction.span, Window | Per) for reduction in reductions_of(body))
    return on_grid or any(source in gridded for source in sources_of(body))  # type: ignore[arg-type]


def is_lenient(program: Program, this: Object) -> bool:
    """Whether an expression has a value where none of its inputs has one."""
    return isinstance(this.body, Expression) and scope.is_lenient(this.body, schemas(program))


def marks_of(program: Program, name: str) -> tuple[int, int]:
    """The offsets in positions of the first and last sample from the first and last sample of the inputs.

    Defined only for objects that read no grid: samples on a grid never end.
    """
    match program[name].body:
        case (
            Expression(accesses=accesses, reductions=reductions)
            | Feedback(accesses=accesses, reductions=reductions)
        ):
            read = [*((a.source, a.shift) for a in accesses), *((r.source, r.shift) for r in reductions)]
            moved = [(*marks_of(program, source), shift) for source, shift in read]
            return min(first + by for first, _, by in moved), max(last + by for _, last, by in moved)
        case Resample(source=source):
            return marks_of(program, source)
        case _:
            return 0, 0


def schemas(program: Program) -> dict[str, pa.Schema]:
    """The columns of all objects."""
    return {obj.name: obj.schema for obj in program.objects}
