"""Window bounds among join or group keys of windowed results; these match and group by window anyway."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.api.bind import flat
from penstock.api.expr import Expr
from penstock.api.row_verbs import dropped
from penstock.errors import WindowError
from penstock.expr.nodes import Column
from penstock.plan.nodes import Aggregate, Apply, Attach, Distinct, Filter, Join, Plan, Project, TopK
from penstock.plan.schema import join_columns, side_of
from penstock.types.choices import one_of
from penstock.types.windows import (
    LEFT_ROW_KINDS,
    WINDOW_BOUNDS,
    CarriedWindow,
    TimeWindow,
    Window,
    right_column,
)


def without_bounds(
    first: Plan, second: Plan, left_on: object, right_on: object
) -> tuple[tuple[object, object], list[str]]:
    """Separate the window bounds from the other keys; reject bounds that do not identify equal windows."""
    pairs = [keys_of(left_on), keys_of(right_on)]
    if len(pairs[0]) != len(pairs[1]):
        return (left_on, right_on), []
    names = [(_name(one), _name(other)) for one, other in zip(*pairs, strict=True)]
    bounds = [str(one) for one, other in names if one == other and one in WINDOW_BOUNDS]
    if not bounds:
        return (left_on, right_on), []
    if len(set(bounds)) == 1 and not _of_one_size(first, second):
        raise WindowError(
            f"on= names {bounds[0]!r} alone, but results meet in equal windows; name window_start and window_end, "
            "or give window= to put them into windows anew"
        )
    kept = [place for place, (one, other) in enumerate(names) if one != other or one not in WINDOW_BOUNDS]
    return ([pairs[0][place] for place in kept], [pairs[1][place] for place in kept]), bounds


def without_copies(plan: Plan, bounds: Sequence[str]) -> Plan:
    """Drop the right side's window bounds that were named as keys: a result has each key once."""
    if not isinstance(plan, Join) or plan.how in LEFT_ROW_KINDS:
        return plan
    copies = {right_column(name) for name in bounds}
    columns = join_columns(plan, side_of(plan.left), side_of(plan.right))
    return dropped(plan, [column.name for column in columns if column.of_pair in copies])


def other_keys(by: object) -> list[object]:
    """Return the keys without window bounds."""
    return [key for key in keys_of(by) if not one_of(_name(key), WINDOW_BOUNDS)]


def keys_of(given: object) -> list[object]:
    """Return keys as a list."""
    return [] if given is None else list(flat([given]))


def _name(given: object) -> object:
    """Return the name of a key that is a plain column."""
    if not isinstance(given, Expr):
        return given
    return given.node.name if isinstance(given.node, Column) and given.name == given.node.name else None


def _of_one_size(first: Plan, second: Plan) -> bool:
    """Return whether windows that end at the same time also begin at the same time."""
    one, other = _carried(first), _carried(second)
    return isinstance(one, TimeWindow) and isinstance(other, TimeWindow) and one.size == other.size


def _carried(plan: Plan) -> Window | None:
    """Return the window whose bounds rows carry, if it can be determined."""
    match plan:
        case Aggregate(window=CarriedWindow(), input=below) | Attach(window=CarriedWindow(), input=below):
            return _carried(below)
        case Aggregate(window=window) | Attach(window=window) | Apply(window=window):
            return window
        case Filter(input=below) | Project(input=below) | Distinct(input=below) | TopK(input=below):
            return _carried(below)
        case _:
            return None
