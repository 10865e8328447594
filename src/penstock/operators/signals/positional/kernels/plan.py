"""Plan a dense kernel before any code is emitted: states, nullability, null tests, and the range that each object reads.

The program alone determines the positions around a block at which each object, and each state that spans are
chained from, must be available (TiLT's boundary resolution, section 5.1, in positions).

    case when is_not_null(a) then a - b end      →      a - b        where a never is

An operation on signals tests whether its operands are defined. Over regular time without gaps they always
are; the kernel then needs neither the tests nor the validity bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import lcm

import pyarrow as pa

from penstock.algorithms.expressions.cells import Cell
from penstock.algorithms.expressions.lowering import Lowering
from penstock.algorithms.monoids import Values
from penstock.analysis.positions import Positions, schemas
from penstock.expr import nodes as ex
from penstock.expr.nodes import Field
from penstock.expr.typing import type_of
from penstock.ir.signals.nodes import (
    Expression,
    Feedback,
    Object,
    Resample,
    Sampled,
    WindowReduction,
    at,
    past,
)
from penstock.ir.signals.scope import reduced_types, scope
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, Value, Var
from penstock.loop.numbers import machine_type
from penstock.operators.signals.positional.kernels.reductions import (
    HEAVY,
    LIGHT,
    Group,
    Parts,
    Track,
    TrackAlgebra,
    chain,
    groups_of,
)

# Functions that are null only where an operand is.
_STRICT = frozenset(
    {"add", "sub", "mul", "div", "neg", "abs", "sqrt", "eq", "ne", "lt", "le", "gt", "ge", "not", "and", "or"}
)
_TRUE = ex.Literal(True, pa.bool_())
_FALSE = ex.Literal(False, pa.bool_())


@dataclass(frozen=True)
class Certain:
    """The columns and reductions that may be null in the scope of an expression."""

    schema: pa.Schema
    nullable: Collection[str]
    reduced_types: Sequence[pa.DataType] = ()
    reduced_nullable: Collection[int] = ()

    def simplified(self, expr: ex.Expr) -> ex.Expr:
        """Replace the tests that can be decided."""
        return ex.rewrite(expr, self._decided)

    def _decided(self, node: ex.Expr) -> ex.Expr:
        match node:
            case ex.Call(function="is_not_null", args=(arg,)) if self.never_null(arg):
                return _TRUE
            case ex.Call(function="is_null", args=(arg,)) if self.never_null(arg):
                return _FALSE
            case ex.Call(function="fill_null", args=(arg, _)) if self.never_null(arg):
                return self._typed(arg, node)
            case ex.Call(function="and", args=(a, b)) if _TRUE in (a, b):
                return b if a == _TRUE else a
            case ex.Case(branches=((condition, value), *_)) if condition == _TRUE:
                return self._typed(value, node)
            case _:
                return node

    def _typed(self, value: ex.Expr, node: ex.Expr) -> ex.Expr:
        """Replace a choice by the branch that is always taken, unless its type differs."""
        same = type_of(value, self.schema, self.reduced_types) == type_of(
            node, self.schema, self.reduced_types
        )
        return value if same else node

    def never_null(self, expr: ex.Expr) -> bool:
        """Whether an expression is never null."""
        return ex.fold(expr, self._never_null)

    def _never_null(self, expr: ex.Expr, below: tuple[bool, ...]) -> bool:
        match expr:
            case ex.Column(name=name):
                return name not in self.nullable
            case ex.Reduced(index=index):
                return index not in self.reduced_nullable
            case ex.Literal(value=value):
                return value is not None
            case ex.Call(function=function):
                return function in _STRICT and all(below)
            case ex.Cast():
                return all(below)
            case ex.Case():  # its values: every second child, and the last
                return all(below[1::2]) and below[-1]
            case _:
                return False

    def over(self, over: WindowReduction) -> WindowReduction:
        """Simplify the arguments and the condition of a reduction."""
        where = None if over.where is None else self.simplified(over.where)
        args = tuple(map(self.simplified, over.args))
        return replace(over, args=args, where=None if where == _TRUE else where)


Nullable = Mapping[str, frozenset[str]]  # the columns that hold nulls, by input


@dataclass(frozen=True, slots=True)
class PositionNeed:
    """The number of positions needed before and after the requested ones.

    The requested range is first widened to multiples of `before` and `after` positions. Blocks end at window
    bounds, so widening mostly adds nothing.
    """

    past: int = 0
    future: int = 0
    before: int = 1
    after: int = 1

    def at(self, shift: int) -> PositionNeed:
        return replace(self, past=self.past + shift, future=self.future - shift)

    def back(self, by: int) -> PositionNeed:
        return replace(self, past=self.past + by)

    def since(self, step: int) -> PositionNeed:
        """Extend the past to the start of the current window."""
        return replace(self, past=_up(self.past, step), before=lcm(self.before, step))

    def within(self, step: int) -> PositionNeed:
        """Extend both ends to whole windows."""
        since = self.since(step)
        return replace(since, future=_up(self.future, step), after=lcm(self.after, step))

    @property
    def flat(self) -> PositionNeed:
        """The upper bound, for any alignment of windows."""
        return PositionNeed(self.past + self.before - 1, self.future + self.after - 1)

    def __or__(self, other: PositionNeed) -> PositionNeed:
        return PositionNeed(
            max(self.past, other.past),
            max(self.future, other.future),
            lcm(self.before, other.before),
            lcm(self.after, other.after),
        )


def _up(count: int, step: int) -> int:
    """Round up to a multiple of `step`."""
    return -(-count // step) * step


@dataclass
class PositionalPlan:
    """The decisions about a program, for inputs of which some columns hold nulls.

    With `edge`, positions before the first sample and after the last are computed too.
    """

    positions: Positions
    nullable: Nullable
    edge: bool
    wide: bool = False
    lost: bool = False  # past results of a feedback may be null, as they are at the beginning
    least: Mapping[str, PositionNeed] = field(default_factory=dict)
    groups: dict[str, list[Group]] = field(default_factory=dict)
    nulls: dict[str, frozenset[str]] = field(default_factory=dict)
    fields: dict[str, tuple[Field, ...]] = field(default_factory=dict)
    algebras: dict[Track, TrackAlgebra] = field(default_factory=dict)
    needs: dict[str, PositionNeed] = field(default_factory=dict)
    level_needs: dict[tuple[Track, int], PositionNeed] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for this in self.objects:
            self._decide(this)
        self.chains: dict[Track, dict[int, Parts]] = {
            track: self._chain(self.algebras[track], lengths) for track, lengths in self._lengths().items()
        }
        self._resolve()

    @staticmethod
    def _chain(algebra: TrackAlgebra, lengths: Sequence[int]) -> dict[int, Parts]:
        cost = LIGHT if len(algebra.words) == 1 else HEAVY
        return chain(lengths, cost, algebra.idempotent)

    @property
    def objects(self) -> tuple[Object, ...]:
        return self.positions.program.objects

    @cached_property
    def schemas(self) -> dict[str, pa.Schema]:
        return schemas(self.positions.program)

    def step(self, name: str) -> int:
        return self.positions.steps[name]

    def is_always_there(self, name: str) -> bool:
        """Whether an object is defined, and has a sample, at each of its steps."""
        return not self.edge and any(
            column_name not in self.nulls[name] for column_name in self.schemas[name].names
        )

    # -- nulls and states ----------------------------------------------------------------------------

    def _decide(self, this: Object) -> None:
        match this.body:
            case Sampled(input=source, fields=fields):
                columns = self.nullable.get(source, frozenset())
                null = {
                    column.name
                    for column in fields
                    if self.edge or self._sample_is_null(this, column.name, columns)
                }
                self.nulls[this.name] = frozenset(null)
            case Expression() | Feedback() as body:
                overs = [self._certain(reduction.source).over(reduction) for reduction in body.reductions]
                self.groups[this.name] = groups_of(
                    overs,
                    self.schemas,
                    self.nulls,
                    self.positions.steps,
                    self.is_always_there,
                    self.wide,
                    this.name in self.positions.marking,
                )
                for group in self.groups[this.name]:
                    self.algebras |= {
                        group.track(partial): how
                        for partial, how in zip(group.partials, group.algebras, strict=True)
                    }
                self.fields[this.name] = self._simplified(this, body)
                self.nulls[this.name] = frozenset(self._null_fields(this, body))
            case Resample(source=source):
                self.nulls[this.name] = (
                    frozenset(self.schemas[source].names) if self.edge else self.nulls[source]
                )

    def _sample_is_null(self, this: Object, name: str, columns: frozenset[str]) -> bool:
        """Whether a field of a sample may be null: yes if any column holds nulls. This costs a byte per value."""
        return bool(columns)

    def _certain(self, source: str) -> Certain:
        return Certain(self.schemas[source], self.nulls[source])

    def _simplified(self, this: Object, body: Expression | Feedback) -> tuple[Field, ...]:
        """The fields without null tests whose outcome is known; past results of a feedback may be null."""
        types = reduced_types(body, self.schemas)
        cells = self._scratch_reduced(KernelBuilder("scratch"), this.name, len(types))
        nullable = [
            at(i, name) for i, access in enumerate(body.accesses) for name in self.nulls[access.source]
        ]
        if isinstance(
            body, Feedback
        ):  # the result at a given time may be missing; the result n samples ago exists
            nullable += [past(i) for i, self_reference in enumerate(body.own) if not self_reference.back]
        known = Certain(
            scope(body, self.schemas, this.schema.types[0]),
            frozenset(nullable),
            types,
            frozenset(i for i, cell in enumerate(cells) if cell.valid is not None),
        )
        return tuple(Field(column.name, known.simplified(column.expr)) for column in body.fields)

    def _null_fields(self, this: Object, body: Expression | Feedback) -> Iterator[str]:
        """Find the nullable fields by lowering them on a scratch kernel, until a feedback reaches a fixed point."""
        k = KernelBuilder("scratch")
        types = reduced_types(body, self.schemas)
        own = frozenset[str](this.schema.names if self.edge or self.lost else ())
        while True:
            lowering = Lowering(
                k, scope(body, self.schemas, this.schema.types[0]), self._scratch_cell(body, bool(own)),
                lambda condition: None, no_text, reduced=self._scratch_reduced(k, this.name, len(types)),
                reduced_types=types,
            )  # fmt: skip
            found = frozenset(
                column.name
                for column in self.fields[this.name]
                if lowering.lower(column.expr).valid is not None
            )
            if not isinstance(body, Feedback) or found <= own:
                yield from this.schema.names if self.edge else found | own
                return
            own |= found

    def _scratch_cell(self, body: Expression | Feedback, own_null: bool) -> _ScratchCells:
        known: dict[str, tuple[pa.DataType, bool]] = {}
        for i, access in enumerate(body.accesses):
            for column in self.schemas[access.source]:
                known[at(i, column.name)] = column.type, column.name in self.nulls[access.source]
        if isinstance(body, Feedback):
            dtype = pa.float64() if isinstance(body.initial, float) else pa.int64()
            known |= {
                past(i): (dtype, own_null and not self_reference.back)
                for i, self_reference in enumerate(body.own)
            }
        return _ScratchCells(known)

    def _scratch_reduced(self, k: KernelBuilder, name: str, count: int) -> list[Cell]:
        cells: dict[int, Cell] = {}
        for group in self.groups[name]:
            states = [scratch_state(algebra, group.length) for algebra in group.algebras]
            cells |= zip(group.places, group.cells(k, states, lambda condition: None), strict=True)
        return [cells[i] for i in range(count)]

    # -- how far everything reads --------------------------------------------------------------------

    def _lengths(self) -> dict[Track, list[int]]:
        found: dict[Track, list[int]] = {}
        for groups in self.groups.values():
            for group in groups:
                for partial, algebra in zip(group.partials, group.algebras, strict=True):
                    if algebra.words:
                        found.setdefault(group.track(partial), []).append(group.length)
        return found

    def _resolve(self) -> None:
        """Propagate needs from the output to the inputs."""
        self.needs |= self.least
        self._need(self.positions.program.output, PositionNeed())
        for this in reversed(self.objects):
            for track in self.chains:
                if track.source == this.name:
                    self._need_track(track)
            if this.name not in self.needs:  # its values are not read, only its samples are counted
                continue
            need = self.needs[this.name].within(self.step(this.name))
            match this.body:
                case Expression() | Feedback() as body:
                    if isinstance(body, Feedback):  # it continues where the previous block ended
                        need = PositionNeed(-need.future, need.future)
                    for access in body.accesses:
                        self._need(access.source, need.at(access.shift))
                    for group in self.groups[this.name]:
                        self._need_group(group, need.at(group.shift))
                case Resample(source=source):
                    self._need(source, need | PositionNeed(0, 1))
                case _:
                    pass

    def _need(self, name: str, need: PositionNeed) -> None:
        if isinstance(self.positions.program[name].body, Feedback):  # its history is at fixed offsets
            need = need.flat
        self.needs[name] = self.needs.get(name, need) | need

    def _need_group(self, group: Group, need: PositionNeed) -> None:
        """Add the needs of a group: a span's state is read at the current pane, or at the pane before the current step."""
        here = need if group.lag == 0 else need.since(group.every).back(group.pane)
        if not group.sampled or any(algebra.words for algebra in group.algebras):
            self._need(group.source, here)
        for track in self.tracks(group):
            self._need_level(track, group.length, here)

    def _need_level(self, track: Track, length: int, need: PositionNeed) -> None:
        self.level_needs[track, length] = self.level_needs.get((track, length), need) | need

    def _need_track(self, track: Track) -> None:
        """Propagate needs from the longest spans to the entries they are merged from."""
        made = self.chains[track]
        for length in sorted(made, reverse=True):
            need = self.level_needs[track, length]
            for part in made[length]:
                self._need_level(track, part.length, need.back(part.back * track.pane))
        self._need(track.source, self.level_needs[track, 1].within(track.pane))

    def readers(self) -> Counter[tuple[Track, int]]:
        """Count the readers of the states of each length: longer spans, and fields of objects."""
        found: Counter[tuple[Track, int]] = Counter()
        for track, made in self.chains.items():
            for length in self.kept_lengths(track):
                found.update((track, part) for part in _distinct(made.get(length, ())))
        for groups in self.groups.values():
            for group in groups:
                for track in self.tracks(group):
                    found.update((track, length) for length in self.read_lengths(track, group.length))
        return found

    def tracks(self, group: Group) -> list[Track]:
        """The tracks of a group that store state."""
        pairs = zip(group.partials, group.algebras, strict=True)
        return [group.track(partial) for partial, algebra in pairs if algebra.words]

    def kept_lengths(self, track: Track) -> set[int]:
        """The lengths that longer spans are merged from."""
        return {part.length for parts in self.chains[track].values() for part in parts}

    def read_lengths(self, track: Track, length: int) -> set[int]:
        """The lengths that a span is read from: its length, or those of its parts if it is merged on the fly."""
        parts = self.chains[track].get(length, ())
        return {length} if not parts or length in self.kept_lengths(track) else _distinct(parts)

    # -- the whole plan -------------------------------------------------------------------------------

    @property
    def sequential(self) -> bool:
        """Whether each result depends on all previous results."""
        return any(isinstance(obj.body, Feedback) for obj in self.objects)

    @property
    def reach(self) -> PositionNeed:
        """The input positions that a position of the output needs."""
        found = PositionNeed()
        for this in self.objects:
            if isinstance(this.body, Sampled | Feedback) and this.name in self.needs:
                found |= self.needs[this.name]
        return found


@dataclass(frozen=True)
class _ScratchCells:
    known: Mapping[str, tuple[pa.DataType, bool]]

    def __call__(self, name: str) -> Cell:
        dtype, null = self.known[name]
        machine = machine_type(dtype)
        assert machine is not None
        return Cell(Var("value", machine), Var("ok", BOOL) if null else None)


def scratch_state(algebra: TrackAlgebra, length: int) -> Values:
    """A state of unknown words."""
    return algebra.complete(tuple(Var("word", word) for word in algebra.words), length)


def _distinct(parts: Parts) -> set[int]:
    return {part.length for part in parts}


def no_text(name: str, text: str) -> Cell:
    raise AssertionError("texts do not enter dense signals")


def either(conditions: Sequence[Value]) -> Value:
    """The disjunction of several conditions."""
    found = conditions[0]
    for condition in conditions[1:]:
        found = found | condition
    return found
