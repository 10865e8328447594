"""Tell queries apart: what a program is made of, named so that a difference can be pointed at.

State that one query saved is of use only to a query with the same signature. Columns and clocks are spelled out;
definitions, which may contain a user's literals, are digests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import fields, is_dataclass

from penstock.ir.nodes import Input, Object, Program
from penstock.ir.show import schema_line


def signature(program: Program) -> dict[str, str]:
    """Give the identity of each part of a program, by its name.

    Equal programs have equal signatures, in any process; the code of a Python function is not looked into.
    """
    found = {"the output": f"~{program.output}"}
    for each in program.objects:
        found |= _parts(each)
    return found


def _parts(this: Object) -> dict[str, str]:
    stream = f" (stream {this.body.stream!r})" if isinstance(this.body, Input) else ""
    kind = type(this.body).__name__.lower()
    return {
        f"the columns of ~{this.name}{stream}": f"({schema_line(this.schema)})",
        f"the time of ~{this.name}{stream}": f"{this.time.column} ({_digest(this.time)})",
        f"the definition of ~{this.name}{stream}": f"{kind} ({_digest(this.body)})",
    }


def _digest(node: object) -> str:
    return hashlib.sha256(_text(node).encode()).hexdigest()[:16]


def _text(node: object) -> str:
    """Write a node as nested lists; equal nodes, and no others, are written alike."""
    match node:
        case tuple():
            return f"[{','.join(map(_text, node))}]"
        case _ if is_dataclass(node):
            parts = [_text(getattr(node, each.name)) for each in fields(node) if each.compare]
            return f"[{type(node).__name__},{','.join(parts)}]"
        case Callable():
            return "function"
        case str() | int() | float() | bool() | None:
            return repr(node)
        case _:
            return f"{type(node).__name__}:{node!s}"
