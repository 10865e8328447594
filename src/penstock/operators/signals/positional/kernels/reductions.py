"""The states that the reductions of an object need, long spans merged from short ones, and results computed from states.

In that file the mean is two floats, because each row updates it. Here states are only merged, in a tree of
logarithmic depth (Chan et al.): the error of a variance is some ulps times mean / deviation, to the first
power. The layout is the same, with 0 as the second float of the mean, so results are read in the same way.

    f_n[i] = f_h[i - (r - 1) h] ⊕ … ⊕ f_h[i - h] ⊕ f_h[i]        n = r h

A span of n entries costs about log n combinations of whole arrays, each a vectorisable loop. The order of
combinations depends on n alone, not on the start of a block: results do not depend on block bounds, and the
error of a float sum grows with log n only. No entry is ever subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from penstock.algorithms.expressions.cells import Cell, conjunction
from penstock.algorithms.expressions.lowering import may_be_null
from penstock.algorithms.monoids import Monoid, StateField, Values
from penstock.algorithms.monoids.base import either, named
from penstock.algorithms.partials import PRESENT, Finish, MayBeNull, Partial, monoid_of, partials_of
from penstock.algorithms.partials.algebra import MOMENTS, flag_of
from penstock.analysis.positions import pane_of, result_step
from penstock.expr.typing import type_of
from penstock.ir.nodes import Reduction
from penstock.ir.signals.nodes import Per, Rolling, Span, Window, WindowReduction
from penstock.ir.signals.scope import reduced_type
from penstock.loop.build import KernelBuilder
from penstock.loop.interpret import apply
from penstock.loop.nodes import BOOL, F64, I64, U64, Binary, Const, Type, Value, const
from penstock.loop.numbers import machine_type

LIGHT_MOMENTS = ("light_moments2", "light_moments3", "light_moments4")
_ZERO = const(0.0, F64)


def light_moments(order: int) -> Monoid:
    """Moments of one argument up to the 2nd, 3rd or 4th order."""
    return Monoid(
        f"light_moments{order}",
        (StateField(I64, 0), *(StateField(F64, 0.0) for _ in range(order + 1))),
        lambda k, state, values: _merge(k, state, _single(k, values[0], order)),
        _merge,
    )


def _single(k: KernelBuilder, value: Value, order: int) -> Values:
    """The state of one value: central moments are 0, or NaN if the value is not finite."""
    x = k.var("x", value.to(F64))
    return const(1, I64), x, _ZERO, *([k.var("nothing", x - x)] * (order - 1))


def _merge(k: KernelBuilder, a: Values, b: Values) -> Values:
    a, b = (*a[:2], _ZERO, *named(k, "a", a[3:])), (*b[:2], _ZERO, *named(k, "b", b[3:]))
    n = k.var("n", (a[0] + b[0]).to(F64))
    p, q = k.var("p", a[0].to(F64).div(n)), k.var("q", b[0].to(F64).div(n))
    weight = k.var("weight", a[0].to(F64) * q)
    far = k.var("far", b[1] - a[1])
    square = k.var("square", far * far)
    (a2, *a_more), (b2, *b_more) = a[3:], b[3:]
    new = [a2 + b2 + square * weight]
    if a_more:
        new.append(a_more[0] + b_more[0] + square * far * (weight * (p - q)) + far * (p * b2 - q * a2) * 3)
    if len(a_more) > 1:
        spread = square * square * (weight * (p * p - p * q + q * q))
        mixed = square * (p * p * b2 + q * q * a2) * 6 + far * (p * b_more[0] - q * a_more[0]) * 4
        new.append(a_more[1] + b_more[1] + spread + mixed)
    both = a[0] + b[0], a[1] + far * q, _ZERO, *new
    return either(a[0].eq(0), b, either(b[0].eq(0), a, both))


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
    requested = tuple(Reduction(over.function, over.args, over.where, over.options) for over in overs)
    needed = [reduction for reduction in requested if not _has_moments(reduction, requested)]
    null = partial(may_be_null, schema=schema, nullable=nullable)
    partials = partials_of(needed, null)
    reported = (
        not marked and partials[0] == PRESENT and all(_reports(reduction, null) for reduction in requested)
    )
    partials = partials[1:] if reported else partials
    first, own = overs[0], steps[overs[0].source]
    pane = pane_of(first, steps)
    algebras = tuple(
        _algebra(state, schema, wide, always and _unconditional(state, schema, nullable), pane // own)
        for state in partials
    )
    return Group(
        first.source, first.span, first.shift, places, requested,
        tuple(reduced_type(over, schema) for over in overs),
        partials, algebras, pane, _length(first.span, pane), result_step(first, steps), nullable, schema, always or reported,
    )  # fmt: skip


def _reports(reduction: Reduction, null: MayBeNull) -> bool:
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


MOST_PARTS = 8


@dataclass(frozen=True, slots=True)
class DoubledSpan:
    """The reduction of `length` entries that end `back` entries ago."""

    length: int
    back: int


Parts = tuple[DoubledSpan, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost to read and merge a part, and to write an array: their ratio determines the best number of parts."""

    part: float = 1.0
    array: float = 3.0


LIGHT = Cost()
HEAVY = Cost(part=6.0)  # states of several words, merged by more than one instruction


def chain(lengths: Iterable[int], cost: Cost = LIGHT, idempotent: bool = False) -> dict[int, Parts]:
    """Plan the parts of each length, oldest part first, shorter lengths before longer ones.

    >>> {n: [(part.length, part.back) for part in parts] for n, parts in chain([21]).items()}
    {7: [(1, 6), (1, 5), (1, 4), (1, 3), (1, 2), (1, 1), (1, 0)], 21: [(7, 14), (7, 7), (7, 0)]}
    """
    search = _Search(cost, idempotent)
    for length in sorted(set(lengths)):
        search.make(length)
    return dict(sorted(search.made.items()))


@dataclass
class _Search:
    """Finds the cheapest plan for a length; lengths made before are free."""

    cost: Cost
    idempotent: bool
    made: dict[int, Parts] = field(default_factory=dict)

    def make(self, length: int) -> None:
        self._take(length, {})

    def _take(self, length: int, known: dict[int, tuple[float, int]]) -> None:
        if length > 1 and length not in self.made:
            _, ways = self._best(length, known)
            self._take(self._base(length, ways), known)
            self.made[length] = self._parts(length, ways)

    def _best(self, length: int, known: dict[int, tuple[float, int]]) -> tuple[float, int]:
        """The least cost of a length, and the number of parts at that cost."""
        if length == 1 or length in self.made:
            return 0.0, 1
        if length not in known:
            known[length] = min(
                self._way(length, parts, known) for parts in range(2, min(length, MOST_PARTS) + 1)
            )
        return known[length]

    def _way(self, length: int, parts: int, known: dict[int, tuple[float, int]]) -> tuple[float, int]:
        base = self._base(length, parts)
        rest = 0 if self.idempotent else length - base * parts
        return self._best(base, known)[0] + self.cost.part * (parts + rest) + self.cost.array, parts

    def _base(self, length: int, parts: int) -> int:
        """The length of a part. Parts overlap if the reduction is idempotent; otherwise single entries remain."""
        return -(-length // parts) if self.idempotent else length // parts

    def _parts(self, length: int, parts: int) -> Parts:
        base = self._base(length, parts)
        single = (
            ()
            if self.idempotent
            else tuple(DoubledSpan(1, back) for back in reversed(range(base * parts, length)))
        )
        return *single, *(DoubledSpan(base, min(i * base, length - base)) for i in reversed(range(parts)))
