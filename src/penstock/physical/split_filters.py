"""Split a filter: what Arrow computes is computed for the rows that pass the conjuncts of a kernel only.

    r: Rows { ts; x: len(s) } where a == 1 and matches(s)   →   r.passed: Rows { ts; s } where a == 1
                                                                r: Rows { ts; x: len(s) } where matches(s)

`and` evaluates all its operands. A conjunct that can fail must fail for the same rows as before, so it is never
postponed behind another one. `Case(((a, b),), false)` evaluates `b` only where `a` is true: what stands in `a`
comes first anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.algorithms.expressions.host_columns import HostColumns
from penstock.analysis.predicates import FALSE, conjunction, conjuncts, is_total, then
from penstock.expr import nodes as ex
from penstock.expr.show import show as show_expr
from penstock.ir import nodes as ir
from penstock.ir import nodes as jn
from penstock.physical import nodes as ph
from penstock.physical.predicate_costs import gather_cost, host_cost, kernel_cost, selectivity
from penstock.physical.settings import SURVIVORS, Settings


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
