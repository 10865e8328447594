r"""Identify a program by its parts, so that two programs can be compared and differences reported.

State saved by one query is valid only for a query with the same signature. Each object has one entry that identifies
it, and further entries, `name + "\n" + part`, with readable descriptions of its parts. Neither contains a user's
constants, which may be secrets: descriptions replace them by `?`, identities by a digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass

from penstock.expr import nodes as ex
from penstock.expr.show import show
from penstock.ir import nodes as ir
from penstock.ir.nodes import Input, Object, Program
from penstock.ir.show import domain_text, look_text, schema_line
from penstock.ir.signals import nodes as temporal
from penstock.types.time import describe_length
from penstock.types.windows import (
    Calendar,
    CarriedWindow,
    Count,
    InWindow,
    LookBack,
    Session,
    TimeWindow,
    Unbounded,
    Within,
)

_PARTS = {
    "domain": "window", "pairing": "window", "where": "filter", "fields": "results", "on": "keys",
    "spans": "look-backs", "subset": "columns", "exact": "exact matches", "within": "window",
}  # fmt: skip
_LENGTHS = ("within", "tolerance")
LONGEST_SIGNATURE = 1 << 20
_CONSTANT = ex.Column("?")


def signature(program: Program) -> dict[str, str]:
    """Return the identity of each object of a program, by name, and the descriptions of its parts.

    Equal programs have equal signatures in every process; the code of Python functions is not part of them.
    """
    found = {_name(obj): _identity(obj) for obj in program.objects} | {"the output": program.output}
    parts = ((_name(obj), part, text) for obj in program.objects for part, text in _described(obj, program))
    return found | {f"{name}\n{part}": text for name, part, text in parts if text}


def _name(this: Object) -> str:
    stream = f" (stream {this.body.stream!r})" if isinstance(this.body, Input) else ""
    return f"~{this.name}{stream}"


def _identity(this: Object) -> str:
    digest = hashlib.sha256(_text((this.body, this.time)).encode()).hexdigest()[:16]
    return f"{type(this.body).__name__.lower()} {digest} of ({schema_line(this.schema)})"


def _text(node: object) -> str:
    """Serialise a node as nested lists; equal nodes, and no others, have equal texts."""
    match node:
        case tuple():
            return f"[{','.join(map(_text, node))}]"
        case _ if isinstance(node, ex.Composite):
            return _expression_text(node)
        case _ if is_dataclass(node):
            parts = [_text(getattr(node, field.name)) for field in fields(node) if field.compare]
            return f"[{type(node).__name__},{','.join(parts)}]"
        case Callable():
            return "function"
        case str() | int() | float() | bool() | None:
            return repr(node)
        case _:
            return f"{type(node).__name__}:{node!s}"


def _expression_text(expr: ex.Expr) -> str:
    """Serialise a graph as a tree; a text that would be too long is replaced by its digest."""
    texts: dict[int, str] = {}
    for node in ex.ordered(expr):
        text = _node_text(node, texts)
        texts[id(node)] = (
            text if len(text) <= LONGEST_SIGNATURE else f"[#,{hashlib.sha256(text.encode()).hexdigest()}]"
        )
    return texts[id(expr)]


def _node_text(node: ex.Expr, texts: dict[int, str]) -> str:
    """Serialise a node whose operands are serialised already."""

    def text(part: object) -> str:
        if id(part) in texts and isinstance(part, ex.Expr):
            return texts[id(part)]
        return f"[{','.join(map(text, part))}]" if isinstance(part, tuple) else _text(part)

    match node:
        case ex.Column() | ex.Literal() | ex.Reduced():
            return _text(node)
        case _:
            parts = [text(getattr(node, field.name)) for field in fields(node) if field.compare]
            return f"[{type(node).__name__},{','.join(parts)}]"


# --- descriptions -----------------------------------------------------------------------------------------


def _described(this: Object, program: Program) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each part of an object."""
    body = this.body
    if isinstance(body, Input):
        yield "columns", "; ".join(f"{field.name}: {field.type}" for field in this.schema)
        yield "time", f"{this.time.column}, in {this.time.unit or 'ticks'}"
        return
    yield "types", "; ".join(f"{field.name}: {field.type}" for field in this.schema)
    if isinstance(body, ir.Signals):
        for obj in body.program.objects:
            yield f"signal {obj.name}", _printed(obj.body, body.program.time.unit)
        return
    unit = next((program[name].time.unit for name in ir.sources_of(body)), this.time.unit)
    reductions = tuple(map(_aggregate, getattr(body, "reductions", ())))
    for name in [part.name for part in fields(body) if part.name != "reductions"]:
        value = getattr(body, name)
        text = describe_length(value, unit) if name in _LENGTHS and isinstance(value, int) else ""
        yield _PARTS.get(name, name), text or _printed(value, unit, reductions)


def _printed(value: object, unit: str | None, reductions: tuple[ex.Aggregate, ...] = ()) -> str:
    """Print a part of a definition without its constants."""
    match value:
        case None | ():
            return ""
        case (str(one), str(other)):
            return one if one == other else f"{one} = {other}"
        case tuple():
            return "; ".join(_printed(item, unit, reductions) for item in value)
        case ex.Field(name=name, expr=expr):
            return name if expr == ex.Column(name) else f"{name}: {_expression(expr, reductions)}"
        case temporal.WindowReduction(span=span, shift=shift):
            moved = f" shifted by {describe_length(shift, unit)}" if shift else ""
            return f"{_expression(_aggregate(value), ())} over {_printed(span, unit)}{moved}"
        case temporal.Last(rows=rows):
            return f"the last {rows} samples"
        case temporal.Rolling() | temporal.Window() | temporal.Per() | temporal.At() | temporal.Hold():
            return _record(value, unit)
        case TimeWindow() | CarriedWindow() | Session() | Count() | Unbounded() | Calendar():
            return domain_text(value, unit)
        case LookBack():
            return look_text(value, unit)
        case Within(lo=low, hi=high):
            return f"from {describe_length(low, unit)} to {describe_length(high, unit)}"
        case InWindow(left=left, right=right):
            sides = domain_text(left, unit), domain_text(right, unit)
            return sides[0] if left == right else " and ".join(sides)
        case _ if isinstance(value, ex.Expr):
            return _expression(value, reductions)
        case _ if is_dataclass(value):
            return _record(value, unit)
        case Callable():
            return "a function"
        case _:
            return str(value)


def _record(value: object, unit: str | None) -> str:
    assert is_dataclass(value)
    given = {field.name: getattr(value, field.name) for field in fields(value)}
    lengths = {
        name: describe_length(argument, unit) for name, argument in given.items() if type(argument) is int
    }
    texts = {name: lengths.get(name) or _printed(argument, unit) for name, argument in given.items()}
    return f"{type(value).__name__.lower()}({', '.join(f'{name} {text}' for name, text in texts.items() if text)})"


def _aggregate(reduction: ir.Reduction | temporal.WindowReduction) -> ex.Aggregate:
    return ex.Aggregate(reduction.function, reduction.args, reduction.where, reduction.options)


def _expression(expr: ex.Expr, reductions: tuple[ex.Aggregate, ...]) -> str:
    """Print an expression with aggregates in place of their indexes, and `?` in place of constants."""
    whole = ex.rewrite(
        expr, lambda node: reductions[node.index] if isinstance(node, ex.Reduced) and reductions else node
    )
    return show(ex.rewrite(whole, _without_constants)).replace("`?`", "?")


def _without_constants(node: ex.Expr) -> ex.Expr:
    match node:
        case ex.Literal():
            return _CONSTANT
        case ex.IsIn(arg=arg):
            return ex.Call("is_in", (arg, _CONSTANT))
        case ex.Call(function=function, args=args, options=options) if options:
            return ex.Call(
                function, args, tuple(option for option in options if not isinstance(option[1], str))
            )
        case ex.Aggregate(function=function, args=args, where=where, options=options):
            plain = tuple(option for option in options if isinstance(option[1], bool | int | float))
            return ex.Aggregate(function, args, where, plain)
        case _:
            return node
