"""Hypothesis strategies for whole queries, each together with the data it runs on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
from hypothesis import strategies as st

from tests.oracle import describe as d
from tests.oracle.expressions import Grower
from tests.oracle.strategies import AWKWARD_NAMES, Column, Dataset, datasets, tables


@dataclass(frozen=True, slots=True)
class Case:
    query: d.Query
    datasets: tuple[Dataset, ...]

    @property
    def tables(self) -> dict[str, pa.Table]:
        return {dataset.name: dataset.table for dataset in self.datasets}


@dataclass(frozen=True, slots=True)
class Shape:
    """A query under construction and the columns it offers; `clock` offers times to predicates too."""

    query: d.Query
    columns: tuple[Column, ...]
    clock: bool = True


def _is_key(column: Column) -> bool:
    return column.exact and column.name not in ("window_start", "window_end")


@st.composite
def new_names(draw: st.DrawFn, taken: tuple[Column, ...], many: int) -> list[str]:
    used = {column.name for column in taken} | {"t", "window_start", "window_end"}
    free = [name for name in (*AWKWARD_NAMES, *(f"c{i}" for i in range(8))) if name not in used]
    return draw(st.lists(st.sampled_from(free), min_size=many, max_size=many, unique=True))


def _predicate(draw: st.DrawFn, shape: Shape, depth: int) -> d.Node:
    time = Column("t", d.source_of(shape.query).time.type)
    seen = (time, *shape.columns) if shape.clock and d.keeps_time(shape.query) else shape.columns
    return Grower(draw, seen).boolean(depth)


def filtered(draw: st.DrawFn, shape: Shape) -> Shape:
    return replace(shape, query=d.Filter(shape.query, _predicate(draw, shape, draw(st.integers(0, 3)))))


def _grown(draw: st.DrawFn, shape: Shape, names: list[str]) -> tuple[d.Fields, tuple[Column, ...]]:
    grower = Grower(draw, shape.columns)
    made = [grower.field(name, draw(st.integers(0, 3))) for name in names]
    fields = tuple((name, node) for name, (node, _) in zip(names, made, strict=True))
    return fields, tuple(column for _, column in made)


def extended(draw: st.DrawFn, shape: Shape) -> Shape:
    """Add columns, sometimes replacing one that exists."""
    names = draw(new_names(shape.columns, draw(st.integers(1, 2))))
    replaceable = [c.name for c in shape.columns if not c.name.startswith("window_")]
    if replaceable and draw(st.integers(0, 3)) == 0:
        names = [draw(st.sampled_from(replaceable)), *names[1:]]
    fields, added = _grown(draw, shape, names)
    new = {column.name: column for column in added}
    kept = tuple(new.pop(column.name, column) for column in shape.columns)
    return replace(shape, query=d.With(shape.query, fields), columns=kept + tuple(new.values()))


def selected(draw: st.DrawFn, shape: Shape) -> Shape:
    fields, columns = _grown(draw, shape, draw(new_names((), draw(st.integers(1, 3)))))
    bounds = tuple(column for column in shape.columns if column.name in ("window_start", "window_end"))
    columns = bounds + columns
    return replace(shape, query=d.Select(shape.query, fields), columns=columns)


def deduplicated(draw: st.DrawFn, shape: Shape) -> Shape:
    keys = [column.name for column in shape.columns if column.exact]
    if not keys or any(not column.exact for column in shape.columns):
        return shape
    subset = draw(st.none() | st.lists(st.sampled_from(keys), min_size=1, max_size=2, unique=True).map(tuple))
    return replace(shape, query=d.Distinct(shape.query, subset))


@st.composite
def frames(draw: st.DrawFn) -> tuple[int, int, int]:
    """Draw size, slide and offset: the slide divides the size, or not, or exceeds it."""
    size = draw(st.integers(1, 30))
    divisors = [n for n in range(1, size + 1) if size % n == 0 and size // n <= 20]
    every = draw(st.just(size) | st.sampled_from(divisors) | st.integers(max(1, size // 20), size + 7))
    return size, every, draw(st.just(0) | st.integers(-2 * every, 2 * every))


def _keys(draw: st.DrawFn, shape: Shape, most: int) -> tuple[Column, ...]:
    usable = [column for column in shape.columns if _is_key(column)]
    many = draw(st.integers(0, min(most, len(usable))))
    return tuple(draw(st.permutations(usable))[:many])


def _aggregates(
    draw: st.DrawFn, shape: Shape, taken: tuple[Column, ...]
) -> tuple[d.Fields, tuple[Column, ...]]:
    grower = Grower(draw, shape.columns)
    names = draw(new_names(taken, draw(st.integers(1, 4))))
    made = [grower.aggregate(name, draw(st.integers(0, 2))) for name in names]
    fields = tuple((name, node) for name, (node, _) in zip(names, made, strict=True))
    return fields, tuple(column for _, column in made)


def _bounds(shape: Shape, query: d.Query) -> tuple[Column, ...]:
    dtype = d.source_of(query).time.type
    return (Column("window_start", dtype), Column("window_end", dtype)) if shape.clock else ()


def windowed(draw: st.DrawFn, shape: Shape) -> Shape:
    keys = _keys(draw, shape, 3)
    fields, added = _aggregates(draw, shape, keys)
    size, every, offset = draw(frames())
    query = d.Window(shape.query, size, every, offset, tuple(key.name for key in keys), fields)
    result = tuple(replace(key, divisor=False) for key in keys)
    return replace(shape, query=query, columns=(*_bounds(shape, query), *result, *added))


def attached(draw: st.DrawFn, shape: Shape) -> Shape:
    keys = _keys(draw, shape, 2)
    fields, added = _aggregates(draw, shape, shape.columns)
    size, every, offset = draw(frames())
    query = d.Attach(shape.query, size, every, offset, tuple(key.name for key in keys), fields)
    return replace(shape, query=query, columns=(*shape.columns, *_bounds(shape, query), *added))


def regrouped(draw: st.DrawFn, shape: Shape) -> Shape:
    keys = _keys(draw, shape, 2)
    fields, added = _aggregates(draw, shape, keys)
    query = d.Regroup(shape.query, tuple(key.name for key in keys), fields)
    return replace(shape, query=query, columns=(*_bounds(shape, query), *keys, *added))


def beside(draw: st.DrawFn, shape: Shape) -> Shape:
    keys = _keys(draw, shape, 2)
    fields, added = _aggregates(draw, shape, shape.columns)
    query = d.Beside(shape.query, tuple(key.name for key in keys), fields)
    return replace(shape, query=query, columns=shape.columns + added)


def doubled(draw: st.DrawFn, shape: Shape) -> Shape:
    """Unite a window's result with a filtered copy of itself."""
    return replace(shape, query=d.Union(shape.query, filtered(draw, shape).query))


def topped(draw: st.DrawFn, shape: Shape) -> Shape:
    usable = [column for column in shape.columns if _is_key(column)]
    if not usable:
        return shape
    by = draw(st.sampled_from(usable)).name
    return replace(shape, query=d.Top(shape.query, draw(st.integers(1, 3)), by))


@st.composite
def sources(draw: st.DrawFn, clock: bool = True) -> tuple[Shape, tuple[Dataset, ...]]:
    """Draw a source, or the union of two, or of a source with a filtered copy of itself."""
    first = draw(datasets())
    shape = Shape(d.Source(first.name, first.time), first.columns, clock)
    match draw(st.sampled_from(["one", "one", "one", "one", "two", "self"])):
        case "two":
            second = replace(first, name="more", table=draw(tables(first.time, first.columns)))
            both = d.Union(shape.query, d.Source(second.name, first.time))
            return replace(shape, query=both), (first, second)
        case "self":
            return replace(shape, query=d.Union(filtered(draw, shape).query, shape.query)), (first,)
        case _:
            return shape, (first,)


@st.composite
def row_shapes(
    draw: st.DrawFn, distinct: bool = True, clock: bool = True
) -> tuple[Shape, tuple[Dataset, ...]]:
    """Draw a source with up to two row verbs."""
    shape, data = draw(sources(clock))
    verbs = [filtered, extended, selected]
    if distinct and len(data) == 1 and not isinstance(shape.query, d.Union):
        verbs.append(deduplicated)
    for _ in range(draw(st.integers(0, 2))):
        shape = draw(st.sampled_from(verbs))(draw, shape)
    return shape, data


@st.composite
def row_queries(draw: st.DrawFn) -> Case:
    shape, data = draw(row_shapes())
    return Case(draw(st.sampled_from([filtered, extended, selected]))(draw, shape).query, data)


@st.composite
def window_queries(draw: st.DrawFn, distinct: bool = True, tail: bool = True, clock: bool = True) -> Case:
    """Draw a windowed query, with up to two further verbs over its result."""
    shape, data = draw(row_shapes(distinct, clock))
    shape = windowed(draw, shape)
    for _ in range(draw(st.integers(0, 2)) if tail else 0):
        verbs = [filtered, extended, selected, topped, windowed, windowed, regrouped, beside, doubled]
        shape = draw(st.sampled_from(verbs))(draw, shape)
        if isinstance(shape.query, d.With | d.Window) and draw(st.booleans()):
            break
    return Case(shape.query, data)


@st.composite
def attach_queries(draw: st.DrawFn) -> Case:
    shape, data = draw(row_shapes(distinct=False))
    shape = attached(draw, shape)
    for _ in range(draw(st.integers(0, 2))):
        shape = draw(st.sampled_from([filtered, topped, regrouped, beside, windowed]))(draw, shape)
    return Case(shape.query, data)


def any_queries() -> st.SearchStrategy[Case]:
    return window_queries() | window_queries() | row_queries() | attach_queries()
