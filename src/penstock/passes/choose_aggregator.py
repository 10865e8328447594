"""Choose how each reduction of overlapping windows is computed, and say why (Hammer Slide, section 2).

    ~w1[t] @ size 10s every 1s: ⊕(sum, int), ⊕(max, float)  →  {"w1": (subtract-on-evict, two-stacks)}

The *way* is decided for all reductions of an object together: in "panes", where states of a fixed size can be
merged whatever order rows come in, else in "lanes", over rows in order. The *algorithm* is each reduction's
own:

* `one pane`: a window is one pane, there is nothing to merge;
* `recompute`: every window from its own panes or rows, where they overlap little or not at all, and for what
  can be made of rows in order only;
* `subtract-on-evict`: one running state, for what can be taken out again without loss;
* `prefix-sums`: what all rows before a frame's ends add up to, subtracted: for sums of floats over rows;
* `two-stacks`: for everything else that can be merged;
* `count-slide`: windows of rows without keys lie at regular places: vectors over neighbouring windows;
* `order-statistics`: the values of a window in order, for what has no state of a fixed size;
* `frame ends`: nothing but the positions of a frame's first and last row.

This is an analysis: the program stays as it is, and its choices are kept beside it.
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
# Merging so many panes anew is cheaper than keeping track of what enters and leaves (measured: equal at 5).
FEW_PANES = 4

PLAIN = frozenset({"bool", "int", "uint", "float", "timestamp", "date", "duration"})


@dataclass(frozen=True, slots=True)
class Choice:
    """How one reduction runs: its algorithm, the way its object takes, and the reason in words."""

    algorithm: str
    way: str
    reason: str


def choices(program: Program, force: str | None = None) -> dict[str, tuple[Choice, ...]]:
    """Choose for every reduction of every windowed object, by the object's name.

    `force` names an algorithm to use wherever it can be.
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
    """Tell whether rows can be folded into panes: windows lie on a grid, and states of a fixed size merge."""
    return pane_obstacle(body, program) is None


def pane_obstacle(body: Reduce, program: Program) -> str | None:
    """Say why rows cannot be folded into panes; None if they can."""
    if not isinstance(body.domain, TimeWindow | CarriedWindow):
        return f"{type(body.domain).__name__.lower()} windows do not lie on one grid of time"
    if order_of_keys_is_seen(body, program):
        return "a later operator depends on the order of keys in a window, which panes do not keep"
    schema = program[body.source].schema
    # In a window they carry, samples are folded by its end: their own times are not looked at.
    by_place = isinstance(body.domain, TimeWindow) and _ordered_by_place(body.source, program)
    facts = (_Facts(each, schema) for each in body.reductions)
    return next(
        (f"{_name(each)} {each.why_not_merged}" for each in facts if not each.fits_panes(by_place)), None
    )


def _ordered_by_place(name: str, program: Program) -> bool:
    """Tell whether only their time and their place in one stream order the samples of an object."""
    match program[name].body:
        case Input(sequence=sequence):
            return sequence is None
        case Samples(source=source):
            return _ordered_by_place(source, program)
        case _:
            return False


def panes_per_window(domain: Window) -> int:
    """Count the panes of a window: its stretches between the bounds of all windows."""
    if not isinstance(domain, TimeWindow):
        return 1
    whole, rest = divmod(domain.size, domain.every)
    return 2 * whole + 1 if rest else whole


def overlaps(body: Windowed | RollingJoin) -> bool:
    """Tell whether a sample can be in several windows of an object."""
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
    """Tell whether windows begin at every so many-th sample of all: windows of rows, not by key."""
    return isinstance(body, Reduce | Attach) and isinstance(body.domain, Count) and not body.keys


# --- the algorithm ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Facts:
    """What the choice depends on: a reduction's algebra and the types of its arguments."""

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
        """Tell whether a state of a fixed size can be merged in any order.

        What keeps the value of one row (and so does not skip nulls) keeps machine values only, and finds the
        row by its time and place.
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
        """Say why states of panes cannot be merged into the answer, if they cannot."""
        if self.algebra.holistic:
            return "needs all values of a window"
        if not self.algebra.associative:
            return "has no merge"
        return "depends on the order of rows, or keeps values that are not machine numbers"

    @property
    def is_ends(self) -> bool:
        """Tell whether a frame's bounds are the answer, or lead to it."""
        counts_rows = self.algebra.invertible and not self.reduction.args and self.reduction.where is None
        keeps_one = not (self.algebra.skips_nulls or self.algebra.commutative or self.algebra.holistic)
        return (counts_rows and self.definition is None) or keeps_one

    @property
    def has_prefixes(self) -> bool:
        """Tell whether it is a sum, or follows from sums, that only rounding keeps from being subtracted."""
        return self.definition is None and self.algebra.invertible and self.inexact

    @property
    def inexact(self) -> bool:
        """Tell whether taking values out again would leave rounding behind: never so where values are counted."""
        if self.definition is not None:
            return not self.definition.undoes
        return _any_float(self.types) and _any_float([result_type(self.reduction, self.schema)])


def _any_float(types: Iterable[pa.DataType]) -> bool:
    return any(kind_of(each) == "float" for each in types)


def preferred(domain: Window, force: str | None = None) -> str:
    """Name how panes of these windows are merged, where an aggregate does not forbid it."""
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
    """Subtract, or merge where something is in the way."""
    if obstacle is None:
        reason = "asked for" if force == SUBTRACT else f"{_name(facts)} takes out again exactly what left"
        return Choice(SUBTRACT, way, reason)
    return Choice(TWO_STACKS, way, obstacle + _instead(force, TWO_STACKS))


def _obstacle(facts: _Facts) -> str | None:
    """Say why what left cannot be subtracted; None if it can."""
    if not facts.algebra.invertible:
        return f"nothing can be taken out of {_name(facts)} again"
    if facts.inexact:
        return f"{_name(facts)} of floats is never subtracted: rounding would stay behind"
    return None


def _instead(force: str | None, taken: str) -> str:
    return "" if force in (None, taken) else f" (so not by {force}, which was asked for)"


def _name(facts: _Facts) -> str:
    return "a custom aggregate" if facts.definition is not None else facts.reduction.function
