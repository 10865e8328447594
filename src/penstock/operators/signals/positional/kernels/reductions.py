"""The states that the reductions of an object need, and the computation of results from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from penstock.algorithms.expressions.cells import Cell, conjunction
from penstock.algorithms.expressions.nullability import may_be_null
from penstock.algorithms.monoids import Monoid, Values
from penstock.algorithms.partials import PRESENT, Finish, MayBeNull, Partial, monoid_of, partials_of
from penstock.algorithms.partials.needs import MOMENTS, flag_of
from penstock.analysis.positions import pane_of, result_step
from penstock.expr.typing import type_of
from penstock.ir.nodes import Reduction
from penstock.ir.signals.nodes import Per, Rolling, Span, Window, WindowReduction
from penstock.ir.signals.scope import reduced_type
from penstock.loop.build import KernelBuilder
from penstock.loop.interpret import apply
from penstock.loop.machine import machine_type
from penstock.loop.nodes import BOOL, I64, U64, Binary, Const, Type, Value, const
from penstock.operators.signals.positional.kernels.light_moments import LIGHT_MOMENTS, light_moments

_COUNTED = (*MOMENTS, *LIGHT_MOMENTS, "comoments")  # kinds whose state begins with a count of values
# Functions that are null wherever their count of values is 0.
_OF_SOME = frozenset({"mean", "var", "std", "skew", "kurtosis", "cov", "corr"})


@dataclass(frozen=True, slots=True)
class Track:
    """The states of one partial over the panes of a source; spans are chained from them.

    A pane as long as the source's step is a single entry of the source.
    """

    source: str
    pane: int
    partial: Partial


@dataclass(frozen=True, slots=True)
class TrackAlgebra:
    """The merge of a track's states. `known`: every sample counts, so counts are constants and not stored."""

    monoid: Monoid
    known: bool
    per_entry: int

    @property
    def hidden(self) -> frozenset[int]:
        """Indices of the state words that are constants: the sample count, and the error term of a light mean."""
        counted = {0} if self.known and self.monoid.name in ("count", "present", *_COUNTED) else set()
        return frozenset(counted | ({2} if self.monoid.name in LIGHT_MOMENTS else set()))

    @property
    def idempotent(self) -> bool:
        return self.monoid.name in ("present", "least", "greatest")

    @property
    def words(self) -> tuple[Type, ...]:
        """The types of the words that are stored."""
        states = enumerate(self.monoid.states)
        return tuple(state.type for place, state in states if place not in self.hidden)

    def complete(self, words: Values, entries: int) -> Values:
        """Insert the constant words."""
        count = 1 if self.monoid.name == "present" else entries * self.per_entry
        given = iter(words)
        return tuple(
            const(0 if place else count, state.type) if place in self.hidden else next(given)
            for place, state in enumerate(self.monoid.states)
        )

    def stored(self, state: Values) -> Values:
        """Leave out the constant words."""
        return tuple(word for place, word in enumerate(state) if place not in self.hidden)

    def merged(self, k: KernelBuilder, states: Sequence[Values]) -> Values:
        """Merge states, given oldest first, from the newest to the oldest."""
        *older, joined = states
        for state in reversed(older):
            joined = self.monoid.merge(k, state, joined)
        return joined


@dataclass(frozen=True)
class Group:
    """Reductions of one object over the same span of the same source.

    `length` panes make the span; `every` is the step of the result; a `lag` of 1 excludes the current pane.
    `sampled`: every span holds a sample, or results are null without a presence flag where a span does not.
    """

    source: str
    span: Span
    shift: int
    places: tuple[int, ...]
    reductions: tuple[Reduction, ...]
    types: tuple[pa.DataType, ...]
    partials: tuple[Partial, ...]
    algebras: tuple[TrackAlgebra, ...]
    pane: int
    length: int
    every: int
    nullable: frozenset[str]
    schema: pa.Schema
    sampled: bool

    @property
    def lag(self) -> int:
        return int(isinstance(self.span, Window))

    def track(self, partial: Partial) -> Track:
        return Track(self.source, self.pane, partial)

    def cells(self, k: KernelBuilder, states: Sequence[Values], fail: Callable[[Value], None]) -> list[Cell]:
        """Compute the results from the states of the partials; null where the span holds no sample."""
        finish = Finish(k, self.partials, states, self._may_be_null, fail)
        present = None if self.sampled else states[0][0].ne(0)
        found = []
        for reduction, dtype in zip(self.reductions, self.types, strict=True):
            cell = self._mean(reduction, states) or finish.cell(reduction, dtype)
            valid = conjunction(_folded(cell.valid), present)
            found.append(Cell(cell.value, valid))
        return found

    def _may_be_null(self, expr: object) -> bool:
        return may_be_null(expr, self.schema, self.nullable)  # type: ignore[arg-type]

    def _mean(self, reduction: Reduction, states: Sequence[Values]) -> Cell | None:
        """A mean that is read from moments."""
        place = _moments_of(reduction, self.partials)
        if place is None:
            return None
        count, head, tail, *_ = states[place]
        return Cell(head + tail, count.ne(0))


def groups_of(
    reductions: Sequence[WindowReduction],
    schemas: Mapping[str, pa.Schema],
    nullable: Mapping[str, frozenset[str]],
    steps: Mapping[str, int],
    always: Callable[[str], bool],
    wide: bool,
    marked: bool,
) -> list[Group]:
    """Group reductions by span. `always(source)`: the source has a sample at every position.

    `marked`: another reduction counts the results, so each span must record whether it holds a sample.
    """
    spans = dict.fromkeys((reduction.source, reduction.span, reduction.shift) for reduction in reductions)
    found = []
    for source, span, shift in spans:
        places = tuple(
            i
            for i, reduction in enumerate(reductions)
            if (reduction.source, reduction.span, reduction.shift) == (source, span, shift)
        )
        found.append(
            _group(
                [reductions[i] for i in places],
                places,
                schemas[source],
                nullable[source],
                steps,
                always(source),
                wide,
                marked,
            )
        )
    return found


def _group(
    overs: Sequence[WindowReduction],
    places: tuple[int, ...],
    schema: pa.Schema,
    nullable: frozenset[str],
    steps: Mapping[str, int],
    always: bool,
    wide: bool,
    marked: bool,
) -> Group:
    asked = tuple(Reduction(over.function, over.args, over.where, over.options) for over in overs)
    needed = [reduction for reduction in asked if not _has_moments(reduction, asked)]
    null = partial(may_be_null, schema=schema, nullable=nullable)
    partials = partials_of(needed, null)
    reported = not marked and partials[0] == PRESENT and all(_tells(reduction, null) for reduction in asked)
    partials = partials[1:] if reported else partials
    first, own = overs[0], steps[overs[0].source]
    pane = pane_of(first, steps)
    algebras = tuple(
        _algebra(state, schema, wide, always and _unconditional(state, schema, nullable), pane // own)
        for state in partials
    )
    return Group(
        first.source, first.span, first.shift, places, asked,
        tuple(reduced_type(over, schema) for over in overs),
        partials, algebras, pane, _length(first.span, pane), result_step(first, steps), nullable, schema, always or reported,
    )  # fmt: skip


def _tells(reduction: Reduction, null: MayBeNull) -> bool:
    """Whether a result is null where there is no sample, without a presence flag."""
    return reduction.function in _OF_SOME or flag_of(reduction, null) is not None


def _algebra(partial: Partial, schema: pa.Schema, wide: bool, known: bool, per_entry: int) -> TrackAlgebra:
    """Choose a partial's monoid. Chained sums need no compensation: their error grows with the logarithm of the length."""
    types = [type_of(arg, schema) for arg in partial.args]
    monoid = monoid_of(partial, types, wide and is_long_sum(partial, schema))
    if partial.kind in MOMENTS and machine_type(types[0]) not in (I64, U64):
        monoid = light_moments(2 + MOMENTS.index(partial.kind))
    return TrackAlgebra(monoid.in_chunk or monoid, known, per_entry)


def is_long_sum(partial: Partial, schema: pa.Schema) -> bool:
    """Whether a sum of integers could overflow 64 bits."""
    if partial.kind != "sum":
        return False
    machine = machine_type(type_of(partial.args[0], schema))
    return machine in (I64, U64)


def _unconditional(partial: Partial, schema: pa.Schema, nullable: frozenset[str]) -> bool:
    """Whether every sample counts."""
    decisive = partial.args[1:] if partial.kind in ("least_by", "greatest_by") else partial.args
    return partial.where is None and not any(may_be_null(node, schema, nullable) for node in decisive)


def _length(span: Span, pane: int) -> int:
    match span:
        case Rolling(size=size) | Window(size=size):
            return size // pane
        case Per():
            return 1
    raise AssertionError(f"{span} is not a length of time")


def _has_moments(reduction: Reduction, among: Sequence[Reduction]) -> bool:
    return reduction.function == "mean" and any(
        other.function in ("var", "std", "skew", "kurtosis")
        and (other.args, other.where) == (reduction.args, reduction.where)
        for other in among
    )


def _moments_of(reduction: Reduction, partials: Sequence[Partial]) -> int | None:
    if reduction.function != "mean":
        return None
    for place, other in enumerate(partials):
        if other.kind in MOMENTS and (other.args, other.where) == (reduction.args, reduction.where):
            return place
    return None


def _folded(valid: Value | None) -> Value | None:
    """Fold a comparison of two constants."""
    match valid:
        case Binary(op=op, a=Const() as a, b=Const() as b):
            known = apply(op, a.value, b.value, a.type)
            return None if known else const(False, BOOL)
        case _:
            return valid
