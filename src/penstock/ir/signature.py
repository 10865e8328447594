"""Tell queries apart: what a program is made of, named so that a difference can be pointed at.

State that one query saved is of use only to a query with the same signature. Columns are spelled out; definitions,
which may contain a user's literals, are digests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import fields, is_dataclass

from penstock.ir.nodes import Input, Object, Program
from penstock.ir.show import schema_line


def signature(program: Program) -> dict[str, str]:
    """Give the identity of each object of a program, by its name.

    Equal programs have equal signatures, in any process; the code of a Python function is not looked into.
    """
    return {_name(each): _identity(each) for each in program.objects} | {"the output": program.output}


def _name(this: Object) -> str:
    stream = f" (stream {this.body.stream!r})" if isinstance(this.body, Input) else ""
    return f"~{this.name}{stream}"


def _identity(this: Object) -> str:
    digest = hashlib.sha256(_text((this.body, this.time)).encode()).hexdigest()[:16]
    return f"{type(this.body).__name__.lower()} {digest} of ({schema_line(this.schema)})"


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
