"""Relation-to-stream operators: the new rows of a window's result (SABER section 2.4, CQL)."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

import pyarrow as pa

from penstock.api.names import free_name
from penstock.errors import UnsupportedError, WindowError
from penstock.expr.nodes import Aggregate as Reduction
from penstock.expr.nodes import Call, Column, Field, Literal
from penstock.plan.nodes import (
    Aggregate,
    Apply,
    AsofJoin,
    Attach,
    Distinct,
    Filter,
    Join,
    Lookback,
    Plan,
    Project,
    RollingJoin,
    TopK,
    Union,
)
from penstock.plan.schema import carries_window, schema_of, sources_of, time_of
from penstock.types.arrow import kind_of
from penstock.types.windows import (
    WINDOW_BOUNDS,
    WINDOW_END,
    CarriedWindow,
    InWindow,
    LookBack,
    Lookup,
    TimeWindow,
    Unbounded,
    Window,
)


def require_windows(plan: Plan, what: str) -> None:
    """Reject rows that carry no window."""
    if not carries_window(plan):
        raise WindowError(
            f"{what} is about the results of windows, and these rows carry none; use .window(...) first"
        )


def fresh_columns(plan: Plan, columns: Sequence[str]) -> tuple[str, ...]:
    """Drop the columns that identify the window: with them, every row would be new."""
    bounds = _bounds(plan)
    return tuple(dict.fromkeys(name for name in columns if name not in bounds))


def _bounds(plan: Plan) -> dict[str, str]:
    """Map the columns that hold a window bound, also renamed, to that bound."""
    own = {name: name for name in WINDOW_BOUNDS}
    match plan:
        case Project(input=inner, fields=fields):
            before = _bounds(inner)
            copied = {
                field.name: before.get(field.expr.name) for field in fields if isinstance(field.expr, Column)
            }
            return {name: bound for name, bound in copied.items() if bound is not None}
        case Filter(input=inner) | TopK(input=inner) | Distinct(input=inner):
            return _bounds(inner)
        case Aggregate(fields=fields):
            return own | {
                field.name: field.expr.name
                for field in fields
                if isinstance(field.expr, Column) and field.expr.name in own
            }
        case _:
            return own


def fresh(plan: Plan, columns: Sequence[str]) -> Plan:
    """Keep the rows that do not occur in the previous window.

    The time of a window's results is its last tick. A look-back of one slide, keyed by all columns, therefore covers
    exactly the results of the previous window and counts the equal rows. Rows with other times (joins) are first
    reduced to the distinct rows of each window.
    """
    require_windows(plan, "istream")
    step = step_of(plan)
    if step == 0:  # a single window has no predecessor
        return plan
    if step is None:
        raise UnsupportedError(
            "istream compares a window with the one before it: that is known of tumbling and sliding windows, "
            "not of sessions, windows of rows and calendars"
        )
    _refuse_keys(plan, columns)
    hidden = free_name("equal", schema_of(plan).names)
    count = (Field(hidden, Reduction("count", ())),)
    if time_of(plan).column != WINDOW_END:
        plan = _different(plan, columns, hidden)
    seen = Lookback(plan, (LookBack(size=step, closed="left"),), tuple(columns), (count,), rows=True)
    new = Filter(seen, Call("eq", (Column(hidden), Literal(0, pa.int64()))))
    names = [name for name in schema_of(plan).names if name != hidden]
    return Project(new, tuple(Field(name, Column(name)) for name in names), time_of(plan).column)


def _different(plan: Plan, columns: Sequence[str], hidden: str) -> Plan:
    """Reduce each window to its distinct rows."""
    rows = (Field(hidden, Reduction("count", ())),)
    bounds = _bounds(plan)
    kept = [name for name in schema_of(plan).names if name in columns or name in bounds]
    fields = tuple(Field(name, Column(bounds.get(name, name))) for name in kept)
    return Project(Aggregate(plan, CarriedWindow(), tuple(columns), rows), fields, WINDOW_END)


def _refuse_keys(plan: Plan, columns: Sequence[str]) -> None:
    schema = schema_of(plan)
    if not columns:
        raise WindowError(
            "istream compares rows by their values, and these have only a time; keep another column"
        )
    for name in columns:
        if kind_of(schema.field(name).type) in ("other", "null"):
            raise UnsupportedError(
                f"istream compares rows, and the column {name!r} of type {schema.field(name).type} cannot be compared; drop it first"
            )


def step_of(plan: Plan) -> int | None:
    """Return the ticks between the windows that rows carry; 0 for a single window, None if it varies."""
    match plan:
        case (
            Aggregate(window=window, input=inner)
            | Attach(window=window, input=inner)
            | Apply(window=window, input=inner)
        ):
            return _step(window, inner)
        case Join(pairing=InWindow(left=first, right=second)):
            steps = [_step(first, plan.left), _step(second, plan.right)]
            return None if None in steps else lcm(*(step or 0 for step in steps))
        case Join(pairing=Lookup()):
            return step_of(plan.left if sources_of(plan.left) else plan.right)
        case Join(left=left) | AsofJoin(left=left) | RollingJoin(left=left):
            return step_of(left)
        case Union(inputs=several):
            steps = [step_of(reduction) for reduction in several]
            return steps[0] if len(set(steps)) == 1 else None
        case (
            Filter(input=inner)
            | Project(input=inner)
            | Distinct(input=inner)
            | TopK(input=inner)
            | Lookback(input=inner)
        ):
            return step_of(inner)
        case _:
            return None


def _step(window: Window, inner: Plan) -> int | None:
    match window:
        case TimeWindow(every=every):
            return every
        case CarriedWindow():
            return step_of(inner)
        case Unbounded():
            return 0
        case _:
            return None
