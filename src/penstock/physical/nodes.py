"""The physical plan: which operator, which algorithm, which state layout, each with its reason.

    plan       ::= node* "out" id                  each node stands after its inputs; mode is bounded or unbounded
    node       ::= id = op(inputs)                 with a schema, a time, a watermark rule and choices
    op         ::= Scan(stream, sequence, lateness, on_bad, stores_time)
                 | TableInput(table)               rows without time, complete before the first row of a stream
                 | Rows(conjuncts, fields, host)   filter and projection; Arrow computes the host expressions
                 | PaneAggregate(window, keys, key_table, sharing, reductions, where, fields, having)
                                                   states per (pane, key), merged into windows
                 | SortedWindows(window, keys, reductions, output)
                                                   rows sorted by key and time; output: aggregate, attach or apply
                 | LookBack(spans, keys, reductions)
                                                   aggregates over the rows behind each row
                 | Signals(program, evaluation)    positional, or change-to-change
                 | Join(pairing, on, how, algorithm, eager, residual)
                 | Distinct(subset, keep, within) | TopK(k, by, ties) | Union()
    pairing    ::= InWindow | Within | Lookup      as in `types/pairing.py`
                 | Nearest(direction, tolerance, exact)   as-of: the nearest right row
                 | Around(lo, hi, reductions)      aggregates over the right rows in [t + lo, t + hi]
    watermark  ::= Follows()                       results are never older than the input watermark
                 | Lags(ticks)                     results are at most so much older
                 | OldestOpenWindow()              rows leave when their window closes, with their own time
                 | AtEnd(reason)                   time advances only at the end of input
    choice     ::= what, taken, reason, rejected*, assumptions*
    rejected   ::= alternative, reason
    assumption ::= text, fallback                  the operator goes on by the fallback at the row that breaks it

A plan is complete before any row is read. A choice that depends on data is the generic one here; its
assumptions name what the data may change. `counts_rows` says that an operator counts its input rows as
accepted, unless an operator before it has; the output counts the rest. So each row is counted once on every path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from penstock.expr.nodes import Expr, Field, Options
from penstock.types.pairing import InWindow, Keys, Lookup, Within
from penstock.types.time import Time
from penstock.types.windows import LookBack as Span
from penstock.types.windows import Window

Mode = Literal["bounded", "unbounded"]


@dataclass(frozen=True, slots=True)
class Rejected:
    alternative: str
    reason: str


@dataclass(frozen=True, slots=True)
class Assumption:
    text: str
    fallback: str


@dataclass(frozen=True, slots=True)
class Choice:
    what: str
    taken: str
    reason: str
    rejected: tuple[Rejected, ...] = ()
    assumptions: tuple[Assumption, ...] = ()


# --- watermark rules ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Follows:
    pass


@dataclass(frozen=True, slots=True)
class Lags:
    ticks: int


@dataclass(frozen=True, slots=True)
class OldestOpenWindow:
    pass


@dataclass(frozen=True, slots=True)
class AtEnd:
    reason: str


WatermarkRule = Follows | Lags | OldestOpenWindow | AtEnd


# --- operators ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reduction:
    """An aggregate function over one window's rows, and the algorithm that computes it over many windows."""

    function: str
    args: tuple[Expr, ...]
    where: Expr | None
    options: Options
    algorithm: str
    span: int = 0


@dataclass(frozen=True, slots=True)
class Scan:
    stream: str
    sequence: str | None
    lateness: int
    on_bad: str
    stores_time: bool


@dataclass(frozen=True, slots=True)
class TableInput:
    table: str


@dataclass(frozen=True, slots=True)
class Rows:
    conjuncts: tuple[Expr, ...]
    fields: tuple[Field, ...]
    host: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class PaneAggregate:
    window: Window
    keys: tuple[Field, ...]
    key_table: Literal["none", "dense", "hash"]
    sharing: Literal["private"]
    reductions: tuple[Reduction, ...]
    where: Expr | None
    fields: tuple[Field, ...]
    having: Expr | None


@dataclass(frozen=True, slots=True)
class SortedWindows:
    window: Window
    keys: tuple[str, ...]
    reductions: tuple[Reduction, ...]
    output: Literal["aggregate", "attach", "apply"]
    held: Literal["rows", "states per key"] = "rows"


@dataclass(frozen=True, slots=True)
class LookBack:
    spans: tuple[Span, ...]
    keys: tuple[str, ...]
    reductions: tuple[Reduction, ...]
    held: Literal["rows", "states per key"] = "rows"


@dataclass(frozen=True, slots=True)
class Signals:
    """`objects` are the temporal objects in order, printed; the program itself is the IR's."""

    objects: tuple[str, ...]
    evaluation: Literal["positional", "change-to-change"]


@dataclass(frozen=True, slots=True)
class Nearest:
    direction: str
    tolerance: int | None
    exact: bool


@dataclass(frozen=True, slots=True)
class Around:
    lo: int
    hi: int
    reductions: tuple[Reduction, ...]


@dataclass(frozen=True, slots=True)
class Join:
    pairing: InWindow | Within | Lookup | Nearest | Around
    on: Keys
    how: str
    algorithm: str
    eager: bool
    residual: Expr | None


@dataclass(frozen=True, slots=True)
class Distinct:
    subset: tuple[str, ...]
    keep: str
    within: int | None


@dataclass(frozen=True, slots=True)
class TopK:
    k: int
    by: str
    ties: str


@dataclass(frozen=True, slots=True)
class Union:
    pass


Op = (
    Scan
    | TableInput
    | Rows
    | PaneAggregate
    | SortedWindows
    | LookBack
    | Signals
    | Join
    | Distinct
    | TopK
    | Union
)


@dataclass(frozen=True, slots=True)
class Node:
    """An operator with its inputs. A node of a table has no time."""

    id: str
    inputs: tuple[str, ...]
    op: Op
    schema: pa.Schema
    time: Time | None
    watermark: WatermarkRule
    choices: tuple[Choice, ...] = ()

    @property
    def counts_rows(self) -> bool:
        """Whether the operator holds or reduces its input rows, and so counts them as accepted."""
        match self.op:
            case Scan() | TableInput() | Rows() | Union() | Join(pairing=Lookup()):
                return False
            case _:
                return True


@dataclass(frozen=True, slots=True)
class Plan:
    nodes: tuple[Node, ...]
    output: str
    mode: Mode

    def __getitem__(self, name: str) -> Node:
        return next(node for node in self.nodes if node.id == name)
