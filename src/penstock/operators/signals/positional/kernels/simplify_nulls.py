"""Remove null tests whose outcome is known.

    case when is_not_null(a) then a - b end      →      a - b        where a never is

An operation on signals tests whether its operands are defined. Over regular time without gaps they always
are; the kernel then needs neither the tests nor the validity bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.expr import nodes as ex
from penstock.expr.typing import type_of
from penstock.ir.signals.nodes import WindowReduction

# Functions that are null only where an operand is.
_STRICT = frozenset(
    {"add", "sub", "mul", "div", "neg", "abs", "sqrt", "eq", "ne", "lt", "le", "gt", "ge", "not", "and", "or"}
)
_TRUE = ex.Literal(True, pa.bool_())
_FALSE = ex.Literal(False, pa.bool_())


@dataclass(frozen=True)
class Certain:
    """The columns and reductions that may be null in the scope of an expression."""

    schema: pa.Schema
    nullable: Collection[str]
    reduced_types: Sequence[pa.DataType] = ()
    reduced_nullable: Collection[int] = ()

    def simplified(self, expr: ex.Expr) -> ex.Expr:
        """Replace the tests that can be decided."""
        return ex.rewrite(expr, self._decided)

    def _decided(self, node: ex.Expr) -> ex.Expr:
        match node:
            case ex.Call(function="is_not_null", args=(arg,)) if self.never_null(arg):
                return _TRUE
            case ex.Call(function="is_null", args=(arg,)) if self.never_null(arg):
                return _FALSE
            case ex.Call(function="fill_null", args=(arg, _)) if self.never_null(arg):
                return self._typed(arg, node)
            case ex.Call(function="and", args=(a, b)) if _TRUE in (a, b):
                return b if a == _TRUE else a
            case ex.Case(branches=((condition, value), *_)) if condition == _TRUE:
                return self._typed(value, node)
            case _:
                return node

    def _typed(self, value: ex.Expr, node: ex.Expr) -> ex.Expr:
        """Replace a choice by the branch that is always taken, unless its type differs."""
        same = type_of(value, self.schema, self.reduced_types) == type_of(
            node, self.schema, self.reduced_types
        )
        return value if same else node

    def never_null(self, expr: ex.Expr) -> bool:
        """Whether an expression is never null."""
        return ex.fold(expr, self._never_null)

    def _never_null(self, expr: ex.Expr, below: tuple[bool, ...]) -> bool:
        match expr:
            case ex.Column(name=name):
                return name not in self.nullable
            case ex.Reduced(index=index):
                return index not in self.reduced_nullable
            case ex.Literal(value=value):
                return value is not None
            case ex.Call(function=function):
                return function in _STRICT and all(below)
            case ex.Cast():
                return all(below)
            case ex.Case():  # its values: every second child, and the last
                return all(below[1::2]) and below[-1]
            case _:
                return False

    def over(self, over: WindowReduction) -> WindowReduction:
        """Simplify the arguments and the condition of a reduction."""
        where = None if over.where is None else self.simplified(over.where)
        args = tuple(map(self.simplified, over.args))
        return replace(over, args=args, where=None if where == _TRUE else where)
