"""Print expressions for people. The text is never parsed or executed."""

from __future__ import annotations

import json
from collections.abc import Iterator

from penstock.expr.aggregates import AGGREGATES
from penstock.expr.nodes import Aggregate, Call, Case, Cast, Column, Expr, IsIn, Literal, Reduced
from penstock.types.arrow import kind_of

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "and": "and", "or": "or", "xor": "xor",
}  # fmt: skip
_PREFIX = {"neg": "-", "not": "not "}


def quoted(text: str, mark: str = '"') -> str:
    r"""Quote a user's text on one line; escape invisible and bidirectional control characters.

    >>> quoted("two\\nlines")
    '"two\\\\nlines"'
    """
    body = json.dumps(text, ensure_ascii=False)[1:-1]
    return mark + "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in body) + mark


def show(expr: Expr) -> str:
    """Print an expression on one line.

    >>> import pyarrow as pa
    >>> show(Call("gt", (Column("price"), Literal(3, pa.int64()))))
    'price > 3'
    """
    match expr:
        case Column(name=name):
            return name if name.isidentifier() else quoted(name, "`")
        case Literal():
            return _literal(expr)
        case Call():
            return _call(expr)
        case Cast(arg=arg, type=dtype):
            return f"cast({show(arg)}, {dtype})"
        case Case(branches=branches, otherwise=otherwise):
            parts = [f"when {show(condition)} then {show(value)}" for condition, value in branches]
            return f"({' '.join(parts)} else {show(otherwise)})"
        case IsIn(arg=arg, values=values):
            return f"{_inner(arg)} in {{{', '.join(map(_literal, values))}}}"
        case Aggregate():
            return _aggregate(expr)
        case Reduced(index=index):
            return f"#{index}"


def _literal(literal: Literal) -> str:
    value, kind = literal.value, kind_of(literal.type)
    if value is None:
        return "null"
    if kind in ("timestamp", "date", "duration"):
        return f"{value}:{literal.type}"
    if isinstance(value, bool):
        return str(value).lower()
    return quoted(value) if isinstance(value, str) else repr(value)


def _call(call: Call) -> str:
    if call.function in _INFIX and len(call.args) == 2:
        return f"{_inner(call.args[0])} {_INFIX[call.function]} {_inner(call.args[1])}"
    if call.function in _PREFIX:
        return f"{_PREFIX[call.function]}{_inner(call.args[0])}"
    return f"{call.function}({_arguments(call.args, call.options)})"


def _aggregate(node: Aggregate) -> str:
    inside = ", ".join([*map(show, node.args), *_unusual(node)])
    condition = "" if node.where is None else f"where {show(node.where)}"
    return f"{node.function}({' '.join(filter(None, (inside, condition)))})"


def _unusual(node: Aggregate) -> Iterator[str]:
    """Print the options that differ from the default; a required option is printed without its name."""
    known = AGGREGATES.get(node.function)
    usual = {each.name: each.default for each in known.options} if known else {}
    for name, value in node.options:
        if name in usual and usual[name] is None:
            yield _option(value)
        elif name not in usual or value != usual[name]:
            yield f"{name}={_option(value)}"


def _arguments(args: tuple[Expr, ...], options: tuple[tuple[str, object], ...]) -> str:
    named = [f"{name}={_option(value)}" for name, value in options]
    return ", ".join([*map(show, args), *named])


def _option(value: object) -> str:
    return quoted(value) if isinstance(value, str) else repr(value)


def _inner(expr: Expr) -> str:
    """Parenthesise an operand that would otherwise be ambiguous."""
    match expr:
        case Call(function=function) if function in _INFIX or function in _PREFIX:
            return f"({show(expr)})"
        case IsIn():
            return f"({show(expr)})"
        case _:
            return show(expr)
