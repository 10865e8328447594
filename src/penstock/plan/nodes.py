"""The logical plan: the query as written, one node per verb, independent of execution.

    plan ::= Source(name, schema, time, …)        a stream, declared or bound
           | Filter(input, predicate)             keep the rows for which predicate is true
           | Project(input, fields)               select, with_columns, drop and rename
           | Union(inputs)                        all rows of all inputs, same schema
           | Distinct(input, subset, keep, within)   one row for each value of the subset
           | Aggregate(input, window, by, fields) one row for each window and key
           | Attach(input, window, by, fields)    every row, once per window, with its aggregates
           | Lookback(input, spans, by, fields)   every row, with aggregates over the rows before it
           | Apply(input, window, by, function)   the rows a Python function returns for each window
           | TopK(input, k, by, ties)             the k largest rows of each window
           | Intervals(inputs, program)           the intervals on which a signal over the inputs is constant
           | Table(name, schema)                  rows without time, which only joins read
           | Join(left, right, on, pairing, how, where, …)   pairs of matching rows
           | AsofJoin(left, right, on, direction, …)   every left row, with the nearest right one
           | RollingJoin(left, right, on, within, fields)   every left row, with aggregates over right ones
    window  ::= a window type of `types/windows.py`
    pairing ::= InWindow(left, right) | Within(lo, hi) | Lookup(table)   as in `types/windows.py`

Sizes are integer ticks of the stream's time unit: durations are resolved when a window is attached
to a stream. `schema.py` has the columns and the time of any node's result. Nodes are interned: a plan is a graph, in
which equal parts are one node, and limits count distinct nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa

from penstock.expr import interning
from penstock.expr.interning import InternedNode
from penstock.expr.nodes import Expr, Field
from penstock.ir.signals.nodes import Program
from penstock.types.time import Time
from penstock.types.windows import Keys, LookBack, Pairing, Window, Within

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Edges:
    """Where late and malformed rows go, and after how many microseconds an idle split stops holding the watermark.

    Late rows go to a folder or a function, malformed rows to a folder. `lateness_given` and `on_bad_given` mark the
    lateness and the handling of malformed rows as set by the user, not by default. `arrival` is the clock, in nanoseconds
    since the epoch, of a stream whose rows are stamped when they arrive.
    """

    late_to: str | Callable[[pa.RecordBatch], object] | None = None
    quarantine_to: str | None = None
    idle_after: int | None = None
    lateness_given: bool = False
    on_bad_given: bool = False
    arrival: Callable[[], int] | None = None

    @property
    def expects_late_rows(self) -> bool:
        """Whether the user configured late rows."""
        return self.lateness_given or self.late_to is not None

    @property
    def moves_with_clock(self) -> bool:
        """Whether the watermark can advance without a row."""
        return self.arrival is not None or self.idle_after is not None


@dataclass(frozen=True, slots=True, eq=False)
class Source(InternedNode):
    """A stream. `schema` omits an implied time column; `lateness` is in ticks."""

    _unhashed = 1  # the schema

    name: str
    schema: pa.Schema
    time: Time
    sequence: str | None = None
    lateness: int = 0
    on_bad: str = "drop"
    edges: Edges = Edges()

    @property
    def given(self) -> pa.Schema:
        """The columns that data must have: all but an arrival time."""
        if self.edges.arrival is None:
            return self.schema
        return self.schema.remove(self.schema.get_field_index(self.time.column))


@dataclass(frozen=True, slots=True, eq=False)
class Filter(InternedNode):
    input: Plan
    predicate: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Project(InternedNode):
    """`fields` is the complete list of result columns, in order. `time` names the time column among them."""

    input: Plan
    fields: tuple[Field, ...]
    time: str


@dataclass(frozen=True, slots=True, eq=False)
class Union(InternedNode):
    inputs: tuple[Plan, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Distinct(InternedNode):
    input: Plan
    subset: tuple[str, ...]
    keep: str = "first"
    within: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate(InternedNode):
    input: Plan
    window: Window
    by: tuple[str, ...]
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Attach(InternedNode):
    input: Plan
    window: Window
    by: tuple[str, ...]
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Lookback(InternedNode):
    """`fields[i]` are computed over `spans[i]`. With `rows` all columns are kept, else the time and the keys."""

    input: Plan
    spans: tuple[LookBack, ...]
    by: tuple[str, ...]
    fields: tuple[tuple[Field, ...], ...]
    rows: bool


@dataclass(frozen=True, slots=True, eq=False)
class Apply(InternedNode):
    """`function` takes a table of one window's rows and returns a table of `schema`, of any length."""

    input: Plan
    window: Window
    by: tuple[str, ...]
    function: Callable[[pa.Table], Any]
    schema: pa.Schema


@dataclass(frozen=True, slots=True, eq=False)
class TopK(InternedNode):
    """`ties` is "first" (exactly k rows, earlier rows win) or "all" (rows equal to the k-th too)."""

    input: Plan
    k: int
    by: str
    ties: str = "first"


@dataclass(frozen=True, slots=True, eq=False)
class Intervals(InternedNode):
    """The program names its inputs by number: "0", "1", …"""

    inputs: tuple[Plan, ...]
    program: Program


@dataclass(frozen=True, slots=True, eq=False)
class Table(InternedNode):
    """Rows without time, complete before the first event."""

    _unhashed = 1  # the schema

    name: str
    schema: pa.Schema


@dataclass(frozen=True, slots=True, eq=False)
class Join(InternedNode):
    left: Plan
    right: Plan
    on: Keys
    pairing: Pairing
    how: str
    where: Expr | None
    suffix: str
    algorithm: str = "auto"
    optimise: str = "throughput"


@dataclass(frozen=True, slots=True, eq=False)
class AsofJoin(InternedNode):
    """`tolerance` is the largest distance in ticks; `exact` lets rows of the same time match."""

    left: Plan
    right: Plan
    on: Keys
    direction: str
    tolerance: int | None
    exact: bool
    suffix: str


@dataclass(frozen=True, slots=True, eq=False)
class RollingJoin(InternedNode):
    """In `fields`, aggregates read columns of the right input, all other expressions those of the left."""

    left: Plan
    right: Plan
    on: Keys
    within: Within
    fields: tuple[Field, ...]


Joined = Join | AsofJoin | RollingJoin


Alone = Filter | Project | Distinct | Aggregate | Attach | Lookback | Apply | TopK  # nodes over one input
Plan = Source | Table | Union | Intervals | Alone | Joined


def inputs(plan: Plan) -> tuple[Plan, ...]:
    """List the direct inputs of a node."""
    match plan:
        case Source() | Table():
            return ()
        case Union(inputs=several) | Intervals(inputs=several):
            return several
        case (
            Join(left=left, right=right)
            | AsofJoin(left=left, right=right)
            | RollingJoin(left=left, right=right)
        ):
            return left, right
        case _:
            return (plan.input,)


def with_inputs(plan: Plan, new: tuple[Plan, ...]) -> Plan:
    """Return a node over other inputs, in the order of `inputs`."""
    match plan:
        case Source() | Table():
            return plan
        case Union() | Intervals():
            return replace(plan, inputs=new)
        case Join() | AsofJoin() | RollingJoin():
            return replace(plan, left=new[0], right=new[1])
        case _:
            return replace(plan, input=new[0])


def ordered(plan: Plan) -> list[Plan]:
    """List the distinct nodes of a plan, inputs before their readers."""
    return interning.ordered([plan], inputs)


def rewrite(plan: Plan, rule: Callable[[Plan], Plan]) -> Plan:
    """Apply `rule` to every distinct node once, inputs first."""
    made: dict[int, Plan] = {}
    for node in ordered(plan):
        below = tuple(made[id(input_)] for input_ in inputs(node))
        made[id(node)] = rule(node if below == inputs(node) else with_inputs(node, below))
    return made[id(plan)]


def fact(plan: Plan, name: str, derive: Callable[[Plan], T]) -> T:
    """Return a property that a node derives from its inputs' and its own; it is computed once per node."""
    if name not in plan.facts:
        for node in interning.ordered([plan], lambda node: [n for n in inputs(node) if name not in n.facts]):
            node.facts[name] = derive(node)
    found: T = plan.facts[name]
    return found
