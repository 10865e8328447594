"""Joins of the fluent API: check every option when the join is called, then build a plan node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import pyarrow as pa

from penstock.api.bind import predicate
from penstock.api.expr import Expr, column_or_node
from penstock.api.join_keys import on_one_clock, without_bounds, without_copies
from penstock.api.literals import literal, shown
from penstock.api.row_verbs import projected
from penstock.api.windowed import keyed, window_spec
from penstock.errors import (
    ExpressionTypeError,
    SchemaMismatchError,
    UnknownColumnError,
    UnsupportedError,
    WindowError,
)
from penstock.expr import nodes as ex
from penstock.expr.nodes import Cast, Column, Field
from penstock.expr.rules import type_of_both
from penstock.expr.typing import column_type
from penstock.plan.nodes import AsofJoin, Attach, Join, Plan
from penstock.plan.schema import carries_window, pair_schema, schema_of, side_of, sources_of, time_of
from penstock.types.choices import one_of
from penstock.types.duration import Duration, to_ticks
from penstock.types.windows import (
    DIRECTIONS,
    JOIN_ALGORITHMS,
    JOIN_KINDS,
    JOIN_TIME,
    LEFT_ROW_KINDS,
    TARGETS,
    WINDOW_END,
    WINDOW_START,
    CarriedWindow,
    Count,
    InWindow,
    Keys,
    Lookup,
    Pairing,
    Session,
    TimeWindow,
    Window,
    Within,
    left_column,
    right_column,
    windows_overlap,
)


def left(name: str) -> Expr:
    """Return a column of the left rows, for the `where=` of a join.

    >>> import penstock as pk
    >>> pk.left("price") > pk.right("price")
    <Expr `left.price` > `right.price`>
    """
    return _sided(name, left_column)


def right(name: str) -> Expr:
    """Return a column of the right rows, for the `where=` of a join.

    >>> import penstock as pk
    >>> pk.right("price").is_null()
    <Expr is_null(`right.price`)>
    """
    return _sided(name, right_column)


def _sided(name: object, naming: Any) -> Expr:
    if not isinstance(name, str):
        raise ExpressionTypeError(f"a column is named by a string, not by a {type(name).__name__}")
    return Expr(Column(naming(name)))


# --- pairs of rows ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """The arguments of a join."""

    window: object
    within: object
    how: str
    where: object
    algorithm: str
    suffix: str
    optimise: str | None


def joined(
    first: Plan, second: Plan, on: object, left_on: object, right_on: object, options: Options
) -> Plan:
    """Build the plan of `Stream.join`."""
    _one_of(options.how, JOIN_KINDS, "how")
    _one_of(options.algorithm, JOIN_ALGORITHMS, "algorithm")
    if options.optimise is not None:
        _one_of(options.optimise, TARGETS, "optimise")
    _require_suffix(options.suffix)
    names = _names_of_keys(on, left_on, right_on)
    if options.window is None and options.within is None and carries_window(first) and carries_window(second):
        names, bounds = without_bounds(first, second, *names)
        if bounds:
            return without_copies(_met(first, second, names, on, _any_pair(names, options)), bounds)
    return _met(first, second, names, on, options)


def _met(first: Plan, second: Plan, names: tuple[object, object], on: object, options: Options) -> Plan:
    first, second, keys = common_keys(first, second, *names, _called(on))
    tables = [not sources_of(side) for side in (first, second)]
    if any(tables):
        return _looked_up(first, second, keys, tables, options)
    first, second = on_one_clock(first, second)
    pairing = _pairing(first, second, options)
    where = _condition(options.where, first, second)
    if not keys and where is None and isinstance(pairing, InWindow):
        raise ExpressionTypeError(
            "this join would pair every row of a window with every other; give on= or where="
        )
    _check_algorithm(options, pairing, keys)
    if options.how not in LEFT_ROW_KINDS:
        _refuse_lost(first, pairing)
    target = options.optimise or "throughput"
    return Join(first, second, keys, pairing, options.how, where, options.suffix, options.algorithm, target)


def _any_pair(names: tuple[object, object], options: Options) -> Options:
    """Pair all rows of a window if the keys are the window bounds alone."""
    return options if names[0] or options.where is not None else replace(options, where=Expr(literal(True)))


def _refuse_lost(plan: Plan, pairing: Pairing) -> None:
    """Reject user columns with names that the result needs; only those of an earlier join are replaced."""
    needed = {JOIN_TIME} - {time_of(plan).column}
    if isinstance(pairing, InWindow) and not carries_window(plan):
        needed |= {WINDOW_START, WINDOW_END}
    for name in schema_of(plan).names:
        if name in needed:
            raise SchemaMismatchError(
                f"the join adds a column {name!r}, which the left side has; rename or drop it"
            )


def _one_of(given: object, known: Sequence[str], what: str) -> None:
    if not one_of(given, known):
        raise ExpressionTypeError(f"{what} is {shown(given)}; it is one of {', '.join(map(repr, known))}")


def _require_suffix(suffix: object) -> None:
    if not isinstance(suffix, str) or not suffix:
        raise ExpressionTypeError(f"suffix is {suffix!r}; it is a string that is not empty, such as '_right'")
    literal(suffix)  # rejects lone surrogates


def _names_of_keys(on: object, left_on: object, right_on: object) -> tuple[object, object]:
    if on is not None and (left_on is not None or right_on is not None):
        raise ExpressionTypeError("give on=, or left_on= and right_on=, not both")
    if (left_on is None) != (right_on is None):
        raise ExpressionTypeError("left_on= and right_on= belong together; on= names keys called alike")
    return (on, on) if left_on is None else (left_on, right_on)


def _called(on: object) -> tuple[str, str]:
    return ("left_on=", "right_on=") if on is None else ("on=", "on=")


def common_keys(
    first: Plan, second: Plan, left_on: object, right_on: object, called: tuple[str, str] = ("by=", "by=")
) -> tuple[Plan, Plan, Keys]:
    """Return the keys of both sides, cast to common types; `called` names the arguments in errors."""
    first, left_names = keyed(first, left_on, called[0])
    second, right_names = keyed(second, right_on, called[1])
    if len(left_names) != len(right_names):
        raise ExpressionTypeError(
            f"left_on= has {len(left_names)} keys and right_on= {len(right_names)}; each needs its partner"
        )
    keys = tuple(zip(left_names, right_names, strict=True))
    types = [_key_type(first, one, second, other) for one, other in keys]
    first = _cast(first, dict(zip(left_names, types, strict=True)))
    return first, _cast(second, dict(zip(right_names, types, strict=True))), keys


def _key_type(first: Plan, one: str, second: Plan, other: str) -> pa.DataType:
    left, right = column_type(one, schema_of(first)), column_type(other, schema_of(second))
    found = type_of_both(left, right)
    if found is None:
        raise SchemaMismatchError(
            f"the keys {one!r} of type {left} and {other!r} of type {right} cannot be compared; cast one"
        )
    return found


def _cast(plan: Plan, types: Mapping[str, pa.DataType]) -> Plan:
    """Cast the keys of other types."""
    schema = schema_of(plan)
    changed = {name: dtype for name, dtype in types.items() if schema.field(name).type != dtype}
    if not changed:
        return plan
    if time_of(plan).column in changed:
        raise SchemaMismatchError(
            f"the key {time_of(plan).column!r} is a time column and has another type than its partner; cast the partner"
        )
    fields = tuple(
        Field(name, Cast(Column(name), changed[name]) if name in changed else Column(name))
        for name in schema.names
    )
    return projected(plan, fields)


def _condition(where: object, first: Plan, second: Plan) -> ex.Expr | None:
    if where is None:
        return None
    schema = pair_schema(side_of(first), side_of(second))
    _require_sides(where, first, second, schema)
    return predicate(where, schema, time_of(first), "where= of a join, over pk.left(...) and pk.right(...),")


def _require_sides(where: object, first: Plan, second: Plan, pair: pa.Schema) -> None:
    """Reject columns without `pk.left` or `pk.right`."""
    named = ex.columns_of(column_or_node(where))
    for name in sorted(name for name in named if isinstance(name, str) and name not in pair.names):
        sides = [("left", schema_of(first)), ("right", schema_of(second))]
        found = [f"pk.{side}({name!r})" for side, schema in sides if name in schema.names]
        if found:
            raise UnknownColumnError(
                f"where= of a join names columns of either side; write {' or '.join(found)} instead of {name!r}"
            )


def _pairing(first: Plan, second: Plan, options: Options) -> Pairing:
    if options.window is not None and options.within is not None:
        raise WindowError("give window= or within=, not both")
    if options.within is not None:
        return interval(options.within, first)
    if options.window is not None:
        return _windows(first, second, options.window)
    if carries_window(first) and carries_window(second):
        return InWindow(CarriedWindow(), CarriedWindow())
    raise WindowError(
        "a join of two streams needs to know which rows meet in time: give window=pk.tumbling('10s'), "
        "or within=('-5s', '5s')"
    )


def interval(within: object, plan: Plan) -> Within:
    """Convert within=(lo, hi) to ticks of a stream's time."""
    if not isinstance(within, (tuple, list)) or len(within) != 2:
        raise WindowError("within= takes two durations, such as ('-5s', '5s')")
    lo, hi = (to_ticks(bound, time_of(plan), "an end of within=") for bound in within)
    if lo > hi:
        raise WindowError(f"within={tuple(within)!r} ends before it begins; give the earlier end first")
    return Within(lo, hi)


def _windows(first: Plan, second: Plan, window: object) -> InWindow:
    if isinstance(window, (tuple, list)):
        if len(window) != 2:
            raise WindowError("window= takes one window, or two: (left, right)")
        one, other = (window_spec(side).resolve(time_of(first)) for side in window)
        _require_common_ends(one, other)
        return InWindow(one, other)
    both = window_spec(window).resolve(time_of(first))
    _refuse_counts(both)
    return InWindow(both, both)


def _refuse_counts(window: Window) -> None:
    if isinstance(window, Count):
        raise UnsupportedError(
            "rows of two streams cannot be counted together; join in windows of time, or in sessions"
        )


def _require_common_ends(one: Window, other: Window) -> None:
    _refuse_counts(one)
    _refuse_counts(other)
    if one == other:
        return
    if not (isinstance(one, TimeWindow) and isinstance(other, TimeWindow)):
        what = (
            "sessions are" if isinstance(one, Session) or isinstance(other, Session) else "these windows are"
        )
        raise UnsupportedError(
            f"{what} the same for both sides; only tumbling and sliding windows may differ"
        )
    apart = (one.offset + one.size) - (other.offset + other.size)
    if apart % gcd(one.every, other.every):
        raise WindowError(
            "the windows of the two sides never end at the same time, and only such windows meet; change an offset="
        )


def _check_algorithm(options: Options, pairing: Pairing, keys: Keys) -> None:
    if options.algorithm == "auto":
        return
    if not (isinstance(pairing, InWindow) and keys):
        raise UnsupportedError(
            f"algorithm={options.algorithm!r} is for joins in windows on equal keys; leave it out here"
        )
    if isinstance(pairing.left, Session):
        raise UnsupportedError(
            f"algorithm={options.algorithm!r}: a session has rows of one key, which all meet, so there is nothing "
            "to choose; leave it out here"
        )
    if options.how in LEFT_ROW_KINDS and windows_overlap(pairing):
        raise UnsupportedError(
            f"algorithm={options.algorithm!r} gives pairs of one window, and how={options.how!r} looks at all windows "
            "that hold a row together; leave it out here, or use windows that do not overlap"
        )


# --- tables -----------------------------------------------------------------------------------------


def _looked_up(first: Plan, second: Plan, keys: Keys, tables: list[bool], options: Options) -> Plan:
    if all(tables):
        raise UnsupportedError("both sides are tables, and none has a time; join a stream with a table")
    if options.within is not None:
        raise WindowError("within= compares times, and a table has none; leave it out")
    place = tables.index(True)
    kept = ("inner", "left", *LEFT_ROW_KINDS) if place else ("inner", "right")
    if options.how not in kept:
        raise UnsupportedError(
            f"how={options.how!r} would give rows of the table that no event has met, which have no time; "
            f"with the table on the {'right' if place else 'left'} it is one of {', '.join(map(repr, kept))}"
        )
    where = _condition(options.where, first, second)
    if not keys and where is None:
        raise ExpressionTypeError("a table is looked up by keys or by a condition; give on= or where=")
    _check_algorithm(options, Lookup(place), keys)
    plan = Join(first, second, keys, Lookup(place), options.how, where, options.suffix)
    return (
        plan if options.window is None or options.how in LEFT_ROW_KINDS else _in_windows(plan, options.window)
    )


def _in_windows(plan: Plan, window: object) -> Plan:
    """Assign each result of a table lookup to the windows of its event."""
    bounds = (WINDOW_START, WINDOW_END)
    if isinstance(window, (tuple, list)):
        raise WindowError("a table has no windows of its own; give one window")
    if set(bounds) & set(schema_of(plan).names):
        raise SchemaMismatchError("these rows have window_start and window_end already; rename or drop them")
    both = window_spec(window).resolve(time_of(plan))
    _refuse_counts(both)
    attached = Attach(plan, both, (), ())
    names = [*bounds, *(name for name in schema_of(plan).names)]
    return projected(attached, tuple(Field(name, Column(name)) for name in names))


# --- as-of joins ------------------------------------------------------------------------------------


def joined_asof(
    first: Plan,
    second: Plan,
    by: object,
    tolerance: Duration | None,
    direction: str,
    exact: bool,
    suffix: str,
) -> Plan:
    """Build the plan of `Stream.join_asof`."""
    _one_of(direction, DIRECTIONS, "direction")
    _require_suffix(suffix)
    refuse_tables(first, second, "join_asof")
    first, second, keys = common_keys(first, second, by, by)
    first, second = on_one_clock(first, second)
    most = None if tolerance is None else to_ticks(tolerance, time_of(first), "the tolerance of join_asof")
    if most is not None and most < 0:
        raise WindowError(f"the tolerance of join_asof is {tolerance!r}; it cannot be negative")
    if not isinstance(exact, bool):
        raise ExpressionTypeError(f"allow_exact_matches is {exact!r:.40}; it is True or False")
    return AsofJoin(first, second, keys, direction, most, exact, suffix)


def refuse_tables(first: Plan, second: Plan, what: str) -> None:
    if not sources_of(first) or not sources_of(second):
        raise UnsupportedError(f"{what} compares times, and a table has none; use join for tables")
