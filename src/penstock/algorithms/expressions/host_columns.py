"""Subexpressions that Arrow computes: text beyond equality, and types that kernels do not support; else row by row.

Such a subexpression becomes a *host column*, computed for the whole batch before the kernel runs; the kernel
reads it like any other column. A failure to compute it is an error only if one of the program's `Use`s
applies to the row: not for a row that a filter rejects, nor in a branch that is not taken.

Row-by-row evaluation is the definition itself (`expr/evaluate.py`): slow, and always correct.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.algorithms.expressions import calendar
from penstock.algorithms.expressions.decimals import fits_kernel
from penstock.algorithms.expressions.lowering import CALLS
from penstock.algorithms.hash_table.text_kernels import LONGEST_LITERAL
from penstock.errors import PenstockError
from penstock.expr import calendar as dates
from penstock.expr import nodes as ex
from penstock.expr import text
from penstock.expr.arithmetic import bounds
from penstock.expr.decimals import is_exact
from penstock.expr.evaluate import evaluator
from penstock.expr.interning import ordered
from penstock.expr.typing import type_of
from penstock.loop.numbers import is_text, machine_type
from penstock.types.arrow import from_physical, has_codes, kind_of, physical_values

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


_PRINTED_DIGITS = 6

Compute = Callable[[pa.RecordBatch], pa.Array]
Spared = Callable[[pa.RecordBatch, int], bool]


def host_function(
    fields: Mapping[ex.Expr, str], schema: pa.Schema, uses: Sequence[Use]
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Return the function that adds host columns to a batch."""
    spared = _spared(uses, schema)
    # In this order: an expression reads the fields of structs that are taken out before it.
    computes = [(name, type_of(expr, schema), compute(expr, schema, spared)) for expr, name in fields.items()]

    def prepare(batch: pa.RecordBatch) -> pa.RecordBatch:
        for name, dtype, run in computes:
            batch = batch.append_column(pa.field(name, dtype), run(batch))
        return batch

    return prepare


def compute(expr: ex.Expr, schema: pa.Schema, spared: Spared) -> Compute:
    """Choose how to compute an expression over a batch."""
    by_arrow, by_row = _by_arrow(expr, schema), _row_by_row(expr, schema, spared)

    def column(batch: pa.RecordBatch) -> pa.Array:
        try:
            return by_row(batch) if by_arrow is None else by_arrow(batch)
        except PenstockError:
            if by_arrow is None:
                raise
            return by_row(batch)  # raises only if the program needs the failing row

    return column


def _spared(uses: Sequence[Use], schema: pa.Schema) -> Spared:
    """Return the function that evaluates all uses of a row: it returns True, or raises the error of a use."""
    names = sorted({name for use in uses for expr in (*use.where, use.value) for name in ex.columns_of(expr)})
    runs = [
        ([evaluator(condition, schema) for condition in use.where], evaluator(use.value, schema))
        for use in uses
    ]

    def spared(batch: pa.RecordBatch, place: int) -> bool:
        row = {name: physical_values(batch.column(name).slice(place, 1))[0] for name in names}
        for where, value in runs:
            if all(condition(row, ()) is True for condition in where):
                value(row, ())
        return True

    return spared


def _row_by_row(expr: ex.Expr, schema: pa.Schema, spared: Spared) -> Compute:
    """Compute a value per row; a failure is null where no use of the program needs the row."""
    dtype = type_of(expr, schema)
    run = evaluator(expr, schema)
    names = sorted(ex.columns_of(expr))

    def slow(batch: pa.RecordBatch) -> pa.Array:
        columns = [physical_values(batch.column(name)) for name in names]
        rows = zip(*columns, strict=True) if names else repeat((), batch.num_rows)
        found = []
        for place, values in enumerate(rows):
            try:
                found.append(run(dict(zip(names, values, strict=True)), ()))
            except PenstockError:
                if not spared(batch, place):
                    raise
                found.append(None)
        return from_physical(found, dtype)

    return slow


def _by_arrow(expr: ex.Expr, schema: pa.Schema) -> Compute | None:
    """Arrow's function for a text operation on a column; None if there is none with the same semantics."""
    match expr:
        case ex.Call(function="field", args=(ex.Column(name=name),), options=options):
            return lambda batch: member(batch.column(name), str(dict(options)["name"]))
        case ex.Call(function="replace", options=options) if not dict(options)["pattern"]:
            return None  # Arrow would search for an empty pattern without end
        case ex.Call(function=function, args=(ex.Column(name=name),), options=options) if function in _CLOCK:
            return lambda batch: _CLOCK[function](batch.column(name), dict(options))
        case ex.Call(function=function, args=(ex.Column(name=name),), options=options) if is_text(
            schema.field(name).type
        ):
            run = _TEXT.get(function)
            settings = dict(options)
            dtype = type_of(expr, schema)
            return None if run is None else lambda batch: run(_plain(batch, name), settings).cast(dtype)
        case ex.Cast(arg=ex.Column(name=name), type=dtype) if is_text(dtype) and _prints(
            schema.field(name).type
        ):
            return lambda batch: batch.column(name).cast(dtype)
        case ex.IsIn(arg=ex.Column(name=name), values=values):
            return _membership(name, values, schema)
        case ex.Call(function="eq" | "ne" | "lt" | "le" | "gt" | "ge" as function, args=args):
            return _comparison(function, args, schema)
        case _:
            return None


def member(struct: pa.StructArray, name: str) -> pa.Array:
    """Take a field out of a struct column; null where the struct is null. Its values are not copied.

    >>> member(pa.array([{"a": 1, "b": 2}, None]), "b").to_pylist()
    [2, None]
    """
    return pc.struct_field(struct, [struct.type.get_field_index(name)])


def _prints(dtype: pa.DataType) -> bool:
    """Whether Arrow prints decimals of a type without an exponent."""
    return kind_of(dtype) == "decimal" and dtype.scale <= _PRINTED_DIGITS


def _plain(batch: pa.RecordBatch, name: str) -> pa.Array:
    array = batch.column(name)
    return array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array


_CLOCK: dict[str, Callable[[pa.Array, dict[str, object]], pa.Array]] = {
    "floor_time": dates.floor_time,
    "offset": dates.offset,
    "month_start": dates.month_start,
    "month_end": dates.month_end,
    "replace_zone": dates.replace_zone,
}

_TEXT: dict[str, Callable[[pa.Array, dict[str, object]], pa.Array]] = {
    "str_len_chars": lambda array, _: pc.utf8_length(array),
    "str_len_bytes": lambda array, _: pc.binary_length(array),
    "starts_with": lambda array, options: pc.starts_with(array, pattern=options["pattern"]),
    "ends_with": lambda array, options: pc.ends_with(array, pattern=options["pattern"]),
    "contains": lambda array, options: pc.match_substring(array, pattern=options["pattern"]),
    "replace": lambda array, options: pc.replace_substring(
        array,
        pattern=options["pattern"],
        replacement=options["value"],
        max_replacements=options.get("most", -1),
    ),
    "matches": text.matches,
    "count_matches": text.count_matches,
    "replace_matches": text.replace_matches,
    "extract": text.extract,
    "find": text.find,
}

_COMPARE = {
    "eq": pc.equal,
    "ne": pc.not_equal,
    "lt": pc.less,
    "le": pc.less_equal,
    "gt": pc.greater,
    "ge": pc.greater_equal,
}


def _comparison(function: str, args: tuple[ex.Expr, ...], schema: pa.Schema) -> Compute | None:
    """Compare texts: Arrow orders them by bytes, as the definition does."""
    operands = [_operand(arg, schema) for arg in args]
    if any(operand is None for operand in operands) or not any(isinstance(arg, ex.Column) for arg in args):
        return None
    return lambda batch: _COMPARE[function](*(operand(batch) for operand in operands if operand is not None))


def _membership(name: str, values: tuple[ex.Literal, ...], schema: pa.Schema) -> Compute | None:
    """Look a column up in a list of its type, or of whole numbers; others are evaluated row by row."""
    dtype = schema.field(name).type
    plain = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
    listed = _listed(values, plain)
    if listed is None:
        return None

    def look_up(batch: pa.RecordBatch) -> pa.Array:
        array = _plain(batch, name)
        if pa.types.is_floating(plain):
            array = pc.add(array, pa.scalar(0.0, plain))  # -0.0 becomes 0.0, which Arrow distinguishes
        return pc.if_else(array.is_valid(), pc.is_in(array, value_set=listed), pa.nulls(1, pa.bool_())[0])

    return look_up


def _listed(values: tuple[ex.Literal, ...], dtype: pa.DataType) -> pa.Array | None:
    """Return the values that a column of the type can hold; None if Arrow does not compare them as the definition does."""
    given: list[Any] = [value.value for value in values]
    if pa.types.is_float16(dtype):
        return None
    if all(value.type == dtype for value in values):
        return from_physical(
            [value + 0.0 for value in given] if pa.types.is_floating(dtype) else given, dtype
        )
    if not pa.types.is_integer(dtype) or not all(pa.types.is_integer(value.type) for value in values):
        return None
    least, most = bounds(dtype)
    return pa.array([value for value in given if least <= value <= most], dtype)


def _operand(arg: ex.Expr, schema: pa.Schema) -> Callable[[pa.RecordBatch], object] | None:
    match arg:
        case ex.Column(name=name) if is_text(schema.field(name).type):
            return lambda batch: _plain(batch, name).cast(pa.large_string())
        case ex.Literal(value=value, type=dtype) if is_text(dtype):
            return lambda batch: pa.scalar(value, pa.large_string())
        case _:
            return None
