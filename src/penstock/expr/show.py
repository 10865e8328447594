"""Print expressions for people. The text is never parsed or executed."""

from __future__ import annotations

import json
from collections.abc import Iterator

from penstock.expr.aggregates import AGGREGATES
from penstock.expr.nodes import (
    Aggregate,
    Call,
    Case,
    Cast,
    Column,
    Expr,
    IsIn,
    Literal,
    Reduced,
    children,
    fold,
    occurrences,
)
from penstock.types.arrow import kind_of

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "and": "and", "or": "or", "xor": "xor",
}  # fmt: skip
_PREFIX = {"neg": "-", "not": "not "}
_SHARED = "$"
MOST_WRITTEN = 2_000  # nodes that are written out; beyond that, shared parts are named and written once
Parts = tuple[str, ...]


def quoted(text: str, mark: str = '"') -> str:
    r"""Quote a user's text on one line; escape invisible and bidirectional control characters.

    >>> quoted("two\\nlines")
    '"two\\\\nlines"'
    """
    body = json.dumps(text, ensure_ascii=False)[1:-1]
    return (
        mark
        + "".join(character if character.isprintable() else f"\\u{ord(character):04x}" for character in body)
        + mark
    )


def show(expr: Expr) -> str:
    """Print an expression on one line; name the shared parts of one that would be too long.

    >>> import pyarrow as pa
    >>> show(Call("gt", (Column("price"), Literal(3, pa.int64()))))
    'price > 3'
    """
    found = occurrences(expr)
    if sum(count for _, count in found) <= MOST_WRITTEN:
        return fold(expr, _text)
    shared = {id(node) for node, count in found if count > 1 and children(node)}
    named: list[str] = []

    def text(node: Expr, parts: Parts) -> str:
        written = _text(node, parts)
        if id(node) not in shared:
            return written
        named.append(f"{_SHARED}{len(named) + 1} = {written}")
        return f"{_SHARED}{len(named)}"

    whole = fold(expr, text)
    return f"{whole} with {', '.join(named)}" if named else whole


def _text(expr: Expr, parts: Parts) -> str:
    """Print a node whose children are printed already."""
    match expr:
        case Column(name=name):
            return _name(name)
        case Literal():
            return _literal(expr)
        case Call():
            return _call(expr, parts)
        case Cast(type=dtype):
            return f"cast({parts[0]}, {dtype})"
        case Case():
            pairs = zip(parts[0:-1:2], parts[1:-1:2], strict=True)
            branches = [f"when {condition} then {value}" for condition, value in pairs]
            return f"({' '.join(branches)} else {parts[-1]})"
        case IsIn(arg=arg, values=values):
            return f"{_inner(arg, parts[0])} in {{{', '.join(map(_literal, values))}}}"
        case Aggregate():
            return _aggregate(expr, parts)
        case Reduced(index=index):
            return f"#{index}"


def _name(name: str) -> str:
    return name if name.isidentifier() else quoted(name, "`")


def _literal(literal: Literal) -> str:
    value, kind = literal.value, kind_of(literal.type)
    if value is None:
        return "null"
    if kind in ("timestamp", "date", "duration"):
        return f"{value}:{literal.type}"
    if isinstance(value, bool):
        return str(value).lower()
    return quoted(value) if isinstance(value, str) else repr(value)


def _call(call: Call, parts: Parts) -> str:
    operands = list(map(_inner, call.args, parts))
    if call.function in _INFIX and len(operands) > 1:
        return f" {_INFIX[call.function]} ".join(operands)
    if call.function == "field":
        return f"{operands[0]}.{_name(str(dict(call.options)['name']))}"
    if call.function in _PREFIX:
        return f"{_PREFIX[call.function]}{operands[0]}"
    named = [f"{name}={_option(value)}" for name, value in call.options]
    return f"{call.function}({', '.join([*parts, *named])})"


def _aggregate(node: Aggregate, parts: Parts) -> str:
    inside = ", ".join([*parts[: len(node.args)], *_unusual(node)])
    condition = "" if node.where is None else f"where {parts[-1]}"
    return f"{node.function}({' '.join(filter(None, (inside, condition)))})"


def _unusual(node: Aggregate) -> Iterator[str]:
    """Print the options that differ from the default; a required option is printed without its name."""
    known = AGGREGATES.get(node.function)
    usual = {option.name: option.default for option in known.options} if known else {}
    for name, value in node.options:
        if name in usual and usual[name] is None:
            yield _option(value)
        elif name not in usual or value != usual[name]:
            yield f"{name}={_option(value)}"


def _option(value: object) -> str:
    return quoted(value) if isinstance(value, str) else repr(value)


def _inner(expr: Expr, text: str) -> str:
    """Parenthesise an operand that would otherwise be ambiguous."""
    match expr:
        case Call(function=function) if function in _INFIX or function in _PREFIX:
            return text if text.startswith(_SHARED) else f"({text})"
        case IsIn():
            return f"({text})"
        case _:
            return text
