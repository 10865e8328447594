"""Deduplicate temporal objects, and drop unread ones.

    ~n1[t] = { a = ~n0[t]  value: a + 1 }        →  ~n1[t] = { a = ~n0[t]  value: a + 1 }
    ~n2[t] = { a = ~n0[t]  value: a + 1 }           ~n3[t] = { a = ~n1[t]  value: a * a }
    ~n3[t] = { a = ~n1[t]  b = ~n2[t]  value: a * b }

Fusion creates equal objects; duplicate accesses or reductions of an expression become one.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.analysis.graph import with_signals
from penstock.ir import nodes as ir
from penstock.ir.signals.nodes import Body, Expression, Object, Program, renamed
from penstock.ir.signals.scope import composed
from penstock.passes.fuse_signals import without_unread


def share_signals(program: ir.Program) -> ir.Program:
    """Deduplicate the objects of every signal."""
    return with_signals(program, shared)


def shared(program: Program) -> Program:
    """Redirect readers of an object to an earlier object with an equal definition."""
    instead = {name: name for name in program.inputs}
    known: dict[Body, str] = {}
    objects: list[Object] = []
    for obj in program.objects:
        body = renamed(obj.body, instead)
        if isinstance(body, Expression):
            body = composed(body, {})  # merges equal accesses and reductions
        instead[obj.name] = known.setdefault(body, obj.name)
        if instead[obj.name] == obj.name:
            objects.append(replace(obj, body=body))
    return without_unread(replace(program, objects=tuple(objects), output=instead[program.output]))
