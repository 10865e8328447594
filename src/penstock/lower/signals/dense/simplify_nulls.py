"""Leave out questions whose answer is known: whether something is null that never is.

    case when is_not_null(a) then a - b end      →      a - b        where a never is

An operation on signals asks where its operands are defined. Over regular time without gaps they always are, and
a kernel that need not ask also need not remember the answers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.expr import nodes as ex
from penstock.expr.typing import type_of
from penstock.ir.signals.nodes import WindowReduction

# Null only where an operand is.
_STRICT = frozenset(
    {"add", "sub", "mul", "div", "neg", "abs", "sqrt", "eq", "ne", "lt", "le", "gt", "ge", "not", "and", "or"}
)
_TRUE = ex.Literal(True, pa.bool_())
_FALSE = ex.Literal(False, pa.bool_())


@dataclass(frozen=True)
class Certain:
    """What is known where an expression stands: the columns and the reductions that may be null."""

    schema: pa.Schema
    nullable: Collection[str]
    reduced_types: Sequence[pa.DataType] = ()
    reduced_nullable: Collection[int] = ()

    def simplified(self, expr: ex.Expr) -> ex.Expr:
        """Decide what can be decided."""
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
        """Replace a choice by what is always chosen, unless it is of another type."""
        same = type_of(value, self.schema, self.reduced_types) == type_of(
            node, self.schema, self.reduced_types
        )
        return value if same else node

    def never_null(self, expr: ex.Expr) -> bool:
        """Whether an expression is sure to have a value."""
        match expr:
            case ex.Column(name=name):
                return name not in self.nullable
            case ex.Reduced(index=index):
                return index not in self.reduced_nullable
            case ex.Literal(value=value):
                return value is not None
            case ex.Call(function=function, args=args):
                return function in _STRICT and all(map(self.never_null, args))
            case ex.Cast(arg=arg):
                return self.never_null(arg)
            case ex.Case(branches=branches, otherwise=otherwise):
                return all(self.never_null(value) for _, value in branches) and self.never_null(otherwise)
            case _:
                return False

    def over(self, over: WindowReduction) -> WindowReduction:
        """Simplify what a reduction reads of a sample."""
        where = None if over.where is None else self.simplified(over.where)
        args = tuple(map(self.simplified, over.args))
        return replace(over, args=args, where=None if where == _TRUE else where)
