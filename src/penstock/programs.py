"""Join kernels with the back end that runs them: what the compiler hands to the runtime."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock
from typing import TypeVar

import pyarrow as pa

from penstock.expr import nodes as ex
from penstock.expr.typing import type_of
from penstock.ir import nodes as ir
from penstock.kernels.tables.index import index_kernel
from penstock.kernels.text import intern_kernel
from penstock.loop.nodes import I32, I64, Kernel
from penstock.lower.columns import RowKernel
from penstock.lower.emission.merging import ONE_PANE
from penstock.lower.emission.spec import Output
from penstock.lower.host import HostColumns
from penstock.lower.machine import is_text
from penstock.lower.rows import RowsKernel, RowsSpec, build_rows
from penstock.lower.window_program import BOUNDS, Window
from penstock.runtime.programs import (
    Call,
    Grid,
    Key,
    OutputCall,
    OutputColumn,
    ResultColumn,
    RowsCall,
    ScratchRows,
    Texts,
    Variant,
)
from penstock.runtime.table import StateSpec

Backend = Callable[[Kernel], Call]

_Key = TypeVar("_Key", bound=Hashable)
_Made = TypeVar("_Made")


class Workshop:
    """Makes callables of kernels, each once, whichever thread asks first; keeps the kernels to show."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._calls: dict[Hashable, Call] = {}
        self._lock = Lock()
        self.kernels: list[Kernel] = []
        self.texts = Texts(self._intern)

    def call(self, key: Hashable, build: Callable[[], Kernel]) -> Call:
        with self._lock:
            if key not in self._calls:
                kernel = build()
                self.kernels.append(kernel)
                self._calls[key] = self._backend(kernel)
            return self._calls[key]

    def index(self, width: int) -> Call:
        return self.call(("index", width), lambda: index_kernel(width))

    def _intern(self, large: bool, nullable: bool) -> Call:
        return self.call(("intern", large, nullable), lambda: intern_kernel(I64 if large else I32, nullable))


class CompiledWindow:
    """A windowed aggregation with its kernels on demand (the runtime's `WindowProgram`)."""

    def __init__(self, window: Window, workshop: Workshop, sliding: str) -> None:
        self._window, self._workshop, self._sliding = window, workshop, sliding
        self.time = window.time
        self.grid = Grid(*window.grid)
        self.carried = window.carried
        self.strict = window.body.strict
        self.interned = window.interned
        self.texts = workshop.texts
        self.schema = window.result.schema
        self.keys = tuple(self._key(key.expr) for key in window.keys)
        self.result = tuple(self._result(each) for each in window.body.fields)
        self.prepare = _preparation(window.host, window.source.schema)
        self.columns = self._columns()
        self._null_keys: dict[frozenset[str], bool] = {}
        self._layouts: dict[tuple[frozenset[str], bool], tuple[StateSpec, ...]] = {}
        self._folds: dict[Variant, RowsCall] = {}
        self._emits: dict[tuple[Variant, bool], OutputCall] = {}
        self._absorbs: dict[tuple[frozenset[str], bool], RowsCall] = {}
        self._blends: dict[tuple[frozenset[str], bool], RowsCall] = {}

    def _key(self, expr: ex.Expr) -> Key:
        dtype = type_of(expr, self._window.schema)
        return Key(dtype, expr.name if isinstance(expr, ex.Column) else None, is_text(dtype))

    def _result(self, field: ex.Field) -> ResultColumn:
        dtype = self.schema.field(field.name).type
        if not isinstance(field.expr, ex.Column):
            return ResultColumn(field.name, dtype, "computed")
        name = field.expr.name
        keys = [key.name for key in self._window.keys]
        if name in keys:
            return ResultColumn(field.name, dtype, "key", keys.index(name))
        return ResultColumn(field.name, dtype, "start" if name == BOUNDS[0] else "end")

    def _columns(self) -> tuple[str, ...]:
        """The batch columns that kernels read."""
        window = self._window
        exprs = [*(key.expr for key in window.keys), *_given(window.where)]
        for each in window.reductions:
            exprs += [*each.args, *_given(each.where)]
        used = {name for expr in exprs for name in ex.columns_of(expr)}
        return tuple(name for name in window.schema.names if name in used and not self._is_implied(name))

    def _is_implied(self, name: str) -> bool:
        return self.time.period is not None and name == self.time.column

    def layout(self, nullable: frozenset[str], wide: bool) -> tuple[StateSpec, ...]:
        return _once(self._layouts, (nullable, wide), lambda: self._layout(nullable, wide))

    def _layout(self, nullable: frozenset[str], wide: bool) -> tuple[StateSpec, ...]:
        return tuple(
            StateSpec(state.type, state.identity, monoid.guarded, monoid.text)
            for monoid in self._window.monoids(nullable, wide)
            for state in monoid.states
        )

    def sources(self, old: frozenset[str], new: frozenset[str]) -> list[int]:
        return self._window.sources(old, new)

    def key_may_be_null(self, nullable: frozenset[str]) -> bool:
        return _once(self._null_keys, nullable, lambda: self._window.keys_nullable(nullable))

    def fold(self, variant: Variant) -> RowsCall:
        return _once(
            self._folds,
            variant,
            lambda: self._rows_call(
                ("fold", variant),
                self._window.fold(variant.key_table, variant.nullable, variant.wide),
            ),
        )

    def emit(self, variant: Variant, several_panes: bool) -> OutputCall:
        return _once(self._emits, (variant, several_panes), lambda: self._emit(variant, several_panes))

    def _emit(self, variant: Variant, several_panes: bool) -> OutputCall:
        merging = self._sliding if several_panes else ONE_PANE
        kernel = self._window.emit(variant.nullable, variant.wide, merging, variant.key_table)
        call = self._workshop.call((self, "emit", variant, several_panes), lambda: kernel.kernel)
        scratch = tuple(ScratchRows(each.parameter, each.type, each.deep) for each in kernel.scratch)
        return OutputCall(call, output_columns(kernel.outputs), kernel.bindings, scratch)

    def absorb(self, nullable: frozenset[str], wide: bool) -> RowsCall:
        key = nullable, wide
        return _once(
            self._absorbs,
            key,
            lambda: self._rows_call(("absorb", *key), self._window.absorb(nullable, wide)),
        )

    def blend(self, nullable: frozenset[str], wide: bool) -> RowsCall:
        key = nullable, wide
        return _once(
            self._blends, key, lambda: self._rows_call(("blend", *key), self._window.blend(nullable, wide))
        )

    def _rows_call(self, name: tuple[Hashable, ...], kernel: RowKernel) -> RowsCall:
        return RowsCall(self._workshop.call((self, *name), lambda: kernel.kernel), kernel.bindings)

    def index(self, width: int) -> Call:
        return self._workshop.index(width)


class CompiledRows:
    """Filter and computed columns (the runtime's `RowsProgram`)."""

    def __init__(self, body: ir.Samples, source: ir.Object, result: ir.Object, workshop: Workshop) -> None:
        self._workshop = workshop
        self._host = host = HostColumns(source.schema)
        self.time, self.schema = source.time, result.schema
        self._where = None if body.where is None else host.value(body.where)
        passing = [self._passes(each, host) for each in body.fields]
        self._computed = tuple(
            ex.Field(each.name, host.value(each.expr))
            for each, name in zip(body.fields, passing, strict=True)
            if name is None
        )
        self.result = tuple(self._result(each, name) for each, name in zip(body.fields, passing, strict=True))
        self.filters = body.where is not None
        self.interned = frozenset(each.name for each in host.schema if pa.types.is_dictionary(each.type))
        self.texts = workshop.texts
        self.prepare = _preparation(host, source.schema)
        self._kernels: dict[frozenset[str], RowsKernel] = {}

    @staticmethod
    def _passes(field: ex.Field, host: HostColumns) -> str | None:
        """The column that a field merely hands on, possibly one that Arrow computes."""
        expr = host.key(field.expr) if is_text(type_of(field.expr, host.source)) else field.expr
        return expr.name if isinstance(expr, ex.Column) else None

    def _result(self, field: ex.Field, passing: str | None) -> ResultColumn:
        dtype = self.schema.field(field.name).type
        if passing is None:
            return ResultColumn(field.name, dtype, "computed")
        return ResultColumn(field.name, dtype, "row", source=passing)

    def rows(self, nullable: frozenset[str]) -> OutputCall | None:
        if self._where is None and not self._computed:
            return None
        known = nullable & frozenset(self._host.schema.names)
        kernel = self.kernel(known)
        call = self._workshop.call((self, known), lambda: kernel.kernel)
        return OutputCall(call, output_columns(kernel.outputs), kernel.bindings)

    def kernel(self, nullable: frozenset[str]) -> RowsKernel:
        """The kernel for an assumption about which columns hold nulls."""
        spec = RowsSpec(self._host.schema, self.time, self._where, self._computed, nullable, self.interned)
        return _once(self._kernels, nullable, lambda: build_rows(spec))


def _once(made: dict[_Key, _Made], key: _Key, make: Callable[[], _Made]) -> _Made:
    """Give what was made for a key before, or make it. (Two threads may both make it: it is the same.)"""
    if key not in made:
        made[key] = make()
    return made[key]


def _given(expr: ex.Expr | None) -> tuple[ex.Expr, ...]:
    return () if expr is None else (expr,)


def output_columns(outputs: tuple[Output, ...]) -> tuple[OutputColumn, ...]:
    """Tell the runtime where a kernel's columns arrive."""
    return tuple(OutputColumn(each.name, each.type, each.values, each.valid, each.text) for each in outputs)


def _preparation(host: HostColumns, schema: pa.Schema) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """The function that adds host columns; most queries have none and need not load Arrow's functions."""
    if not host.fields:
        return lambda batch: batch
    from penstock.lower.arrow_compute import host_function  # noqa: PLC0415

    return host_function(host.fields, schema)
