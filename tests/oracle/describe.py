"""A neutral description of a query, from which Penstock, DuckDB and plain Python are each built.

    node  ::= Col | Lit | Op | Cast | When | IsIn | Agg
    query ::= Source | Filter | Select | With | Union | Distinct | Window | Attach | Regroup | Beside | Top

Nothing here knows Penstock: three independent translations (`build.py`, `sql.py`, `brute.py`) read it.
Times are integer ticks of the source's time column throughout.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Col:
    name: str


@dataclass(frozen=True, slots=True)
class Lit:
    """A constant; temporal values are ticks of `type`, and None is a null."""

    value: bool | int | float | str | None
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Op:
    name: str
    args: tuple[Node, ...]
    option: object = None


@dataclass(frozen=True, slots=True)
class Cast:
    arg: Node
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class When:
    condition: Node
    then: Node
    otherwise: Node


@dataclass(frozen=True, slots=True)
class IsIn:
    arg: Node
    values: tuple[Lit, ...]


@dataclass(frozen=True, slots=True)
class Agg:
    """A reduction; `unsigned` says that an integer sum is of uint64."""

    function: str
    arg: Node | None = None
    where: Node | None = None
    unsigned: bool = False


Node = Col | Lit | Op | Cast | When | IsIn | Agg
Fields = tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class TimeSpec:
    """How a source tells time. `unit` is what `unit=` says; `tick` names a duration of one tick."""

    type: pa.DataType
    unit: str | None
    tick: str | None

    def duration(self, ticks: int) -> str | int:
        return ticks if self.tick is None else f"{ticks}{self.tick}"


@dataclass(frozen=True, slots=True)
class Source:
    name: str
    time: TimeSpec


@dataclass(frozen=True, slots=True)
class Filter:
    input: Query
    predicate: Node


@dataclass(frozen=True, slots=True)
class Select:
    """Keep the time column (or the window's bounds) and `fields`."""

    input: Query
    fields: Fields


@dataclass(frozen=True, slots=True)
class With:
    input: Query
    fields: Fields


@dataclass(frozen=True, slots=True)
class Union:
    left: Query
    right: Query


@dataclass(frozen=True, slots=True)
class Distinct:
    input: Query
    subset: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Window:
    input: Query
    size: int
    every: int
    offset: int
    by: tuple[str, ...]
    fields: Fields


@dataclass(frozen=True, slots=True)
class Attach:
    input: Query
    size: int
    every: int
    offset: int
    by: tuple[str, ...]
    fields: Fields


@dataclass(frozen=True, slots=True)
class Regroup:
    """`result.window()`: group by the window the rows carry."""

    input: Query
    by: tuple[str, ...]
    fields: Fields


@dataclass(frozen=True, slots=True)
class Beside:
    """`result.window(by=…).with_columns(…)`: aggregates of the window carried, beside its rows."""

    input: Query
    by: tuple[str, ...]
    fields: Fields


@dataclass(frozen=True, slots=True)
class Top:
    input: Query
    k: int
    by: str


Query = Source | Filter | Select | With | Union | Distinct | Window | Attach | Regroup | Beside | Top


def source_of(query: Query) -> Source:
    """Find the leftmost source, whose time spec the whole query shares."""
    match query:
        case Source():
            return query
        case Union(left=left):
            return source_of(left)
        case _:
            return source_of(query.input)


def keeps_time(query: Query) -> bool:
    """Tell whether rows still carry the source's time column."""
    match query:
        case Source():
            return True
        case Window() | Regroup():
            return False
        case Union(left=left):
            return keeps_time(left)
        case _:
            return keeps_time(query.input)


def promises_order(query: Query) -> bool:
    """Tell whether results come by window: those of agg, and what keeps their order."""
    match query:
        case Window() | Regroup():
            return True
        case Filter(input=inner) | Select(input=inner) | With(input=inner) | Top(input=inner):
            return promises_order(inner)
        case _:
            return False


def depends_on_order(query: Query) -> bool:
    """Tell whether rows of equal time can be told apart by their position (only Distinct does)."""
    match query:
        case Source():
            return False
        case Union(left=left, right=right):
            return depends_on_order(left) or depends_on_order(right)
        case Distinct(subset=subset) if subset is not None:
            return True
        case _:
            return depends_on_order(query.input)


def size_of(query: Query) -> int:
    """Count the verbs, sources left out."""
    match query:
        case Source():
            return 0
        case Union(left=left, right=right):
            return 1 + size_of(left) + size_of(right)
        case _:
            return 1 + size_of(query.input)
