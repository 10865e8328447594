"""The physical plan: which operator, which algorithm, which state layout, each with its reason, and the settings of choices.

    plan       ::= node* "out" id                  each node stands after its inputs; mode is bounded or unbounded
    node       ::= id = op(inputs)                 with a schema, a time, a watermark rule and choices
    op         ::= Scan(stream, sequence, lateness, on_bad, stores_time, numbered)
                 | TableInput(table)               rows without time, complete before the first row of a stream
                 | Rows(conjuncts, fields, host)   filter and projection; Arrow computes the host expressions
                 | PaneAggregate(window, keys, key_table, sharing, merging, reductions, where, fields, having, strict,
                                 nullable, wide)
                                                   states per (pane, key), merged into windows
                 | SortedWindows(window, keys, reductions, output, by_key, read_by_time)
                                                   rows sorted by key and time; output: aggregate, attach or Apply
                 | LookBack(spans, keys, reductions)
                                                   aggregates over the rows behind each row
                 | Signals(program, evaluation, algorithms)   positional, or change-to-change
                 | Join(pairing, on, how, algorithm, optimise, eager, paced, residual, columns, incremental)
                 | Distinct(subset, keep, within) | TopK(k, by, ties) | Union()
    pairing    ::= InWindow | Within | Lookup      as in `types/windows.py`
                 | Nearest(direction, tolerance, exact)   as-of: the nearest right row
                 | Around(lo, hi, reductions)      aggregates over the right rows in [t + lo, t + hi]
    watermark  ::= Follows()                       results are never older than the input watermark
                 | Lags(ticks)                     results are at most so much older
                 | OldestOpenWindow()              rows leave when their window closes, with their own time
                 | AtEnd(reason)                   time advances only at the end of input
    choice     ::= what, taken, reason, rejected*, assumptions*
    rejected   ::= alternative, reason
    assumption ::= text, fallback                  the operator goes on by the fallback at the row that breaks it

Arguments of the reductions of `SortedWindows`, `LookBack` and `Around` are columns of the input, which a `Rows`
before it computes. A plan is complete before any row is read; `specialise.py` makes variants of its nodes later. A choice that depends on data is the generic one here; its
assumptions name what the data may change. `counts_rows` says that an operator counts its input rows as
accepted, unless an operator before it has; the output counts the rest. So each row is counted once on every path.
A pipeline has one stage for each node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from penstock.expr.nodes import Expr, Field, Options
from penstock.ir.signals.nodes import Program as SignalProgram
from penstock.types.time import TIMELESS, Time
from penstock.types.windows import InWindow, Keys, Lookup, Window, Within
from penstock.types.windows import LookBack as Span

Mode = Literal["bounded", "unbounded"]
KeyTable = Literal["none", "dense", "hash", "sparse"]
Sharing = Literal["private", "partitioned", "shared"]
FilterOrder = tuple[
    tuple[int, ...], ...
]  # groups of conjuncts, by number: the first for every row, others on survivors


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
    type: pa.DataType
    algorithm: str
    span: int = 0


@dataclass(frozen=True, slots=True)
class Scan:
    """`stores_time`: an implied time becomes a column. `numbered`: a reader needs the order of arrival."""

    stream: str
    sequence: str | None
    lateness: int
    on_bad: str
    stores_time: bool
    numbered: bool = False


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
    """`merging` names how panes become windows where an aggregate permits it. `strict`: rows behind the watermark are late.

    A variant assumes nulls in the columns `nullable` only, and sums that fit 64 bits unless `wide`. It computes the
    conjuncts of `where` in the groups of `order`; None: all for every row. With `runs`, neighbouring rows of one key are
    added in registers, and their key is looked up once.
    """

    window: Window
    keys: tuple[Field, ...]
    key_table: KeyTable
    sharing: Sharing
    merging: str
    reductions: tuple[Reduction, ...]
    where: Expr | None
    fields: tuple[Field, ...]
    having: Expr | None
    strict: bool = False
    nullable: frozenset[str] = frozenset()
    wide: bool = False
    order: FilterOrder | None = None
    runs: bool = False


# What an operator keeps between pushes of open windows, or of the rows that later look-backs hold.
Held = Literal["rows", "states per key", "lists of rows per key"]


@dataclass(frozen=True, slots=True)
class Apply:
    """A Python function of the rows of a window, which it gets with these columns."""

    function: Callable[[pa.Table], Any]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SortedWindows:
    """`by_key`: results of one window are ordered by key. `read_by_time`: a later operator depends on their times."""

    window: Window
    keys: tuple[str, ...]
    reductions: tuple[Reduction, ...]
    output: Literal["aggregate", "attach"] | Apply
    by_key: bool = False
    read_by_time: bool = False
    held: Held = "rows"


@dataclass(frozen=True, slots=True)
class LookBack:
    spans: tuple[Span, ...]
    keys: tuple[str, ...]
    reductions: tuple[Reduction, ...]
    held: Held = "rows"


@dataclass(frozen=True, slots=True)
class Signals:
    """`algorithms` holds those of the reductions of each object of the program, in order.

    The program is in the language that plans, the IR and physical plans share.
    """

    program: SignalProgram
    evaluation: Literal["positional", "change-to-change"]
    algorithms: tuple[tuple[str, ...], ...] = ()
    held: Held = "rows"


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
class JoinColumn:
    """A column of the result: the "start" or "end" of the window, the later "time", of "left" or "right", or a "key".

    A key is the left column `source`, or the right column `partner` where there is no left row.
    """

    name: str
    origin: str
    source: str = ""
    partner: str = ""


@dataclass(frozen=True, slots=True)
class Join:
    """`optimise` is the target of `algorithm="auto"`. `paced`: the rate at which rows arrive informs the choice.

    `held`: how rows are held between pushes (see `choose_join`).
    """

    pairing: InWindow | Within | Lookup | Nearest | Around
    on: Keys
    how: str
    algorithm: str
    optimise: str
    eager: bool
    paced: bool
    residual: Expr | None
    columns: tuple[JoinColumn, ...]
    held: Literal["sorted partitions", "lists per key", "sorted runs"] = "sorted partitions"


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
    def clock(self) -> Time:
        """The time of the rows. That of a table's rows has no column."""
        return TIMELESS if self.time is None else self.time

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
    _by_id: dict[str, Node] = field(init=False, compare=False, repr=False)
    _paths: dict[str, int] = field(
        init=False, compare=False, repr=False
    )  # these two are filled when first needed
    _streams: dict[str, frozenset[str]] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_id", {node.id: node for node in self.nodes})
        object.__setattr__(self, "_paths", {})
        object.__setattr__(self, "_streams", {})

    def __getitem__(self, name: str) -> Node:
        return self._by_id[name]

    def inputs_of(self, node: Node) -> tuple[Node, ...]:
        return tuple(self[name] for name in node.inputs)

    def paths(self, name: str) -> int:
        """Count the paths from a node to the operators that count its rows, or to the output."""
        if not self._paths:
            found = {node.id: int(node.id == self.output) for node in self.nodes}
            for node in reversed(self.nodes):
                for source in node.inputs:
                    found[source] += 1 if node.counts_rows else found[node.id]
            self._paths.update(found)
        return self._paths[name]

    def streams_behind(self, name: str) -> frozenset[str]:
        """Return the streams that a node's rows come from."""
        if not self._streams:
            found: dict[str, frozenset[str]] = {}
            for node in self.nodes:
                own = frozenset({node.op.stream}) if isinstance(node.op, Scan) else frozenset[str]()
                found[node.id] = own.union(*(found[source] for source in node.inputs))
            self._streams.update(found)
        return self._streams[name]


POSITIONAL_SIGNALS = "dense_signals"  # the name by which the positional evaluation is switched off
SURVIVORS = "filter_before_arrow"  # Arrow computes only rows that pass a kernel's filter


@dataclass(frozen=True, slots=True)
class Settings:
    """`aggregator` forces a sliding algorithm where an aggregate allows it; `off` names fast paths to leave out."""

    aggregator: str | None = None
    off: frozenset[str] = frozenset()
