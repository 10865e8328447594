"""The catalogue of aggregates, by SQL name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.api import aggregates as api
from penstock.api.expr import Expr
from penstock.api.sql.source_span import Text
from penstock.expr.nodes import Literal

if TYPE_CHECKING:
    from penstock.api.sql.expressions import Translator

_Make = Callable[..., Expr]
_NAMES: dict[_Make, str] = {
    api.sum: "sum",
    api.mean: "avg mean",
    api.min: "min",
    api.max: "max",
    api.product: "product",
    api.std: "stddev stddev_samp std",
    api.var: "variance var_samp var",
    api.median: "median",
    api.mode: "mode",
    api.first: "first first_value",
    api.last: "last last_value",
    api.min_by: "min_by arg_min argmin",
    api.max_by: "max_by arg_max argmax",
    api.corr: "corr",
    api.cov: "covar_samp covariance cov",
    api.skew: "skewness skew",
    api.kurtosis: "kurtosis",
    api.any: "bool_or any some",
    api.all: "bool_and every all",
    api.list: "list array_agg collect_list",
    api.count_distinct: "count_distinct",
}
SQL_AGGREGATES: dict[str, _Make] = {
    **{name: make for make, names in _NAMES.items() for name in names.split()},
    "count": api.count,
    "count_if": lambda condition, where=None: api.count(where=_both(condition, where)),
    "stddev_pop": lambda x, where=None: api.std(x, ddof=0, where=where),
    "var_pop": lambda x, where=None: api.var(x, ddof=0, where=where),
    "covar_pop": lambda x, y, where=None: api.cov(x, y, ddof=0, where=where),
    "any_value": lambda x, where=None: api.first(x, ignore_nulls=True, where=where),
    **dict.fromkeys(("quantile", "quantile_cont", "percentile_cont", "percentile"), api.quantile),
}
_TWO = frozenset(_NAMES[api.min_by].split() + _NAMES[api.max_by].split() + ["corr", "covar_pop"])
_PAIRS = _TWO | frozenset(_NAMES[api.cov].split())
_QUANTILES = frozenset(name for name, make in SQL_AGGREGATES.items() if make is api.quantile)


def _both(first: Expr, second: Expr | None) -> Expr:
    return first if second is None else first & second


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """A call of an aggregate as written."""

    name: str
    arguments: tuple[exp.Expression, ...]
    node: exp.Expression
    where: exp.Expression | None = None
    distinct: bool = False
    ignore_nulls: bool = False


def read(node: exp.Expression, text: Text) -> AggregateCall | None:
    """Read a call of an aggregate with its FILTER, WITHIN GROUP and other clauses; None for another function."""
    where, ordered, ignoring, inner = None, None, False, node
    while not isinstance(inner, exp.Anonymous):
        match inner:
            case exp.Filter():
                where = inner.expression.this
            case exp.WithinGroup():
                ordered = inner.expression
            case exp.IgnoreNulls():
                ignoring = True
            case exp.RespectNulls():
                pass
            case _:
                return None
        inner = inner.this
    name = str(inner.this).lower()
    if name not in SQL_AGGREGATES and name not in text.own:
        return None
    arguments = list(inner.expressions)
    if ordered is not None:
        arguments = [_ordered(ordered, text), *arguments]
    ignoring |= any(isinstance(argument, exp.IgnoreNulls) for argument in arguments)
    plain = [
        argument.this if isinstance(argument, exp.IgnoreNulls | exp.RespectNulls) else argument
        for argument in arguments
    ]
    distinct = len(plain) == 1 and isinstance(plain[0], exp.Distinct)
    return AggregateCall(
        name, tuple(plain[0].expressions if distinct else plain), node, where, distinct, ignoring
    )


def _ordered(order: exp.Expression, text: Text) -> exp.Expression:
    """Return the value of WITHIN GROUP (ORDER BY value)."""
    parts = order.expressions
    if len(parts) != 1 or parts[0].args.get("desc"):
        raise text.error("WITHIN GROUP takes ORDER BY one value, ascending", order)
    found: exp.Expression = parts[0].this
    return found


def made(reduction: AggregateCall, translate: Translator) -> Expr:
    """Build the aggregate of the fluent API; `translate` translates row expressions."""
    where = None if reduction.where is None else translate(reduction.where)
    name, text = reduction.name, translate.text
    if name == "count":
        return _count(reduction, translate, where)
    if name in text.own:
        return _own(reduction, translate, where)
    if reduction.distinct and name not in ("min", "max", "count_distinct"):
        raise text.error(f"DISTINCT is known in count(DISTINCT x), not in {name}", reduction.node)
    _check_number(reduction, text)
    values: list[object] = [translate(argument) for argument in reduction.arguments]
    if name in _QUANTILES:
        values = [values[0], _fraction(values[1], reduction, text)]
    if reduction.ignore_nulls and SQL_AGGREGATES[name] in (api.first, api.last):
        return SQL_AGGREGATES[name](*values, ignore_nulls=True, where=where)
    return SQL_AGGREGATES[name](*values, where=where)


def _own(reduction: AggregateCall, translate: Translator, where: Expr | None) -> Expr:
    """Call a user-defined aggregate; it skips rows with a null anyway, so IGNORE NULLS has no effect."""
    own, text = translate.text.own[reduction.name], translate.text
    if reduction.distinct:
        raise text.error(f"DISTINCT is known in count(DISTINCT x), not in {reduction.name}", reduction.node)
    _check(reduction, own.definition.arity, text)
    return own(*(translate(argument) for argument in reduction.arguments), where=where)


def _check_number(reduction: AggregateCall, text: Text) -> None:
    _check(reduction, 2 if reduction.name in _PAIRS | _QUANTILES else 1, text)


def _check(reduction: AggregateCall, wanted: int, text: Text) -> None:
    if len(reduction.arguments) != wanted or any(
        isinstance(argument, exp.Star) for argument in reduction.arguments
    ):
        raise text.error(f"{reduction.name} takes {wanted} argument{'s' * (wanted != 1)}", reduction.node)


def _count(reduction: AggregateCall, translate: Translator, where: Expr | None) -> Expr:
    arguments: Sequence[exp.Expression] = reduction.arguments
    if len(arguments) > 1:
        raise translate.text.error("count takes one argument, or a star", reduction.node)
    if not arguments or isinstance(arguments[0], exp.Star):
        if reduction.distinct:
            raise translate.text.error("count(DISTINCT …) takes a value", reduction.node)
        return api.count(where=where)
    value = translate(arguments[0])
    return api.count_distinct(value, where=where) if reduction.distinct else api.count(value, where=where)


def _fraction(given: object, reduction: AggregateCall, text: Text) -> float:
    found = given.node if isinstance(given, Expr) else None
    if not isinstance(found, Literal) or not isinstance(found.value, int | float):
        raise text.error("the second argument is a constant from 0 to 1", reduction.node)
    return float(found.value)
