"""The catalogue of scalar functions: for each its arity, its type rule and its reference definition.

`rules.py` has the type rules, `arithmetic.py`, `comparison.py`, `calendar.py` and `text.py` the
definitions. These are the only definitions; compilers must agree with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.expr import arithmetic, calendar, rules, text
from penstock.expr import comparison as logic
from penstock.expr.comparison import comparison


@dataclass(frozen=True, slots=True)
class Function:
    """A scalar function. A `strict` one is not called and returns null if an argument is null."""

    name: str
    least: int
    most: int | None
    takes: str
    rule: rules.Rule
    define: Callable[..., Any]
    strict: bool = True


def _unary(
    name: str, takes: str, rule: rules.Rule, define: Callable[..., Any], strict: bool = True
) -> Function:
    return Function(name, 1, 1, takes, rule, define, strict)


def _binary(
    name: str, takes: str, rule: rules.Rule, define: Callable[..., Any], strict: bool = True
) -> Function:
    return Function(name, 2, 2, takes, rule, define, strict)


_NUMBERS = "numbers"
_SPANS = "numbers, or times and durations that fit together"
_ALIKE = "two values of comparable types"

_ARITHMETIC = (
    _binary("add", _SPANS, rules.add, arithmetic.add),
    _binary("sub", _SPANS, rules.sub, arithmetic.sub),
    _binary("mul", _SPANS, rules.mul, arithmetic.mul),
    _binary("div", _SPANS, rules.div, arithmetic.div),
    _binary("floordiv", _SPANS, rules.floordiv, arithmetic.floordiv),
    _binary("mod", _SPANS, rules.mod, arithmetic.mod),
    _binary("quotient", "whole numbers", rules.whole, arithmetic.quotient),
    _binary("remainder", _NUMBERS, rules.remainder, arithmetic.remainder),
    _binary("pow", _NUMBERS, rules.to_float, arithmetic.power),
    _unary("neg", "a number or duration", rules.negated, arithmetic.neg),
    _unary("abs", "a number or duration", rules.magnitude, arithmetic.absolute),
    _unary("sign", "a number or duration", rules.sign, arithmetic.sign),
    _unary("floor", "a number", rules.rounded, arithmetic.round_down),
    _unary("ceil", "a number", rules.rounded, arithmetic.round_up),
    _unary("round", "a number", rules.rounded, arithmetic.round_half),
    *(
        _unary(name, "a number", rules.to_float, arithmetic.as_in_c(getattr(math, name)))
        for name in ("sqrt", "exp", "log", "log2", "log10", "sin", "cos", "tan")
    ),
)

_COMPARISONS = (
    _binary("eq", _ALIKE, rules.compared, comparison(lambda order: order == 0)),
    _binary("ne", _ALIKE, rules.compared, comparison(lambda order: order != 0)),
    _binary("lt", _ALIKE, rules.compared, comparison(lambda order: order < 0)),
    _binary("le", _ALIKE, rules.compared, comparison(lambda order: order <= 0)),
    _binary("gt", _ALIKE, rules.compared, comparison(lambda order: order > 0)),
    _binary("ge", _ALIKE, rules.compared, comparison(lambda order: order >= 0)),
)

_LOGIC = (
    Function("and", 2, None, "booleans", rules.logical, logic.both, strict=False),
    Function("or", 2, None, "booleans", rules.logical, logic.either, strict=False),
    _binary("xor", "booleans", rules.logical, logic.exactly_one),
    _unary("not", "a boolean", rules.logical, logic.negation),
    _unary("is_null", "any value", rules.test_of_any, logic.is_null, strict=False),
    _unary("is_not_null", "any value", rules.test_of_any, logic.is_not_null, strict=False),
    _unary("is_nan", "a number", rules.test_of_number, logic.is_nan),
    Function("fill_null", 1, None, "values of one type", rules.common, logic.first_known, strict=False),
    Function("least", 1, None, "values of one ordered type", rules.ordered, logic.least, strict=False),
    Function("greatest", 1, None, "values of one ordered type", rules.ordered, logic.greatest, strict=False),
)

_OF_DATE = ("year", "month", "day", "quarter", "weekday", "ordinal_day", "week", "iso_year")
_OF_DAY = ("hour", "minute", "second", "millisecond", "microsecond", "nanosecond")

_NESTED = (_unary("field", "a struct and the name of one of its fields", rules.member, logic.member),)

_TIMES = (
    *(_unary(name, "a timestamp or date", rules.part_of_date, getattr(calendar, name)) for name in _OF_DATE),
    *(_unary(name, "a timestamp", rules.part_of_day, getattr(calendar, name)) for name in _OF_DAY),
    _unary("date", "a timestamp or date", rules.date_of, calendar.date),
    _unary("epoch_ticks", "a timestamp, date or duration", rules.ticks_of, lambda _setting, ticks: ticks),
    _unary("truncate", "a timestamp, date, duration or integer", rules.truncated, calendar.truncate),
    _unary("floor_time", "a timestamp or date", rules.floored, calendar.of_one(calendar.floor_time)),
    _unary("offset", "a timestamp or date", rules.floored, calendar.of_one(calendar.offset)),
    _unary("month_start", "a timestamp or date", rules.floored, calendar.of_one(calendar.month_start)),
    _unary("month_end", "a timestamp or date", rules.floored, calendar.of_one(calendar.month_end)),
    _unary("replace_zone", "a timestamp", rules.on_clock_of, calendar.of_one(calendar.replace_zone)),
    _unary("strftime", "a timestamp or date", rules.written, calendar.strftime),
)

_TEXTS = (
    _unary("str_len_chars", "a string", rules.string_to_int, text.len_chars),
    _unary("str_len_bytes", "a string", rules.string_to_int, text.len_bytes),
    _unary("to_lower", "a string", rules.string_to_string, text.to_lower),
    _unary("to_upper", "a string", rules.string_to_string, text.to_upper),
    _unary("to_title", "a string", rules.string_to_string, text.to_title),
    _unary("strip", "a string", rules.string_to_string, text.strip),
    _unary("strip_start", "a string", rules.string_to_string, text.strip_start),
    _unary("strip_end", "a string", rules.string_to_string, text.strip_end),
    _unary("strip_prefix", "a string", rules.string_to_string, text.strip_prefix),
    _unary("strip_suffix", "a string", rules.string_to_string, text.strip_suffix),
    _unary("head", "a string", rules.string_to_string, text.head),
    _unary("tail", "a string", rules.string_to_string, text.tail),
    _unary("pad_start", "a string", rules.string_to_string, text.pad_start),
    _unary("pad_end", "a string", rules.string_to_string, text.pad_end),
    _unary("zfill", "a string", rules.string_to_string, text.zfill),
    _unary("reverse", "a string", rules.string_to_string, text.reverse),
    _unary("slice", "a string", rules.string_to_string, text.slice_of),
    _unary("replace", "a string", rules.string_to_string, text.replace),
    _unary("starts_with", "a string", rules.string_to_bool, text.starts_with),
    _unary("ends_with", "a string", rules.string_to_bool, text.ends_with),
    _unary("contains", "a string", rules.string_to_bool, text.contains),
    _unary("matches", "a string", rules.string_to_bool, text.of_one(text.matches)),
    _unary("count_matches", "a string", rules.string_to_int, text.of_one(text.count_matches)),
    _unary("replace_matches", "a string", rules.string_to_string, text.of_one(text.replace_matches)),
    _unary("extract", "a string", rules.string_to_string, text.of_one(text.extract)),
    _unary("find", "a string", rules.string_to_int, text.of_one(text.find)),
    _unary("parse_time", "a string", rules.parsed, calendar.parse_time),
    Function("concat", 1, None, "strings", rules.string_to_string, text.concat),
)

FUNCTIONS: dict[str, Function] = {
    function.name: function for function in (*_ARITHMETIC, *_COMPARISONS, *_LOGIC, *_NESTED, *_TIMES, *_TEXTS)
}
