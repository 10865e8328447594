"""Bind a windowed aggregation over panes to its kernels, for the runtime."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from penstock.algorithms.expressions.columns import RowKernel
from penstock.algorithms.kernel_factory import KernelFactory, once, preparation
from penstock.algorithms.window_grid import Grid
from penstock.expr import nodes as ex
from penstock.expr.typing import type_of
from penstock.loop.machine import is_text
from penstock.loop.nodes import Buffer, Kernel
from penstock.operators.pane_aggregate.kernels.emit_steps.merging import ONE_PANE
from penstock.operators.pane_aggregate.kernels.window import Window
from penstock.operators.pane_aggregate.program import Key, StateSpec, Variant
from penstock.runtime.buffers import numpy_type
from penstock.runtime.kernels import Call, OutputCall, ResultColumn, RowsCall
from penstock.types.arrow import width_of
from penstock.types.windows import WINDOW_BOUNDS


class CompiledWindow:
    """A windowed aggregation with kernels built on demand (the runtime's `WindowProgram`)."""

    def __init__(self, window: Window, kernel_factory: KernelFactory, sliding: str) -> None:
        self._window, self._kernel_factory, self._sliding = window, kernel_factory, sliding
        self.time = window.time
        self.grid = Grid(*window.grid)
        self.carried = window.carried
        self.strict = window.body.strict
        self.interned = window.interned
        self.texts = kernel_factory.texts
        self.schema = window.result.schema
        self.keys = tuple(self._key(key.expr) for key in window.keys)
        self.result = tuple(self._result(each) for each in window.body.fields)
        self.prepare = preparation(window.host, window.source, window.uses)
        self.columns = self._columns()
        self.row_bytes = self._row_bytes()
        self._null_keys: dict[frozenset[str], bool] = {}
        self._layouts: dict[tuple[frozenset[str], bool], tuple[StateSpec, ...]] = {}
        self._sources: dict[tuple[frozenset[str], frozenset[str]], list[int]] = {}
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
        return ResultColumn(field.name, dtype, "start" if name == WINDOW_BOUNDS[0] else "end")

    def _columns(self) -> tuple[str, ...]:
        """Return the batch columns that kernels read."""
        window = self._window
        exprs = [*(key.expr for key in window.keys), *_given(window.where)]
        for each in window.reductions:
            exprs += [*each.args, *_given(each.where)]
        used = {name for expr in exprs for name in ex.columns_of(expr)}
        return tuple(name for name in window.schema.names if name in used and not self._is_implied(name))

    def _row_bytes(self) -> int | None:
        """Return the bytes per row that kernels read, or None if a column has variable width."""
        widths = [width_of(self._window.schema.field(name).type) for name in self.columns]
        return None if None in widths else max(sum(filter(None, widths)), 1)

    def _is_implied(self, name: str) -> bool:
        return self.time.period is not None and name == self.time.column

    def layout(self, nullable: frozenset[str], wide: bool) -> tuple[StateSpec, ...]:
        return once(self._layouts, (nullable, wide), lambda: self._layout(nullable, wide))

    def _layout(self, nullable: frozenset[str], wide: bool) -> tuple[StateSpec, ...]:
        return tuple(
            StateSpec(state.type, state.identity, monoid.guarded, monoid.text)
            for monoid in self._window.monoids(nullable, wide)
            for state in monoid.states
        )

    def sources(self, old: frozenset[str], new: frozenset[str]) -> list[int]:
        return once(self._sources, (old, new), lambda: self._window.sources(old, new))

    def key_may_be_null(self, nullable: frozenset[str]) -> bool:
        return once(self._null_keys, nullable, lambda: self._window.keys_nullable(nullable))

    def fold(self, variant: Variant) -> RowsCall:
        return once(
            self._folds,
            variant,
            lambda: self._rows_call(
                ("fold", variant),
                self._window.fold(variant.key_table, variant.nullable, variant.wide),
            ),
        )

    def emit(self, variant: Variant, several_panes: bool) -> OutputCall:
        return once(self._emits, (variant, several_panes), lambda: self._emit(variant, several_panes))

    def _emit(self, variant: Variant, several_panes: bool) -> OutputCall:
        merging = self._sliding if several_panes else ONE_PANE
        kernel = self._window.emit(variant.nullable, variant.wide, merging, variant.key_table)
        call = self._kernel_factory.call((self, "emit", variant, several_panes), lambda: kernel.kernel)
        return OutputCall(call, kernel.outputs, kernel.bindings, kernel.scratch, _written(kernel.kernel))

    def absorb(self, nullable: frozenset[str], wide: bool) -> RowsCall:
        key = nullable, wide
        return once(
            self._absorbs,
            key,
            lambda: self._rows_call(("absorb", *key), self._window.absorb(nullable, wide)),
        )

    def blend(self, nullable: frozenset[str], wide: bool) -> RowsCall:
        key = nullable, wide
        return once(
            self._blends, key, lambda: self._rows_call(("blend", *key), self._window.blend(nullable, wide))
        )

    def _rows_call(self, name: tuple[Hashable, ...], kernel: RowKernel) -> RowsCall:
        return RowsCall(self._kernel_factory.call((self, *name), lambda: kernel.kernel), kernel.bindings)

    def index(self, width: int) -> Call:
        return self._kernel_factory.index(width)


def _written(kernel: Kernel) -> tuple[tuple[str, np.dtype], ...]:
    """Return the columns that a kernel writes."""
    buffers = (each for each in kernel.params if isinstance(each, Buffer) and each.name.startswith("out"))
    return tuple((each.name, numpy_type(each.type)) for each in buffers)


def _given(expr: ex.Expr | None) -> tuple[ex.Expr, ...]:
    return () if expr is None else (expr,)
