"""Hypothesis strategies for the whole matrix: window x aggregate x keys x filters x order of arrival.

What is drawn is Penstock's own surface (`pk.session(5)`, `pk.median("v")`): the answer to compare with comes from
the interpreter, which defines it, so that no second description is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import penstock as pk
from tests.oracle.describe import TimeSpec
from tests.oracle.matrix_data import ROLES, table_of
from tests.oracle.strategies import row_counts, time_specs, times

Loosen = Callable[[float, float], float]


@dataclass(frozen=True, eq=False)
class Field:
    """An aggregate; `scale` measures its input, and `loosen(value, scale)` tells by how much it may be off."""

    expr: Any
    scale: Any = None
    loosen: Loosen | None = None

    def __repr__(self) -> str:
        return repr(self.expr)


@dataclass(frozen=True, eq=False)
class Keep:
    """A filter before, between or behind windows."""

    predicate: Any


@dataclass(frozen=True, eq=False)
class Windowed:
    window: Any
    by: tuple[str, ...]
    fields: dict[str, Field]
    rows: bool = False


@dataclass(frozen=True, eq=False)
class Rolling:
    sizes: list[Any]
    by: tuple[str, ...]
    fields: dict[str, Field]
    rows: bool = False
    closed: str = "right"
    delay: Any = None


Step = Keep | Windowed | Rolling


@dataclass(frozen=True, eq=False)
class Case:
    """A query over one stream, with its rows in order of arrival."""

    table: pa.Table
    time: TimeSpec
    steps: tuple[Step, ...]
    sequence: str | None = None
    scaled: dict[str, Field] = field(default_factory=dict)


def build(case: Case, source: Any, scales: bool = False) -> Any:
    """Write the query over a stream; with `scales`, beside what measures the errors it may have."""
    for step in case.steps:
        source = _step(step, source, scales)
    return source


def _step(step: Step, source: Any, scales: bool) -> Any:
    match step:
        case Keep(predicate=predicate):
            return source.filter(predicate)
        case Windowed(window=window, by=by):
            windows = source.window(by=list(by)) if window is None else source.window(window, by=list(by))
            return (windows.with_columns if step.rows else windows.agg)(**_named(step.fields, scales))
        case Rolling(sizes=sizes, by=by):
            size = sizes if len(sizes) > 1 else sizes[0]
            behind = source.rolling(size, by=list(by), closed=step.closed, delay=step.delay)
            return (behind.with_columns if step.rows else behind.agg)(**_named(step.fields, scales))


def _named(fields: dict[str, Field], scales: bool) -> dict[str, Any]:
    named = {name: spec.expr for name, spec in fields.items()}
    if scales:
        named |= {f"scale_{name}": spec.scale for name, spec in fields.items() if spec.scale is not None}
    return named


# --- aggregates ---------------------------------------------------------------------------------------------

NUMBERS = ("x", "w", "v", "e", "g")
ORDERED = ("x", "w", "v", "e", "b", "m", "d", "s", "f")
ANY = (*ORDERED, "k", "q")
LISTED = ("x", "w", "v", "b", "m")


def _where(draw: st.DrawFn) -> Any:
    """Draw a condition for one aggregate: most have none."""
    conditions = [None, None, None, pk.col("b"), pk.col("x") > 2, pk.col("v") > 0, pk.col("m") == "a"]
    return draw(st.sampled_from(conditions))


def _size_of(value: Any) -> Any:
    return value.cast("float64").abs()


def _sum(draw: st.DrawFn, where: Any) -> Field:
    name = draw(st.sampled_from(NUMBERS))
    value = pk.col(name) * 0.5 if name == "v" and draw(st.booleans()) else pk.col(name)
    if name in ("x", "w"):
        return Field(pk.sum(value, where=where))
    return Field(pk.sum(value, where=where), pk.sum(_size_of(value), where=where), lambda v, s: 1e-12 * s)


def _mean(draw: st.DrawFn, where: Any) -> Field:
    value = pk.col(draw(st.sampled_from(NUMBERS)))
    scale = pk.mean(_size_of(value), where=where)
    return Field(pk.mean(value, where=where), scale, lambda v, s: 1e-12 * s)


def _product(draw: st.DrawFn, where: Any) -> Field:
    name = draw(st.sampled_from(["x", "h", "v", "e"]))
    if name == "x":
        return Field(pk.product(name, where=where))
    return Field(pk.product(name, where=where), pk.count(), lambda v, s: 1e-12 * abs(v) + 1e-322)


def _spread(draw: st.DrawFn, where: Any) -> Field:
    """Variances of numbers that are multiples of 1/8: what is lost to rounding is far below."""
    value, ddof = pk.col(draw(st.sampled_from(["x", "g"]))), draw(st.sampled_from([0, 1, 1, 2]))
    largest = pk.max(_size_of(value), where=where)
    if draw(st.booleans()):
        return Field(pk.var(value, ddof, where=where), largest, lambda v, s: 1e-10 * v + 1e-14 * s * s)
    return Field(
        pk.std(value, ddof, where=where), largest, lambda v, s: 1e-10 * v + (1e-14 * s * s / v if v else 1e-7)
    )


def _shape(draw: st.DrawFn, where: Any) -> Field:
    value, bias = pk.col(draw(st.sampled_from(["x", "g"]))), draw(st.booleans())
    if draw(st.booleans()):
        return Field(pk.skew(value, bias=bias, where=where), pk.count(), _shape_error)
    fisher = draw(st.booleans())
    return Field(pk.kurtosis(value, fisher=fisher, bias=bias, where=where), pk.count(), _shape_error)


def _shape_error(value: float, scale: float) -> float:
    return 1e-7 * (1 + abs(value))


def _together(draw: st.DrawFn, where: Any) -> Field:
    x, y = (pk.col(draw(st.sampled_from(["x", "g", "h"]))) for _ in range(2))
    if draw(st.booleans()):
        return Field(pk.corr(x, y, where=where), pk.count(), _shape_error)
    scale = pk.max(_size_of(x), where=where) * pk.max(_size_of(y), where=where)
    ddof = draw(st.sampled_from([0, 1]))
    return Field(pk.cov(x, y, ddof, where=where), scale, lambda v, s: 1e-10 * abs(v) + 1e-13 * s)


def _count(draw: st.DrawFn, where: Any) -> Field:
    name = draw(st.none() | st.sampled_from(ANY))
    return Field(pk.count(where=where) if name is None else pk.count(name, where=where))


def _ranked(draw: st.DrawFn, where: Any) -> Field:
    """Draw what orders values: exact, though a quantile is computed in floats."""
    match draw(st.sampled_from(["median", "quantile", "quantile", "mode", "count_distinct"])):
        case "median":
            return Field(pk.median(draw(st.sampled_from(NUMBERS)), where=where))
        case "quantile":
            q = draw(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]))
            return Field(pk.quantile(draw(st.sampled_from(NUMBERS)), q, where=where))
        case name:
            return Field(getattr(pk, name)(draw(st.sampled_from(ORDERED)), where=where))


def _chosen(draw: st.DrawFn, where: Any) -> Field:
    match draw(st.sampled_from(["min", "max", "min_by", "max_by", "first", "last", "any", "all", "list"])):
        case ("min" | "max") as name:
            return Field(getattr(pk, name)(draw(st.sampled_from(ORDERED)), where=where))
        case ("min_by" | "max_by") as name:
            value, by = draw(st.sampled_from(ORDERED)), draw(st.sampled_from(ORDERED))
            return Field(getattr(pk, name)(value, by, where=where))
        case ("first" | "last") as name:
            skips = draw(st.booleans())
            return Field(getattr(pk, name)(draw(st.sampled_from(ANY)), ignore_nulls=skips, where=where))
        case "list":
            return Field(pk.list(draw(st.sampled_from(LISTED)), where=where))
        case name:
            return Field(
                getattr(pk, name)(draw(st.sampled_from([pk.col("b"), pk.col("x") > 3])), where=where)
            )


KINDS = (_count, _sum, _mean, _product, _spread, _shape, _together, _ranked, _ranked, _chosen, _chosen)
EXACT = (_count, _ranked, _chosen)


@st.composite
def fields(draw: st.DrawFn, exact: bool = False) -> dict[str, Field]:
    """Draw one to four aggregates of mixed kinds, named so that their errors can be found again."""
    kinds = draw(st.lists(st.sampled_from(EXACT if exact else KINDS), min_size=1, max_size=4))
    made = [kind(draw, _where(draw)) for kind in kinds]
    if exact:
        made = [spec for spec in made if "list(" not in repr(spec)] or [Field(pk.count())]
    return {f"c{place}": spec for place, spec in enumerate(made)}


# --- windows ------------------------------------------------------------------------------------------------


def _grid(draw: st.DrawFn, time: TimeSpec) -> Any:
    """Draw a tumbling or sliding window: the slide divides the size, or not, or exceeds it."""
    size, offset = draw(st.integers(1, 30)), draw(st.sampled_from([None, None, 3, -4]))
    late = None if offset is None else time.duration(offset)
    if draw(st.booleans()):
        return pk.tumbling(time.duration(size), offset=late)
    return pk.sliding(time.duration(size), time.duration(draw(st.integers(1, size + 7))), offset=late)


def _session(draw: st.DrawFn, time: TimeSpec) -> Any:
    return pk.session(time.duration(draw(st.integers(1, 12))))


def _rows(draw: st.DrawFn, time: TimeSpec) -> Any:
    size = draw(st.integers(1, 6))
    return pk.rows(size, draw(st.none() | st.integers(1, size + 3)), draw(st.booleans()))


def _unbounded(draw: st.DrawFn, time: TimeSpec) -> Any:
    return pk.unbounded()


WINDOWS = (_grid, _session, _rows, _unbounded)


def _keys(draw: st.DrawFn) -> tuple[str, ...]:
    return draw(st.sampled_from([(), ("k",), ("s",), ("f",), ("b",), ("k", "s"), ("f", "d")]))


def windowed(draw: st.DrawFn, time: TimeSpec, exact: bool, window: Any = None) -> Windowed:
    chosen = window or draw(st.sampled_from(WINDOWS))(draw, time)
    return Windowed(chosen, _keys(draw), draw(fields(exact)), draw(st.booleans()))


def rolling(draw: st.DrawFn, time: TimeSpec, exact: bool) -> Rolling:
    """Draw one or several look-backs over time or rows, closed in any way, perhaps delayed."""
    spans: st.SearchStrategy[Any] = st.integers(1, 20).map(time.duration) | st.integers(1, 5).map(pk.rows)
    sizes = draw(st.lists(spans, min_size=1, max_size=draw(st.sampled_from([1, 1, 3])), unique_by=repr))
    by_rows = any(not isinstance(size, int | str) for size in sizes)
    closed = draw(st.sampled_from(["right", "left"] if by_rows else ["right", "left", "both", "none"]))
    delay = draw(st.sampled_from([None, None, 1, 5]))
    late = None if delay is None else time.duration(delay)
    return Rolling(sizes, _keys(draw), draw(fields(exact)), draw(st.booleans()), closed, late)


def _filters(draw: st.DrawFn) -> tuple[Step, ...]:
    if draw(st.integers(0, 2)):
        return ()
    conditions = [
        pk.col("x") > 1,
        pk.col("b"),
        pk.col("m") != "a",
        pk.col("v") < 1,
        pk.col("k").is_not_null(),
    ]
    return (Keep(draw(st.sampled_from(conditions))),)


@st.composite
def cases(draw: st.DrawFn, order: bool = True) -> Case:
    """Draw a window or a look-back of any type, between filters, over rows in any order."""
    time = draw(time_specs())
    table = table_of(draw(st.integers(0, 2**32)), draw(times(time, draw(row_counts()))), time)
    step = draw(st.sampled_from([windowed, windowed, rolling]))(draw, time, False)
    sequence = draw(st.sampled_from([None, None, "q"])) if order else None
    return Case(table, time, (*_filters(draw), step, *_having(draw, step)), sequence, step.fields)


def _having(draw: st.DrawFn, step: Windowed | Rolling) -> tuple[Step, ...]:
    """Filter results, by what is known exactly."""
    names = [name for name, spec in step.fields.items() if spec.scale is None]
    if not names or (isinstance(step, Rolling) and len(step.sizes) > 1) or draw(st.integers(0, 2)):
        return ()
    return (Keep(pk.col(draw(st.sampled_from(names))).is_not_null()),)


# --- windows over windows -----------------------------------------------------------------------------------

KEEPING = ("first", "last", "min", "max", "mode")


def _representatives(draw: st.DrawFn, by: tuple[str, ...]) -> dict[str, Field]:
    """One aggregate for each role, of the role's own type: what stands behind is asked what rows are asked."""
    names = [name for name in ROLES if name not in by]
    return {name: Field(getattr(pk, draw(st.sampled_from(KEEPING)))(name)) for name in names}


def _first_step(draw: st.DrawFn, time: TimeSpec) -> Windowed | Rolling:
    step = draw(st.sampled_from([windowed, windowed, rolling]))(draw, time, True)
    if step.rows:
        return replace(step, fields={f"a{place}": spec for place, spec in enumerate(step.fields.values())})
    step = replace(step, fields=_representatives(draw, step.by))
    return replace(step, sizes=step.sizes[:1]) if isinstance(step, Rolling) else step


@st.composite
def nested_cases(draw: st.DrawFn) -> Case:
    """Draw a window or look-back over the results of another; what carries windows may be grouped by them."""
    time = draw(time_specs())
    table = table_of(draw(st.integers(0, 2**32)), draw(times(time, draw(row_counts()))), time)
    first = _first_step(draw, time)
    carries = isinstance(first, Windowed)
    if carries and draw(st.integers(0, 3)) == 0:
        second: Windowed | Rolling = Windowed(None, _keys(draw), draw(fields()), draw(st.booleans()))
    else:
        second = draw(st.sampled_from([windowed, rolling]))(draw, time, False)
        clashes = isinstance(second, Windowed) and second.rows and carries
        second = replace(second, rows=False) if clashes else second
    sequence = draw(st.sampled_from([None, "q"]))
    return Case(table, time, (*_filters(draw), first, *_filters(draw), second), sequence, second.fields)


# --- windows on the calendar --------------------------------------------------------------------------------

# Around these hours clocks change, or a day is left out.
CHANGES = {"Europe/Berlin": 1_774_746_000, "America/New_York": 1_793_516_400, "Pacific/Apia": 1_325_239_200}
LENGTHS = ("1h", "6h", "1d", "2d", "1w", "1mo", "3mo")


def _calendar(draw: st.DrawFn, zone: str) -> Any:
    size = draw(st.sampled_from(LENGTHS))
    if draw(st.booleans()):
        return pk.tumbling(size, offset=draw(st.sampled_from([None, "5h", "-2h"])), tz=zone)
    return pk.sliding(size, every=draw(st.sampled_from(["1d", "1w", "1mo"])), tz=zone)


@st.composite
def calendar_cases(draw: st.DrawFn) -> Case:
    """Draw days, weeks and months of a zone over rows around a change of its clocks."""
    zone, change = draw(st.sampled_from(list(CHANGES.items())))
    unit = draw(st.sampled_from(["s", "ms"]))
    time = TimeSpec(pa.timestamp(unit, draw(st.sampled_from([None, "UTC", zone]))), None, unit)
    apart = draw(st.sampled_from([1800, 6 * 3600, 5 * 86_400]))
    places = draw(st.lists(st.integers(-8, 8), max_size=30))
    ticks = [(change + place * apart) * (1 if unit == "s" else 1000) for place in places]
    table = table_of(draw(st.integers(0, 2**32)), ticks, time)
    step = windowed(draw, time, False, _calendar(draw, zone))
    return Case(table, time, (*_filters(draw), step, *_having(draw, step)), None, step.fields)
