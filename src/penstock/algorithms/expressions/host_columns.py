"""Subexpressions that Arrow computes: text beyond equality, and types that kernels do not support.

Such a subexpression becomes a *host column*, computed for the whole batch before the kernel runs; the kernel
reads it like any other column. A failure to compute it is an error only if one of the program's `Use`s
applies to the row: not for a row that a filter rejects, nor in a branch that is not taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.algorithms.expressions import calendar
from penstock.algorithms.expressions.calls.catalogue import CALLS
from penstock.algorithms.expressions.calls.decimals import fits_kernel
from penstock.algorithms.hash_table.text_kernels import LONGEST_LITERAL
from penstock.expr import nodes as ex
from penstock.expr.decimals import is_exact
from penstock.expr.interning import ordered
from penstock.expr.typing import type_of
from penstock.loop.machine import is_text, machine_type
from penstock.types.arrow import has_codes

MOST_TEXTS = 16
MOST_NUMBERS = 64  # above it Arrow looks values up: a comparison per value would bloat the loop
_NOT_FOR_TIMES = frozenset({"mul", "div", "floordiv", "mod"})
_ZONED_PARTS = frozenset(calendar.CALENDAR_PARTS) - {"epoch_ticks"}


@dataclass(frozen=True, slots=True)
class Use:
    """A value that a program needs, for the rows that satisfy all these conditions."""

    where: tuple[ex.Expr, ...]
    value: ex.Expr


def uses_of(where: Sequence[ex.Expr | None], *values: ex.Expr) -> list[Use]:
    """List the uses of values under conditions applied in order, and of the conditions themselves."""
    known = tuple(condition for condition in where if condition is not None)
    tests = [Use(known[:place], condition) for place, condition in enumerate(known)]
    return tests + [Use(known, value) for value in values]


@dataclass
class HostColumns:
    """Collects host columns while expressions are rewritten for kernels; `schema` includes them."""

    source: pa.Schema
    fields: dict[ex.Expr, str] = field(default_factory=dict)
    members: dict[ex.Expr, str] = field(default_factory=dict)
    _schema: pa.Schema = field(init=False)
    _values: dict[ex.Expr, ex.Expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._schema = self.source

    @property
    def schema(self) -> pa.Schema:
        """The columns of the source with those taken out of structs, then the host columns."""
        if len(self._schema) < len(self.source) + len(self.fields):
            added = [pa.field(name, type_of(expr, self.source)) for expr, name in self.fields.items()]
            self._schema = pa.schema([*self.source, *added])
        return self._schema

    def flat(self, expr: ex.Expr) -> ex.Expr:
        """Replace fields of struct columns by columns, which every other expression then reads like any column."""
        if not any(isinstance(node, ex.Call) and node.function == ex.MEMBER for node in ex.walk(expr)):
            return expr
        return ex.rewrite(expr, self._member)

    def _member(self, node: ex.Expr) -> ex.Expr:
        match node:
            case ex.Call(function=function, args=(ex.Column(),)) if function == ex.MEMBER:
                return self._member_column(node)
            case _:
                return node

    def _member_column(self, node: ex.Call) -> ex.Column:
        name = self.members.get(node)
        if name is None:
            name = self.members[node] = self._free_name("member")
            self.source = self.source.append(pa.field(name, type_of(node, self.source)))
        return ex.Column(name)

    def value(self, expr: ex.Expr) -> ex.Expr:
        """Rewrite an expression for a kernel: replace unsupported subexpressions by host columns."""
        expr = self.flat(expr)
        for node in ordered([expr], self._inside):
            if node not in self._values:
                self._values[node] = self._value(node)
        return self._values[expr]

    def _inside(self, expr: ex.Expr) -> tuple[ex.Expr, ...]:
        """List the operands that a kernel computes."""
        whole = expr in self._values or not _fits(expr, self.source)
        return () if whole or self._stays(expr) else ex.children(expr)

    def _stays(self, expr: ex.Expr) -> bool:
        return _compares_text(expr, self.source) or _is_null_test(expr)

    def _value(self, expr: ex.Expr) -> ex.Expr:
        if not _fits(expr, self.source):
            return self._column(expr)
        if self._stays(expr):
            return expr
        old = ex.children(expr)
        new = tuple(self._values[child] for child in old)
        return expr if new == old else ex.with_children(expr, new)

    def key(self, expr: ex.Expr) -> ex.Expr:
        """Rewrite a grouping key: a text column stays, since the runtime interns it."""
        expr = self.flat(expr)
        if isinstance(expr, ex.Column):
            return expr
        return self._column(expr) if is_text(type_of(expr, self.source)) else self.value(expr)

    def window_key(self, expr: ex.Expr) -> ex.Expr:
        """Rewrite a key of panes: a decimal that no word holds becomes a text, which the runtime interns."""
        dtype = type_of(self.flat(expr), self.source)
        texts = has_codes(dtype) and not is_text(dtype)
        return self._column(ex.Cast(self.flat(expr), pa.large_string())) if texts else self.key(expr)

    def argument(self, expr: ex.Expr) -> ex.Expr:
        """Rewrite an aggregate's argument: a column of any type stays; computed text becomes a host column."""
        return self.key(expr)

    def _column(self, expr: ex.Expr) -> ex.Expr:
        if isinstance(expr, ex.Column):
            return expr
        name = self.fields.get(expr)
        if name is None:
            name = self.fields[expr] = self._free_name("host")
        return ex.Column(name)

    def _free_name(self, prefix: str) -> str:
        taken = {*self.source.names, *self.fields.values()}
        return next(name for n in range(len(taken) + 1) if (name := f"{prefix}{n}") not in taken)


def _fits(expr: ex.Expr, schema: pa.Schema) -> bool:
    """Whether a kernel supports this node, regardless of its subexpressions."""
    if isinstance(expr, ex.Column | ex.Reduced):
        return True
    if _compares_text(expr, schema) or _is_null_test(expr):
        return True
    types = [type_of(node, schema) for node in (expr, *ex.children(expr))]
    if any(machine_type(dtype) is None for dtype in types):
        return False
    if any(map(is_exact, types)) and not fits_kernel(expr, types[0], types[1:]):
        return False
    if not isinstance(expr, ex.Call):
        return not (isinstance(expr, ex.IsIn) and len(expr.values) > MOST_NUMBERS)
    if expr.function in _NOT_FOR_TIMES and any(calendar.is_temporal(dtype) for dtype in types):
        return False
    zone = getattr(types[1], "tz", None) if expr.function in _ZONED_PARTS else None
    return expr.function in CALLS and zone in (None, "UTC", "Etc/UTC", "+00:00")


def _is_null_test(expr: ex.Expr) -> bool:
    match expr:
        case ex.Call(function="is_null" | "is_not_null", args=(ex.Column(),)):
            return True
        case _:
            return False


def _compares_text(expr: ex.Expr, schema: pa.Schema) -> bool:
    """Whether a node compares a text column with short literals for equality, which kernels support."""
    match expr:
        case ex.Call(function="eq" | "ne", args=(ex.Column() as column, ex.Literal() as literal)):
            return _is_text_test(column, (literal,), schema)
        case ex.Call(function="eq" | "ne", args=(ex.Literal() as literal, ex.Column() as column)):
            return _is_text_test(column, (literal,), schema)
        case ex.IsIn(arg=ex.Column() as column, values=values):
            return 0 < len(values) <= MOST_TEXTS and _is_text_test(column, values, schema)
        case _:
            return False


def _is_text_test(column: ex.Column, literals: tuple[ex.Literal, ...], schema: pa.Schema) -> bool:
    short = all(
        literal.value is None or len(str(literal.value).encode()) <= LONGEST_LITERAL for literal in literals
    )
    return is_text(schema.field(column.name).type) and short
