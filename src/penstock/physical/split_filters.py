"""Split a filter by estimated costs: what Arrow computes is computed for the rows that pass the conjuncts of a kernel only.

    r: Rows { ts; x: len(s) } where a == 1 and matches(s)   →   r.passed: Rows { ts; s } where a == 1
                                                                r: Rows { ts; x: len(s) } where matches(s)

`and` evaluates all its operands. A conjunct that can fail must fail for the same rows as before, so it is never
postponed behind another one. `Case(((a, b),), false)` evaluates `b` only where `a` is true: what stands in `a`
comes first anyway.

The shares are the usual guesses of a planner; rows that are seen correct them (`physical/order_conjuncts.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

import pyarrow as pa

from penstock.algorithms.expressions.host_columns import HostColumns
from penstock.analysis.predicates import FALSE, conjunction, conjuncts, is_total, then
from penstock.expr import nodes as ex
from penstock.expr.show import show as show_expr
from penstock.expr.typing import type_of
from penstock.ir import nodes as ir
from penstock.ir import nodes as jn
from penstock.loop.numbers import is_text
from penstock.physical import nodes as ph
from penstock.physical.nodes import SURVIVORS, Settings
from penstock.physical.order_conjuncts import ConjunctCost
from penstock.types.arrow import width_of

# Nanoseconds per row on one core, measured on this code; only their ratios matter.
BY_ROW = 1000.0  # the definition itself, one call of Python for a row
REGULAR_EXPRESSION = 60.0
BY_ARROW = 8.0
READ_TEXT = 4.0
GATHER_TEXT = 12.0
GATHER_NUMBER = 1.5
NODE_COST = 0.25  # a node of an expression in a kernel

_REGULAR_EXPRESSIONS = frozenset({"matches", "count_matches", "replace_matches", "extract", "find"})
_BY_ARROW = frozenset(
    {"str_len_chars", "str_len_bytes", "starts_with", "ends_with", "contains", "replace"}
    | {"floor_time", "offset", "month_start", "month_end", "replace_zone"}
    | {"eq", "ne", "lt", "le", "gt", "ge"}
)
_DEAR = {
    "floordiv": 8,
    "mod": 8,
    "div": 6,
    "remainder": 8,
    "pow": 60,
    "exp": 30,
    "log": 30,
    "sin": 40,
    "cos": 40,
}

_KEPT = {
    "eq": 0.1,
    "lt": 0.3,
    "le": 0.3,
    "gt": 0.3,
    "ge": 0.3,
    "ne": 0.9,
    "is_null": 0.05,
    "is_not_null": 0.95,
}
_UNKNOWN = 0.5


def selectivity(predicate: ex.Expr) -> float:
    """Guess the share of rows that a predicate keeps.

    >>> selectivity(ex.Call("eq", (ex.Column("a"), ex.Column("b"))))
    0.1
    """
    return ex.fold(predicate, _share)


def _share(node: ex.Expr, below: tuple[float, ...]) -> float:
    match node:
        case ex.Call(function="and"):
            return prod(below)
        case ex.Call(function="or"):
            return 1 - prod(1 - share for share in below)
        case ex.Call(function="not"):
            return 1 - below[0]
        case ex.Call(function=function):
            return _KEPT.get(function, _UNKNOWN)
        case ex.IsIn(values=values):
            return min(len(values) * _KEPT["eq"], _UNKNOWN)
        case ex.Case(branches=((_, _),), otherwise=ex.Literal(value=False)):
            return below[0] * below[1]
        case _:
            return _UNKNOWN


def kernel_cost(expr: ex.Expr, schema: pa.Schema) -> float:
    """Estimate the nanoseconds per row that a kernel takes for an expression."""
    return sum(_step(node, schema) for node in ex.walk(expr))


def _step(node: ex.Expr, schema: pa.Schema) -> float:
    match node:
        case ex.Column(name=name):
            return READ_TEXT if is_text(schema.field(name).type) else NODE_COST
        case ex.Literal():
            return 0.0
        case ex.IsIn(values=values):
            return NODE_COST * len(values)
        case ex.Call(function=function):
            return NODE_COST * _DEAR.get(function, 1)
        case _:
            return NODE_COST


def conjunct_costs(where: ex.Expr | None, schema: pa.Schema) -> tuple[ConjunctCost, ...]:
    """What is known of the conjuncts of a kernel's filter without rows."""
    return tuple(
        ConjunctCost(
            kernel_cost(part, schema),
            is_total(part, schema),
            selectivity(part),
            _in_lanes(part, schema),
        )
        for part in conjuncts(where)
    )


def _in_lanes(expr: ex.Expr, schema: pa.Schema) -> bool:
    """Whether SIMD lanes compute an expression: they compare no texts, and have no integer division."""
    texts = any(is_text(schema.field(name).type) for name in ex.columns_of(expr))
    return not texts and not any(
        isinstance(node, ex.Call) and node.function in _DEAR and node.function != "div"
        for node in ex.walk(expr)
    )


def host_cost(expr: ex.Expr, schema: pa.Schema) -> float:
    """Estimate the nanoseconds per row for the parts of an expression that Arrow computes before a kernel runs."""
    host = HostColumns(schema)
    host.key(expr)
    return sum(map(_of_arrow, host.fields))


def _of_arrow(expr: ex.Expr) -> float:
    match expr:
        case ex.Call(function=function, args=args) if all(
            isinstance(arg, ex.Column | ex.Literal) for arg in args
        ):
            if function in _REGULAR_EXPRESSIONS:
                return REGULAR_EXPRESSION
            return BY_ARROW if function in _BY_ARROW else BY_ROW
        case ex.IsIn(arg=ex.Column()):
            return BY_ARROW
        case _:
            return BY_ROW


def gather_cost(names: list[str], schema: pa.Schema) -> float:
    """Estimate the nanoseconds to copy these columns of a row."""
    return sum(_gather(type_of(ex.Column(name), schema)) for name in names)


def _gather(dtype: pa.DataType) -> float:
    return GATHER_TEXT if width_of(dtype) is None else GATHER_NUMBER


@dataclass(frozen=True, slots=True)
class SplitFilter:
    """The rows `passed` satisfy the first conjuncts; `rest` is the filter that remains, None if none does."""

    passed: ir.Object
    rest: ex.Expr | None
    choice: ph.Choice

    @property
    def samples(self) -> ir.Samples:
        assert isinstance(self.passed.body, ir.Samples)
        return self.passed.body


def split_filter(
    name: str, where: ex.Expr | None, values: Sequence[ex.Expr], source: ir.Object, settings: Settings
) -> SplitFilter | None:
    """Split the filter of rows from which `values` are computed; None if it has no two parts, or they do not pay."""
    if where is None or isinstance(source.body, jn.Table) or SURVIVORS in settings.off:
        return None
    schema = source.schema
    if not any(_is_host(expr, schema) for expr in (where, *values)):
        return None
    first, rest = _divided(where, schema)
    if first is None:
        return None
    read = {column for expr in (*_given(rest), *values) for column in ex.columns_of(expr)}
    kept = [column for column in schema.names if column in read or column == source.time.column]
    if not kept or not _pays(first, [*_given(rest), *values], kept, schema):
        return None
    samples = ir.Samples(source.name, first, tuple(ex.Field(column, ex.Column(column)) for column in kept))
    passed = ir.Object(
        f"{name}.passed", samples, pa.schema([schema.field(column) for column in kept]), source.time.stored
    )
    return SplitFilter(passed, rest, _choice(first, schema))


def _choice(first: ex.Expr, schema: pa.Schema) -> ph.Choice:
    return ph.Choice(
        "filter",
        "before what Arrow computes",
        f"Arrow computes only the rows that pass {_shown(first)}, about {selectivity(first):.0%} of them",
        (ph.Rejected("one pass over all rows", "Arrow would compute rows that the filter drops"),),
    )


def _shown(expr: ex.Expr, most: int = 200) -> str:
    text = show_expr(expr)
    return text if len(text) <= most else f"{text[:most]}…"


# --- order of evaluation --------------------------------------------------------------------------------


def _divided(where: ex.Expr, schema: pa.Schema) -> tuple[ex.Expr | None, ex.Expr | None]:
    """Divide a filter into the part that kernels compute first, and the rest; None for a part that is empty."""
    first: list[tuple[ex.Expr, ...]] = []
    waiting = list(_levels(where))
    while waiting:
        level = waiting.pop(0)
        now = tuple(expr for expr in level if not (_is_host(expr, schema) and is_total(expr, schema)))
        later = tuple(expr for expr in level if expr not in now)
        if all(_is_host(expr, schema) for expr in now):  # nothing here would drop rows for less
            return _chained(first, schema), _chained([level, *waiting], schema)
        first.append(now)
        if later or any(_is_host(expr, schema) for expr in now):
            return _chained(first, schema), _chained([later, *waiting], schema)
    return _chained(first, schema), None


def _levels(where: ex.Expr) -> list[tuple[ex.Expr, ...]]:
    """List the conjuncts by level: those of a level are evaluated where all levels before are true."""
    found = []
    while True:
        match where:
            case ex.Case(branches=((before, last),), otherwise=ex.Literal() as otherwise) if (
                otherwise == FALSE
            ):
                found.append(conjuncts(last))
                where = before
            case _:
                return [conjuncts(where), *reversed(found)]


def _chained(levels: Iterable[tuple[ex.Expr, ...]], schema: pa.Schema) -> ex.Expr | None:
    whole: ex.Expr | None = None
    for level in levels:
        part = conjunction(level)
        whole = then(whole, part, total=part is None or is_total(part, schema))
    return whole


def _is_host(expr: ex.Expr, schema: pa.Schema) -> bool:
    host = HostColumns(schema)
    host.key(expr)
    return bool(host.fields)


# --- cost -----------------------------------------------------------------------------------------------


def _pays(first: ex.Expr, later: Sequence[ex.Expr], kept: list[str], schema: pa.Schema) -> bool:
    """Whether the rows that Arrow no longer computes cost more than a copy of those that it does."""
    share = selectivity(first)
    saved = (1 - share) * sum(host_cost(expr, schema) for expr in {*later})
    return saved > share * gather_cost(kept, schema) + kernel_cost(first, schema)


def _given(expr: ex.Expr | None) -> tuple[ex.Expr, ...]:
    return () if expr is None else (expr,)
