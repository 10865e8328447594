"""Print a kernel; kernels with different semantics never print the same text.

    kernel sum(x: global i64[], n: i64)
      var t: i64 = 0
      for i in 0 .. n:
        t = (t + x[i])
      return t

A constant carries its type unless it is i64, f64 or bool. A long value is abbreviated by a `let` line before
its statement, which also keeps the text linear where kernels share values.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator

from penstock.loop.nodes import (
    Assign,
    Atomic,
    Binary,
    Bitcast,
    Block,
    Buffer,
    Cast,
    Const,
    Declare,
    For,
    GroupReduce,
    GroupScan,
    If,
    Kernel,
    Literal,
    Load,
    Overflows,
    Peek,
    Return,
    Select,
    Stmt,
    Store,
    Unary,
    Value,
    Var,
    While,
)
from penstock.loop.numbers import bits_of

_SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%", "and": "&", "or": "|", "xor": "^",
    "shl": "<<", "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")
_RESERVED = frozenset({"true", "false", "nan", "inf"})
_LONGEST = 100
_STEP = "  "


def show(kernel: Kernel) -> str:
    """Print a kernel, one statement per line; a literal is printed as its value."""
    return _show(kernel, _Lets)


def fingerprint(kernel: Kernel) -> str:
    """Return the SHA-256 of a kernel's text with the names of its literals: equal exactly when the code can be shared."""
    return hashlib.sha256(_show(kernel, _NamedLets).encode()).hexdigest()


def _show(kernel: Kernel, lets: type[_Lets]) -> str:
    params = ", ".join(map(_parameter, kernel.params))
    lines = [f"kernel {_name(kernel.name)}({params})"]
    if lets is _NamedLets:
        lines.extend(f"{_STEP}literal {_name(literal.name)}: {literal.type}" for literal in kernel.literals)
    lines.extend(f"{_STEP}local {_parameter(local)}" for local in kernel.locals)
    lines.extend(_block(kernel.body, _STEP, lets))
    return "\n".join(lines) + "\n"


def show_statement(stmt: Stmt) -> str:
    """Print a statement's line, without nested blocks."""
    lets = _Lets()
    lines = list(_statement(stmt, lets, "", nested=False))
    return "; ".join([*lets.lines, lines[0]])


def _parameter(parameter: Var | Buffer) -> str:
    if isinstance(parameter, Buffer):
        length = "" if parameter.length is None else parameter.length
        return f"{_name(parameter.name)}: {parameter.space} {parameter.type}[{length}]"
    return f"{_name(parameter.name)}: {parameter.type}"


def _name(name: str) -> str:
    return name if _PLAIN_NAME.match(name) and name not in _RESERVED else ascii(name)


def _block(block: Block, indent: str, kind: type[_Lets]) -> Iterator[str]:
    if not block:
        yield f"{indent}pass"
    for stmt in block:
        lets = kind()
        lines = list(_statement(stmt, lets, indent))
        yield from (indent + line for line in lets.lines)
        yield from lines


def _statement(stmt: Stmt, lets: _Lets, indent: str, nested: bool = True) -> Iterator[str]:
    value, inner = lets.value, indent + _STEP
    match stmt:
        case Declare(var, initial):
            yield f"{indent}var {_name(var.name)}: {var.type} = {value(initial)}"
        case Assign(var, new):
            yield f"{indent}{_name(var.name)} = {value(new)}"
        case Store(buffer, index, new):
            yield f"{indent}{_name(buffer.name)}[{value(index)}] = {value(new)}"
        case Atomic(op, buffer, index, new, old):
            result = "" if old is None else f"var {_name(old.name)}: {old.type} = "
            yield f"{indent}{result}atomic {op} {_name(buffer.name)}[{value(index)}], {value(new)}"
        case For(var, start, stop, body, parallel, scalar, brief, unrolled):
            ways = {"parallel": parallel, "scalar": scalar, "brief": brief, "unrolled": unrolled}
            word = " ".join([*(way for way, holds in ways.items() if holds), "for"])
            yield f"{indent}{word} {_name(var.name)} in {value(start)} .. {value(stop)}:"
            if nested:
                yield from _block(body, inner, type(lets))
        case While(condition, body):
            yield f"{indent}while {value(condition)}:"
            if nested:
                yield from _block(body, inner, type(lets))
        case If(condition, then, orelse):
            yield f"{indent}if {value(condition)}:"
            if nested:
                yield from _branches(then, orelse, indent, type(lets))
        case Return(result_value):
            yield f"{indent}return {value(result_value)}"


def _branches(then: Block, orelse: Block, indent: str, kind: type[_Lets]) -> Iterator[str]:
    yield from _block(then, indent + _STEP, kind)
    if orelse:
        yield f"{indent}else:"
        yield from _block(orelse, indent + _STEP, kind)


class _Lets:
    """Prints values; long ones are named `$1`, `$2`, … by their text."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._names: dict[str, str] = {}
        self._memo: dict[int, str] = {}

    def value(self, node: Value) -> str:
        known = self._memo.get(id(node))
        if known is None:
            known = self._memo[id(node)] = self._short(_text(node, self))
        return known

    def _short(self, text: str) -> str:
        if len(text) <= _LONGEST:
            return text
        if text not in self._names:
            self._names[text] = f"${len(self._names) + 1}"
            self.lines.append(f"let {self._names[text]} = {text}")
        return self._names[text]

    def literal(self, node: Literal) -> str:
        return _constant(Const(node.value, node.type))


class _NamedLets(_Lets):
    """Prints literals by their names."""

    def literal(self, node: Literal) -> str:
        return _name(node.name)


def _text(node: Value, lets: _Lets) -> str:
    value = lets.value
    match node:
        case Const():
            return _constant(node)
        case Literal():
            return lets.literal(node)
        case Var(name, _):
            return _name(name)
        case Load(buffer, index, fresh):
            return f"{'fresh ' if fresh else ''}{_name(buffer.name)}[{value(index)}]"
        case Peek(buffer, index, type):
            return f"peek_{type}({_name(buffer.name)}, {value(index)})"
        case Binary(op, a, b) if op in _SYMBOLS:
            return f"({value(a)} {_SYMBOLS[op]} {value(b)})"
        case Binary(op, a, b):
            return f"{op}({value(a)}, {value(b)})"
        case Unary(op, a):
            return f"{op}({value(a)})"
        case Overflows(op, a, b):
            return f"overflows_{op}({value(a)}, {value(b)})"
        case Select(condition, a, b):
            return f"select({value(condition)}, {value(a)}, {value(b)})"
        case Cast(a, type):
            return f"to_{type}({value(a)})"
        case Bitcast(a, type):
            return f"bits_as_{type}({value(a)})"
        case GroupReduce(op, a):
            return f"group_reduce_{op}({value(a)})"
        case GroupScan(op, a):
            return f"group_scan_{op}({value(a)})"
    raise AssertionError(f"not a value of the loop IR: {node!r}")


def _constant(const: Const) -> str:
    type = const.type
    if type.kind == "bool":
        return "true" if const.value else "false"
    if not type.is_float:
        return str(int(const.value)) if type.name == "i64" else f"{int(const.value)}:{type}"
    number = float(const.value)
    text = repr(number)
    if math.isnan(number):  # NaNs differ in sign and payload, which a bitcast exposes
        text = f"nan_{bits_of(number, type):x}"
    return text if type.name == "f64" else f"{text}:{type}"
