"""Choose the algorithm of each reduction over overlapping windows, with a reason (Hammer Slide, section 2).

    ~w1[t] @ size 10s every 1s: ⊕(sum, int), ⊕(max, float)  →  {"w1": (subtract-on-evict, two-stacks)}

The *way* is chosen once per object, for all its reductions: "panes" if all states have a fixed size and merge in any
order, else "lanes", over sorted rows. The *algorithm* is chosen per reduction:

* `one pane`: a window is one pane, so nothing is merged;
* `recompute`: compute every window from its panes or rows; for windows with little or no overlap, and for
  aggregates that only fold rows in order;
* `subtract-on-evict`: one running state, for aggregates that remove rows without loss;
* `prefix-sums`: the difference of two running totals at the frame's ends; for sums of floats over rows;
* `two-stacks`: for all other aggregates that merge;
* `count-slide`: windows of rows without keys begin at regular positions, so neighbouring windows are vectorised;
* `order-statistics`: the sorted values of a window, for aggregates without a state of fixed size;
* `frame ends`: only the positions of a frame's first and last row.

This analysis does not change the program.
"""

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

ONE_PANE, FRAME_ENDS, ORDER_STATISTICS = "one pane", "frame ends", "order-statistics"
PREFIX_SUMS, COUNT_SLIDE = "prefix-sums", "count-slide"
RECOMPUTE, SUBTRACT, TWO_STACKS = "recompute", "subtract-on-evict", "two-stacks"
# Up to this many panes, merging anew is cheaper than incremental maintenance (measured: equal at 5).
FEW_PANES = 4

PLAIN = frozenset({"bool", "int", "uint", "float", "timestamp", "date", "duration"})


@dataclass(frozen=True, slots=True)
class Choice:
    """The algorithm of one reduction, the way of its object, and the reason as text."""

    algorithm: str
    way: str
    reason: str


def choices(program: Program, force: str | None = None) -> dict[str, tuple[Choice, ...]]:
    """Choose the algorithm of every reduction of every windowed object, by the object's name.

    `force` names an algorithm to use wherever it is applicable.
    """
    found: dict[str, tuple[Choice, ...]] = {}
    for each in program.objects:
        match each.body:
            case Reduce() | Attach() | Lookback() as body:
                found[each.name] = _chosen(body, program, force)
            case RollingJoin(right=right, reductions=reductions) as join:
                facts = [_Facts(reduction, program[right].schema) for reduction in reductions]
                found[each.name] = tuple(_in_lanes(one, join, force) for one in facts)
    return found


def _chosen(body: Windowed, program: Program, force: str | None) -> tuple[Choice, ...]:
    schema = program[body.source].schema
    facts = [_Facts(each, schema) for each in body.reductions]
    if isinstance(body, Reduce) and in_panes(body, program):
        return tuple(_in_panes(each, body.domain, force) for each in facts)
    return tuple(_in_lanes(each, body, force) for each in facts)


# --- the way ------------------------------------------------------------------------------------------------


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
    facts = (_Facts(each, schema) for each in body.reductions)
    return next(
        (f"{_name(each)} {each.why_not_merged}" for each in facts if not each.fits_panes(by_place)), None
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


# --- the algorithm ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Facts:
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
        plain = all(kind_of(each) in PLAIN and each == value_type(each) for each in self.types)
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
    return any(kind_of(each) == "float" for each in types)


def preferred(domain: Window, force: str | None = None) -> str:
    """Return how panes of these windows are merged if the aggregate permits it."""
    panes = panes_per_window(domain)
    if panes == 1:
        return ONE_PANE
    return force or (RECOMPUTE if panes <= FEW_PANES else SUBTRACT)


def _in_panes(facts: _Facts, domain: Window, force: str | None) -> Choice:
    panes, wanted = panes_per_window(domain), preferred(domain, force)
    if wanted == ONE_PANE:
        return Choice(ONE_PANE, "panes", "each window is one pane, read where it lies")
    if wanted == SUBTRACT:
        obstacle = (
            "a custom aggregate removes rows, and panes are states"
            if facts.definition is not None
            else _obstacle(facts)
        )
        return _subtracted(facts, "panes", obstacle, force)
    if force is not None:
        return Choice(force, "panes", "asked for")
    return Choice(RECOMPUTE, "panes", f"a window has {panes} panes only, soon merged anew")


def _in_lanes(facts: _Facts, body: Windowed | RollingJoin, force: str | None) -> Choice:
    if facts.is_ends:
        return Choice(FRAME_ENDS, "lanes", "the places of a window's first and last row tell it")
    if not facts.algebra.commutative and facts.algebra.holistic:
        return Choice(RECOMPUTE, "lanes", "the result is all values of a window" + _instead(force, RECOMPUTE))
    if facts.algebra.holistic:
        reason = f"{_name(facts)} needs the values of a window in order"
        return Choice(ORDER_STATISTICS, "lanes", reason + _instead(force, ORDER_STATISTICS))
    if force is None and regular(body) and facts.algebra.associative:
        shared = "neighbours share panes" if overlaps(body) else "each row is read once"
        reason = f"windows of rows without keys lie at regular places: nothing is looked up, {shared}"
        return Choice(COUNT_SLIDE, "lanes", reason)
    if force is None and not overlaps(body):
        return Choice(RECOMPUTE, "lanes", "windows do not overlap: each row is read once")
    if force == RECOMPUTE:
        return Choice(RECOMPUTE, "lanes", "asked for")
    return _slid(facts, force)


def _slid(facts: _Facts, force: str | None) -> Choice:
    obstacle = _obstacle(facts)
    if force != TWO_STACKS and obstacle is None:
        return _subtracted(facts, "lanes", None, force)
    if not facts.algebra.associative:
        reason = f"{_name(facts)} has no merge: its state comes from rows in order"
        return Choice(RECOMPUTE, "lanes", reason + _instead(force, RECOMPUTE))
    if force == TWO_STACKS:
        return Choice(TWO_STACKS, "lanes", "asked for")
    if force is None and facts.has_prefixes:
        reason = f"{_name(facts)} of floats is the difference of two compensated prefixes, by two stacks where values differ too much in size"
        return Choice(PREFIX_SUMS, "lanes", reason)
    return _subtracted(facts, "lanes", obstacle, force)


def _subtracted(facts: _Facts, way: str, obstacle: str | None, force: str | None) -> Choice:
    """Choose subtract-on-evict, or two-stacks if there is an obstacle."""
    if obstacle is None:
        reason = "asked for" if force == SUBTRACT else f"{_name(facts)} takes out again exactly what left"
        return Choice(SUBTRACT, way, reason)
    return Choice(TWO_STACKS, way, obstacle + _instead(force, TWO_STACKS))


def _obstacle(facts: _Facts) -> str | None:
    """Return why evicted rows cannot be subtracted; None if they can."""
    if not facts.algebra.invertible:
        return f"nothing can be taken out of {_name(facts)} again"
    if facts.inexact:
        return f"{_name(facts)} of floats is never subtracted: rounding would stay behind"
    return None


def _instead(force: str | None, taken: str) -> str:
    return "" if force in (None, taken) else f" (so not by {force}, which was asked for)"


def _name(facts: _Facts) -> str:
    return "a custom aggregate" if facts.definition is not None else facts.reduction.function
