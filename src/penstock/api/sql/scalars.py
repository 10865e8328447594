"""The catalogue of scalar functions, by SQL name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.api.expr import Expr
from penstock.api.functions import greatest, least, lit, when
from penstock.api.sql.scope import ColumnResolver
from penstock.api.sql.source_span import Text
from penstock.expr.nodes import Literal
from penstock.types.arrow import kind_of

if TYPE_CHECKING:
    from penstock.api.sql.expressions import Translator

_DAY = timedelta(days=1)
TRUNCATED = {
    "microsecond": "1us",
    "millisecond": "1ms",
    "second": "1s",
    "minute": "1m",
    "hour": "1h",
    "day": "1d",
}
EXTRACTED_PARTS: dict[str, Callable[[Expr], Expr]] = {
    "year": lambda x: x.dt.year(),
    "quarter": lambda x: x.dt.quarter(),
    "month": lambda x: x.dt.month(),
    "week": lambda x: x.dt.week(),
    "day": lambda x: x.dt.day(),
    "hour": lambda x: x.dt.hour(),
    "minute": lambda x: x.dt.minute(),
    "second": lambda x: x.dt.second(),
    "isoyear": lambda x: x.dt.iso_year(),
    "isodow": lambda x: x.dt.weekday(),
    "dow": lambda x: x.dt.weekday() % 7,
    "dayofweek": lambda x: x.dt.weekday() % 7,
    "doy": lambda x: x.dt.ordinal_day(),
    "dayofyear": lambda x: x.dt.ordinal_day(),
}


@dataclass(frozen=True, slots=True)
class Scalar:
    """A function and its arity; with `constants`, all arguments but the first are constants of that type."""

    make: Callable[..., Expr]
    least: int = 1
    most: int = 1
    constants: type[int | str] | None = None


def _plain(name: str) -> Scalar:
    return Scalar(lambda x: getattr(x, name)())


def _sliced(x: Expr, *places: object) -> Expr:
    """Return a substring by its start, counted from 1, and its length."""
    start, *length = (place for place in places if isinstance(place, int))
    return x.str.slice(start - 1 if start > 0 else start, max(length[0], 0) if length else None)


SQL_FUNCTIONS: dict[str, Scalar] = {
    **{name: _plain(name) for name in ("abs", "sign", "sqrt", "exp", "sin", "cos", "tan", "floor", "ceil")},
    **{name: _plain(name) for name in ("log2", "log10")},
    **{name: Scalar(made) for name, made in EXTRACTED_PARTS.items() if name not in ("doy", "dow")},
    "ceiling": _plain("ceil"),
    "ln": _plain("log"),
    "log": _plain("log10"),
    "round": Scalar(lambda x, decimals=0: x.round(decimals), 1, 2, constants=int),
    "isnan": _plain("is_nan"),
    "pow": Scalar(lambda a, b: a**b, 2, 2),
    "power": Scalar(lambda a, b: a**b, 2, 2),
    "coalesce": Scalar(lambda x, *more: x.fill_null(*more), 1, 1000),
    "ifnull": Scalar(lambda x, y: x.fill_null(y), 2, 2),
    "nullif": Scalar(lambda a, b: when((a != b).fill_null(lit(True))).then(a), 2, 2),
    "greatest": Scalar(greatest, 1, 1000),
    "least": Scalar(least, 1, 1000),
    "lower": Scalar(lambda x: x.str.to_lowercase()),
    "upper": Scalar(lambda x: x.str.to_uppercase()),
    "initcap": Scalar(lambda x: x.str.to_titlecase()),
    "strptime": Scalar(lambda x, format: x.str.to_datetime(format), 2, 2, constants=str),
    "length": Scalar(lambda x: x.str.len_chars()),
    "char_length": Scalar(lambda x: x.str.len_chars()),
    "octet_length": Scalar(lambda x: x.str.len_bytes()),
    "concat": Scalar(lambda x, *more: x.str.concat(*more), 1, 1000),
    "substr": Scalar(_sliced, 2, 3, constants=int),
    "left": Scalar(lambda x, n: x.str.slice(0, max(n, 0)), 2, 2, constants=int),
    "starts_with": Scalar(lambda x, part: x.str.starts_with(part), 2, 2, constants=str),
    "ends_with": Scalar(lambda x, part: x.str.ends_with(part), 2, 2, constants=str),
    "contains": Scalar(lambda x, part: x.str.contains(part, literal=True), 2, 2, constants=str),
    "replace": Scalar(lambda x, old, new: x.str.replace_all(old, new, literal=True), 3, 3, constants=str),
    "date": Scalar(lambda x: x.dt.date()),
}


SPECIAL = ("mod", "date_trunc")


def call(node: exp.Expression, translate: Translator) -> Expr:
    """Translate a function by its name."""
    text = translate.text
    if not isinstance(node, exp.Anonymous):
        raise text.error("FILTER, WITHIN GROUP and IGNORE NULLS belong to aggregates", node)
    name = str(node.this).lower()
    arguments = node.expressions
    if name in SPECIAL:
        return _special_call(name, arguments, node, translate)
    known = SQL_FUNCTIONS.get(name)
    if known is None:
        raise text.error(f"there is no function {name[:40]!r}{_near(name, text)}", node)
    if not known.least <= len(arguments) <= known.most:
        raise text.error(f"{name} does not take {len(arguments)} arguments", node)
    return known.make(*_arguments(known, arguments, translate))


def _near(name: str, text: Text) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only for error messages

    from penstock.api.sql.aggregates import SQL_AGGREGATES  # noqa: PLC0415 - import cycle

    near = get_close_matches(name, [*SQL_FUNCTIONS, *SQL_AGGREGATES, *text.own], n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _arguments(known: Scalar, given: Sequence[exp.Expression], translate: Translator) -> list[object]:
    """Translate arguments; return the values of constant arguments."""
    kind = known.constants
    if kind is None:
        return [translate(argument) for argument in given]
    return [translate(given[0]), *(_constant(argument, translate, kind) for argument in given[1:])]


def _constant(node: exp.Expression, translate: Translator, kind: type[int | str]) -> object:
    found = translate(node).node
    value = found.value if isinstance(found, Literal) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise translate.text.error(
            f"a constant stands here, {'a whole number' if kind is int else 'in quotes'}", node
        )
    return value


def _special_call(
    name: str, arguments: Sequence[exp.Expression], node: exp.Expression, translate: Translator
) -> Expr:
    if len(arguments) != 2:
        raise translate.text.error(f"{name} takes two arguments", node)
    if name == "mod":
        return translate(arguments[0]).remainder(translate(arguments[1]))
    unit = str(_constant(arguments[0], translate, str)).lower()
    value = translate(arguments[1])
    if unit == "week":  # 1970-01-01 was a Thursday, but weeks begin on Monday
        return (value + 3 * _DAY).dt.truncate("7d") - 3 * _DAY
    if unit not in TRUNCATED:
        raise translate.text.error(f"date_trunc takes {', '.join(TRUNCATED)} and week", node)
    return value.dt.truncate(TRUNCATED[unit])


def special(node: exp.Expression, translate: Translator) -> Expr:
    """Translate functions with special syntax."""
    text = translate.text
    match node:
        case exp.Extract():
            part = str(node.this.this).lower() if isinstance(node.this, exp.Var) else ""
            if part not in EXTRACTED_PARTS:
                raise text.error(f"EXTRACT takes {', '.join(EXTRACTED_PARTS)}", node)
            return EXTRACTED_PARTS[part](translate(node.expression))
        case exp.Trim():
            inner = node.args.get("expression")
            characters = None if inner is None else str(_constant(inner, translate, str))
            return translate(node.this).str.strip_chars(characters)
        case exp.Substring():
            given = [arg for arg in (node.args.get("start"), node.args.get("length")) if arg is not None]
            return _sliced(translate(node.this), *(_constant(argument, translate, int) for argument in given))
        case _:
            value = translate(node.this)
            return value.floor() if isinstance(node, exp.Floor) else value.ceil()


# --- SQL division -------------------------------------------------------------------------------------


def _whole(*values: Expr, names: ColumnResolver) -> bool:
    types = [names.type_of(value) for value in values]
    return all(dtype is not None and kind_of(dtype) in ("int", "uint") for dtype in types)


def divided(a: Expr, b: Expr, names: ColumnResolver) -> Expr:
    """Divide: integers truncate towards zero, as in standard SQL and in SABER; other numbers as floats."""
    return whole_divided(a, b, names) if _whole(a, b, names=names) else a / b


def whole_divided(a: Expr, b: Expr, names: ColumnResolver) -> Expr:
    """Divide and truncate the fraction."""
    return a.quotient(b) if _whole(a, b, names=names) else a // b
