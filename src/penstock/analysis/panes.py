"""Whether rows of a windowed object can be folded into panes: windows on a grid, and states of fixed size that merge."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from penstock.analysis.order import order_of_keys_is_seen
from penstock.expr.aggregates import AggregateFunction, algebra_of
from penstock.expr.custom import Definition
from penstock.expr.typing import type_of
from penstock.ir.joins import RollingJoin
from penstock.ir.nodes import Attach, Input, Lookback, Program, Reduce, Reduction, Samples, Windowed
from penstock.ir.scope import result_type
from penstock.types.arrow import kind_of, value_type
from penstock.types.windows import Calendar, CarriedWindow, Count, TimeWindow, Window

PLAIN = frozenset({"bool", "int", "uint", "float", "timestamp", "date", "duration"})


def in_panes(body: Reduce, program: Program) -> bool:
    """Return whether rows can be folded into panes: windows lie on a grid, and states of fixed size merge."""
    return pane_obstacle(body, program) is None


def pane_obstacle(body: Reduce, program: Program) -> str | None:
    """Return why rows cannot be folded into panes; None if they can."""
    if not isinstance(body.domain, TimeWindow | CarriedWindow):
        return f"{type(body.domain).__name__.lower()} windows do not lie on one grid of time"
    if order_of_keys_is_seen(body, program):
        return "a later operator depends on the order of keys in a window, which panes do not keep"
    schema = program[body.source].schema
    # Samples of a carried window are folded by the window's end; their times are not read.
    by_place = isinstance(body.domain, TimeWindow) and _ordered_by_place(body.source, program)
    facts = (ReductionFacts(reduction, schema) for reduction in body.reductions)
    return next(
        (f"{fact.name} {fact.why_not_merged}" for fact in facts if not fact.fits_panes(by_place)), None
    )


def _ordered_by_place(name: str, program: Program) -> bool:
    """Return whether time and position in one stream alone order the samples of an object."""
    match program[name].body:
        case Input(sequence=sequence):
            return sequence is None
        case Samples(source=source):
            return _ordered_by_place(source, program)
        case _:
            return False


def panes_per_window(domain: Window) -> int:
    """Count the panes of a window: its segments between the bounds of all windows."""
    if not isinstance(domain, TimeWindow):
        return 1
    whole, rest = divmod(domain.size, domain.every)
    return 2 * whole + 1 if rest else whole


def overlaps(body: Windowed | RollingJoin) -> bool:
    """Return whether a sample can be in several windows of an object."""
    if isinstance(body, Lookback | RollingJoin):
        return True
    match body.domain:
        case TimeWindow(size=size, every=every) | Count(size=size, every=every):
            return size > every
        case Calendar(size=step, every=every):
            return step != every
        case _:
            return False


def regular(body: Windowed | RollingJoin) -> bool:
    """Return whether windows begin at fixed row intervals over all rows: count windows without keys."""
    return isinstance(body, Reduce | Attach) and isinstance(body.domain, Count) and not body.keys


@dataclass(frozen=True)
class ReductionFacts:
    """The inputs of the choice: a reduction's algebra and the types of its arguments."""

    reduction: Reduction
    schema: pa.Schema

    @property
    def algebra(self) -> AggregateFunction:
        return algebra_of(self.reduction)

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return tuple(type_of(arg, self.schema) for arg in self.reduction.args)

    @property
    def definition(self) -> Definition | None:
        found = dict(self.reduction.options).get("definition")
        return found.typed(self.types) if isinstance(found, Definition) else None

    @property
    def name(self) -> str:
        return "a custom aggregate" if self.definition is not None else self.reduction.function

    def fits_panes(self, by_place: bool) -> bool:
        """Return whether the reduction has a state of fixed size that merges in any order.

        An aggregate that keeps the value of one row, and so does not skip nulls, keeps machine values only and
        identifies the row by its time and position.
        """
        algebra = self.algebra
        if algebra.holistic or not algebra.associative:
            return False
        if algebra.skips_nulls:
            return algebra.commutative
        plain = all(kind_of(dtype) in PLAIN and dtype == value_type(dtype) for dtype in self.types)
        return plain and (algebra.commutative or by_place)

    @property
    def why_not_merged(self) -> str:
        """Return why states of panes cannot be merged, if they cannot."""
        if self.algebra.holistic:
            return "needs all values of a window"
        if not self.algebra.associative:
            return "has no merge"
        return "depends on the order of rows, or keeps values that are not machine numbers"

    @property
    def is_ends(self) -> bool:
        """Return whether the frame's bounds determine the result."""
        counts_rows = self.algebra.invertible and not self.reduction.args and self.reduction.where is None
        keeps_one = not (self.algebra.skips_nulls or self.algebra.commutative or self.algebra.holistic)
        return (counts_rows and self.definition is None) or keeps_one

    @property
    def has_prefixes(self) -> bool:
        """Return whether the reduction is a sum, or derived from sums, that is not invertible only due to rounding."""
        return self.definition is None and self.algebra.invertible and self.inexact

    @property
    def inexact(self) -> bool:
        """Return whether removing values would leave rounding errors; never for counts."""
        if self.definition is not None:
            return not self.definition.undoes
        return _any_float(self.types) and _any_float([result_type(self.reduction, self.schema)])


def _any_float(types: Iterable[pa.DataType]) -> bool:
    return any(kind_of(dtype) == "float" for dtype in types)
