"""Build the stage of a windowed aggregation over panes, and bind its kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from penstock.algorithms.expressions.lowering import RowKernel
from penstock.algorithms.kernel_factory import KernelFactory, once, preparation
from penstock.algorithms.window_grid import Grid
from penstock.expr import nodes as ex
from penstock.expr.typing import type_of
from penstock.loop.nodes import Buffer, Kernel
from penstock.loop.numbers import is_text
from penstock.operators.pane_aggregate.kernels.emit_panes import ONE_PANE
from penstock.operators.pane_aggregate.kernels.window import WindowInputs
from penstock.operators.pane_aggregate.program import KeySpec, PaneKernels, StateSpec
from penstock.operators.pane_aggregate.stage import WindowStage
from penstock.operators.rows.build import filter_alone
from penstock.physical import nodes as ph
from penstock.physical.specialise import PaneProfile, specialise
from penstock.runtime.adapt.controller import Controller
from penstock.runtime.buffers import column_type
from penstock.runtime.kernels import Call, KernelCall, OutputCall, ResultColumn, RowsCall, Variants
from penstock.runtime.session import Context
from penstock.types.arrow import width_of
from penstock.types.windows import WINDOW_BOUNDS


def pane_aggregate(
    op: ph.PaneAggregate, node: ph.Node, given: ph.Node, kernel_factory: KernelFactory
) -> Callable[[Context], WindowStage]:
    """Return the constructor of a `PaneAggregate` stage. Late rows skip the kernel, and so need its filter alone."""
    window = CompiledWindow(node, window_of(op, given), kernel_factory)
    alone = None if op.where is None else filter_alone(op.where, given, kernel_factory)

    def stage(context: Context) -> WindowStage:
        adaptive = context.engine.adaptive
        controller = Controller(node.id, context.policy, context.metrics.adaptations, adaptive)
        known = context.known.get(node.id)
        return WindowStage(window, context.engine, context.metrics, alone, controller, known)

    return stage


def window_of(op: ph.PaneAggregate, given: ph.Node) -> WindowInputs:
    """Return a node's kernels, which are built on demand."""
    return WindowInputs(op, given.schema, given.clock)


def start_kernels(op: ph.PaneAggregate, given: ph.Node) -> list[Kernel]:
    """Return the kernels a run starts with, before data has changed any assumption."""
    window = window_of(op, given)
    fold = window.fold(op)
    return [fold.kernel, window.emit(frozenset(), False, op.merging, op.key_table).kernel]


class CompiledWindow:
    """A windowed aggregation with kernels built on demand (the runtime's `WindowProgram`)."""

    def __init__(self, node: ph.Node, window: WindowInputs, kernel_factory: KernelFactory) -> None:
        self._window, self._kernel_factory = window, kernel_factory
        self.node, self.profile_layout = node, window.profile_layout
        self.conjunct_costs = window.conjunct_costs
        self.atomic_states, self.exact = window.atomic_states, window.exact
        self.time = window.time
        self.grid = Grid(*window.grid)
        self.carried = window.carried
        self.strict = window.op.strict
        self.interned = window.interned
        self.texts = kernel_factory.texts
        self.schema = node.schema
        self.keys = tuple(self._key(key.expr) for key in window.keys)
        self.may_be_dense = window.op.key_table == "dense"
        self.result = tuple(self._result(field) for field in window.op.fields)
        self.prepares = bool(window.host.fields or window.host.members)
        self.prepare = preparation(window.host, window.row_time, window.uses)
        self.columns = self._columns()
        self.row_bytes = self._row_bytes()
        self._null_keys: dict[frozenset[str], bool] = {}
        self._layouts: dict[tuple[frozenset[str], bool], tuple[StateSpec, ...]] = {}
        self._sources: dict[tuple[frozenset[str], frozenset[str]], list[int]] = {}
        self.variants: Variants[PaneProfile, PaneKernels] = Variants(
            lambda seen: CompiledVariant(specialise(node, seen), window, kernel_factory)
        )

    def _key(self, expr: ex.Expr) -> KeySpec:
        dtype = type_of(expr, self._window.schema)
        return KeySpec(dtype, expr.name if isinstance(expr, ex.Column) else None, is_text(dtype))

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
        for reduction in window.reductions:
            exprs += [*reduction.args, *_given(reduction.where)]
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

    def same_without_nulls(self, old: frozenset[str], new: frozenset[str]) -> list[tuple[int, int]]:
        return self._window.same_without_nulls(old, new)

    def key_may_be_null(self, nullable: frozenset[str]) -> bool:
        return once(self._null_keys, nullable, lambda: self._window.keys_nullable(nullable))

    def index(self, width: int) -> Call:
        return self._kernel_factory.index(width)


class CompiledVariant:
    """The kernels of one variant of a node, built on demand (the runtime's `PaneKernels`)."""

    def __init__(self, node: ph.Node, window: WindowInputs, kernel_factory: KernelFactory) -> None:
        assert isinstance(node.op, ph.PaneAggregate)
        self._op, self._window, self._kernel_factory = node.op, window, kernel_factory
        self._emits: dict[bool, OutputCall] = {}

    @cached_property
    def fold(self) -> RowsCall:
        op = self._op
        return self._rows_call("fold", self._window.fold(op))

    @cached_property
    def instrumented_fold(self) -> RowsCall:
        op = self._op
        return self._rows_call("instrumented fold", self._window.fold(op, instrumented=True))

    @cached_property
    def merge_fragments_into(self) -> RowsCall:
        return self._rows_call("absorb", self._window.merge_fragments_into(self._op.nullable, self._op.wide))

    @cached_property
    def merge_pane(self) -> RowsCall:
        return self._rows_call("blend", self._window.merge_pane(self._op.nullable, self._op.wide))

    def emit(self, several_panes: bool) -> OutputCall:
        return once(self._emits, several_panes, lambda: self._emit(several_panes))

    def _emit(self, several_panes: bool) -> OutputCall:
        op = self._op
        merging = op.merging if several_panes else ONE_PANE
        kernel = self._window.emit(op.nullable, op.wide, merging, op.key_table)
        call = self._call("emit", kernel.kernel, several_panes)
        return OutputCall(call, kernel.outputs, kernel.bindings, kernel.scratch, _written(kernel.kernel))

    def _rows_call(self, name: str, kernel: RowKernel) -> RowsCall:
        return RowsCall(self._call(name, kernel.kernel), kernel.bindings)

    def _call(self, name: str, kernel: Kernel, several_panes: bool = False) -> KernelCall:
        window = self._window
        key = self._op, window.source, window.row_time, name, several_panes
        return self._kernel_factory.call(key, lambda: kernel)


def _written(kernel: Kernel) -> tuple[tuple[str, np.dtype], ...]:
    """Return the columns that a kernel writes."""
    buffers = (param for param in kernel.params if isinstance(param, Buffer) and param.name.startswith("out"))
    return tuple((buffer.name, column_type(buffer.type)) for buffer in buffers)


def _given(expr: ex.Expr | None) -> tuple[ex.Expr, ...]:
    return () if expr is None else (expr,)
