"""The IR of programs over time: its grammar, and the scope of the expressions of a node.

    program    ::= object* "out" name
    object     ::= "~"name = body                     each name is defined once, before its uses
    body       ::= Input(stream)                      samples of an input stream
                 | Samples(source, where, fields)     at every sample of source: a tuple of expressions,
                                                      φ (no sample) where the predicate is not true
                 | Reduce(source, domain, keys, reductions, where, fields, having)
                                                      for t in domain and each key:
                                                      ⊕(f, ~source[t - size : t)), then fields over them
                 | Attach(source, domain, keys, reductions, where, fields)
                                                      each sample with the same reductions of its window
                 | Lookback(source, spans, keys, reductions, fields, where)
                                                      at every sample: each reduction over the samples of its
                                                      key within spans[reduction.span]
                 | Apply(source, domain, keys, function, where)
                                                      the rows a Python function returns for each window
                 | Merge(sources)                     the samples of all sources, which have the same columns
                 | Distinct(source, subset, keep, within)
                                                      the first or last sample of each value; with `within`,
                                                      of each run of equal samples less than `within` long
                 | Top(source, k, by, ties)           the k largest samples of each window
                 | Signals(sources, program)          the intervals on which a signal is constant; the program,
                                                      in the language of `ir/signals/nodes.py`, samples sources "0", "1", …
                                                      The column of ends is omitted where no object reads it
                 | Table | Join | Asof | RollingJoin  pairs of samples of two objects
    reduction  ::= function(args) [where predicate]   over one window's samples
    domain     ::= a window type of `types/windows.py`; sessions and counts are by key
    span       ::= LookBack(size, rows, closed, delay)

Every object has a schema and a time (`Object`). `fields` lists every column of the result, in order, including
window bounds and keys. In the `fields` and `having` of a Reduce, `Reduced(i)` is the i-th reduction and `Column`
a key or window bound. In the `fields` of an Attach, `Column` is a window bound or a column of the source; window
bounds take precedence. `where` drops samples first: keys, arguments and fields are never evaluated (and never
fail) on samples where it is not true; likewise `fields` where `having` is not true. A `strict` Reduce
pre-aggregates one side of a join: as in the join, a sample before the watermark is late, even if its window is open.
Sizes are ticks of the source's time.

Samples are ordered by (time, sequence, position); `Input.sequence` names the column that breaks ties.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.expr.nodes import Aggregate, Expr, Field, Options
from penstock.expr.typing import column_type, type_of
from penstock.ir.signals import nodes as temporal
from penstock.types.time import Time
from penstock.types.windows import (
    JOIN_TIME,
    WINDOW_END,
    WINDOW_START,
    CarriedWindow,
    Keys,
    LookBack,
    Pairing,
    Window,
    Within,
    left_column,
    right_column,
)

# --- The joins of the IR's grammar; `nodes.py` has the rest.
#
#     body    ::= Table(name)                               rows without time, complete before the stream begins
#               | Join(left, right, on, pairing, how, where, fields)
#                                                           matching pairs of samples, and unmatched samples
#               | Asof(left, right, on, direction, tolerance, exact, fields)
#                                                           each left sample with the nearest right one
#               | RollingJoin(left, right, on, within, reductions, fields)
#                                                           at every left sample: each reduction over the right
#                                                           samples of its key in [t + lo, t + hi]
#     pairing ::= InWindow(left, right) | Within(lo, hi) | Lookup(table)   as in `types/windows.py`
#
# The fields of Join and Asof are columns of a pair: left.x, right.y, join_time and the window's bounds. Where the
# left sample is missing, the key column left.k holds the right sample's key. `where` is a predicate over left.x and
# right.y. In a RollingJoin, reductions read columns of the right side and fields read columns of the left side.
# Null keys never match.
#
# Order: InWindow orders results by window end and start, then by left sample, then by right sample; unmatched right
# samples follow. Within orders pairs by the later sample (at equal times the left one counts as earlier), then by the
# other; an unmatched sample is placed at the time when no match can arrive any more. Asof and RollingJoin keep the
# order of the left samples, Lookup that of the stream.


@dataclass(frozen=True, slots=True)
class Table:
    name: str


@dataclass(frozen=True, slots=True)
class Join:
    left: str
    right: str
    on: Keys
    pairing: Pairing
    how: str
    where: Expr | None
    fields: tuple[Field, ...]
    algorithm: str = "auto"
    optimise: str = "throughput"


@dataclass(frozen=True, slots=True)
class Asof:
    left: str
    right: str
    on: Keys
    direction: str
    tolerance: int | None
    exact: bool
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class RollingJoin:
    left: str
    right: str
    on: Keys
    within: Within
    reductions: tuple[Reduction, ...]
    fields: tuple[Field, ...]


Joined = Join | Asof | RollingJoin


@dataclass(frozen=True, slots=True)
class Reduction:
    function: str
    args: tuple[Expr, ...]
    where: Expr | None = None
    options: Options = ()
    span: int = 0


@dataclass(frozen=True, slots=True)
class Input:
    stream: str
    sequence: str | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    source: str
    where: Expr | None
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Reduce:
    source: str
    domain: Window
    keys: tuple[Field, ...]
    reductions: tuple[Reduction, ...]
    fields: tuple[Field, ...]
    where: Expr | None = None
    having: Expr | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Attach:
    source: str
    domain: Window
    keys: tuple[Field, ...]
    reductions: tuple[Reduction, ...]
    fields: tuple[Field, ...]
    where: Expr | None = None


@dataclass(frozen=True, slots=True)
class Lookback:
    source: str
    spans: tuple[LookBack, ...]
    keys: tuple[Field, ...]
    reductions: tuple[Reduction, ...]
    fields: tuple[Field, ...]
    where: Expr | None = None


@dataclass(frozen=True, slots=True)
class Apply:
    """The result's columns are the window's bounds, the keys, and the columns the function returns."""

    source: str
    domain: Window
    keys: tuple[Field, ...]
    function: Callable[[pa.Table], Any]
    where: Expr | None = None


@dataclass(frozen=True, slots=True)
class Merge:
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Distinct:
    source: str
    subset: tuple[str, ...]
    keep: str
    within: int | None = None


@dataclass(frozen=True, slots=True)
class Top:
    source: str
    k: int
    by: str
    ties: str


@dataclass(frozen=True, slots=True)
class Signals:
    sources: tuple[str, ...]
    program: temporal.Program


Windowed = Reduce | Attach | Lookback
Body = (
    Input
    | Samples
    | Reduce
    | Attach
    | Lookback
    | Apply
    | Merge
    | Distinct
    | Top
    | Signals
    | Table
    | Join
    | Asof
    | RollingJoin
)


@dataclass(frozen=True, slots=True)
class Object:
    """A temporal object: its definition, the schema of its samples, and their time."""

    name: str
    body: Body
    schema: pa.Schema
    time: Time


@dataclass(frozen=True, slots=True)
class Program:
    objects: tuple[Object, ...]
    output: str
    _by_name: dict[str, Object] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {obj.name: obj for obj in self.objects})

    def __getitem__(self, name: str) -> Object:
        return self._by_name[name]


def sources_of(body: Body) -> tuple[str, ...]:
    """Return the names of the objects that a definition reads."""
    match body:
        case Input() | Table():
            return ()
        case Merge(sources=several) | Signals(sources=several):
            return several
        case (
            Join(left=left, right=right) | Asof(left=left, right=right) | RollingJoin(left=left, right=right)
        ):
            return left, right
        case _:
            return (body.source,)


def result_type(reduction: Reduction, schema: pa.Schema) -> pa.DataType:
    """Return the type of a reduction over samples of the schema."""
    aggregate = Aggregate(reduction.function, reduction.args, reduction.where, reduction.options)
    return type_of(aggregate, schema)


def result_types(body: Windowed, source: Object) -> tuple[pa.DataType, ...]:
    """Return the types of `Reduced(0)`, `Reduced(1)`, … in the object's fields."""
    return tuple(result_type(reduction, source.schema) for reduction in body.reductions)


def result_scope(body: Reduce | Attach, source: Object) -> pa.Schema:
    """List the columns that `fields` and `having` may reference: window bounds, then keys or source columns."""
    bounds = [pa.field(name, _bound_type(name, body, source)) for name in (WINDOW_START, WINDOW_END)]
    if isinstance(body, Reduce):
        others = [pa.field(key.name, type_of(key.expr, source.schema)) for key in body.keys]
    else:
        others = [column for column in source.schema if column.name not in {WINDOW_START, WINDOW_END}]
    return pa.schema([*bounds, *others])


def _bound_type(name: str, body: Reduce | Attach, source: Object) -> pa.DataType:
    return column_type(name, source.schema) if isinstance(body.domain, CarriedWindow) else source.time.type


# --- The columns that fields and conditions of joins may reference, and the types of their reductions.


def pair_scope(time: Time, left: pa.Schema, right: pa.Schema) -> pa.Schema:
    """List the columns of a pair of samples: the window's bounds, left.x, right.y, and the later time."""
    clock = time.type
    return pa.schema(
        [
            *(pa.field(name, clock) for name in (WINDOW_START, WINDOW_END)),
            *(pa.field(left_column(field.name), field.type) for field in left),
            *(pa.field(right_column(field.name), field.type) for field in right),
            pa.field(JOIN_TIME, clock),
        ]
    )


def rolling_types(body: RollingJoin, right: Object) -> tuple[pa.DataType, ...]:
    """Return the types of `Reduced(0)`, `Reduced(1)`, … in the fields of a rolling join."""
    return tuple(result_type(reduction, right.schema) for reduction in body.reductions)
