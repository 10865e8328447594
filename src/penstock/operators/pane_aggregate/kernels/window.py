"""A windowed aggregation as a set of kernels, built on demand for the variant that the data requires."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.algorithms.expressions.host_columns import HostColumns, Use, uses_of
from penstock.algorithms.expressions.lowering import RowKernel, may_be_null
from penstock.algorithms.monoids import Monoid
from penstock.algorithms.partials import Partial, collapsing, monoid_of, origin, partials_of
from penstock.algorithms.sliding.frame_algorithms import has_floats
from penstock.analysis.predicates import conjuncts
from penstock.expr import nodes as ex
from penstock.expr.typing import type_of
from penstock.ir import nodes as ir
from penstock.loop.numbers import is_text
from penstock.operators.pane_aggregate.kernels.emit import build_emit
from penstock.operators.pane_aggregate.kernels.emit_panes import EmitKernel, EmitSpec, algorithms
from penstock.operators.pane_aggregate.kernels.fold import ATOMIC_OPERATIONS, build_fold
from penstock.operators.pane_aggregate.kernels.fold_panes import FoldSpec, PaneGrid
from penstock.operators.pane_aggregate.kernels.fold_variants import build_merge_fragments, build_merge_pane
from penstock.physical.nodes import PaneAggregate, Reduction
from penstock.physical.order_conjuncts import ConjunctCost
from penstock.physical.profile import ProfileLayout
from penstock.physical.split_filters import conjunct_costs
from penstock.types.time import Time
from penstock.types.windows import WINDOW_BOUNDS, CarriedWindow, TimeWindow


@dataclass(frozen=True)
class WindowInputs:
    """A `PaneAggregate` over rows of a schema and a time, with all inputs of its kernels, computed once.

    Under a carried domain the window is a pair of keys, and panes are single ticks.
    """

    op: PaneAggregate
    source: pa.Schema
    row_time: Time
    host: HostColumns = field(init=False, compare=False)
    keys: tuple[ex.Field, ...] = field(init=False, compare=False)
    where: ex.Expr | None = field(init=False, compare=False)
    reductions: tuple[ir.Reduction, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        host = HostColumns(self.source)
        set_field = object.__setattr__
        set_field(self, "host", host)
        keys = (*self.op.keys, *self._carried_bounds())
        set_field(self, "keys", tuple(ex.Field(key.name, host.window_key(key.expr)) for key in keys))
        set_field(self, "where", None if self.op.where is None else host.value(self.op.where))
        set_field(
            self, "reductions", tuple(self._reduction(reduction, host) for reduction in self.op.reductions)
        )

    @property
    def uses(self) -> list[Use]:
        """The uses of values by rows, in terms of the source's columns."""
        op = self.op
        found = uses_of([op.where], *(key.expr for key in op.keys))
        for reduction in op.reductions:
            found += uses_of([op.where, reduction.where], *reduction.args)
        return found

    @property
    def carried(self) -> bool:
        return isinstance(self.op.window, CarriedWindow)

    def _carried_bounds(self) -> tuple[ex.Field, ...]:
        return tuple(ex.Field(name, ex.Column(name)) for name in WINDOW_BOUNDS) if self.carried else ()

    @staticmethod
    def _reduction(reduction: Reduction, host: HostColumns) -> ir.Reduction:
        args = tuple(host.argument(arg) for arg in reduction.args)
        where = None if reduction.where is None else host.value(reduction.where)
        return ir.Reduction(reduction.function, args, where, reduction.options)

    @property
    def time(self) -> Time:
        """The time of rows: under a carried domain the end of their window."""
        time = self.row_time
        return Time(WINDOW_BOUNDS[1], time.type, time.unit, shift=-1) if self.carried else time

    @property
    def schema(self) -> pa.Schema:
        return self.host.schema

    @property
    def grid(self) -> tuple[int, int, int]:
        """Size, slide and offset of the windows."""
        match self.op.window:
            case TimeWindow(size=size, every=every, offset=offset):
                return size, every, offset
            case _:
                return 1, 1, 0

    @property
    def panes(self) -> PaneGrid:
        size, every, offset = self.grid
        return PaneGrid(every, offset, size % every)

    @property
    def reduction_types(self) -> tuple[pa.DataType, ...]:
        return tuple(
            type_of(
                ex.Aggregate(reduction.function, reduction.args, reduction.where, reduction.options),
                self.schema,
            )
            for reduction in self.reductions
        )

    @property
    def interned(self) -> frozenset[str]:
        """Text columns that kernels read as codes: keys, arguments of min and max, and dictionary-encoded columns."""
        named = [key.expr for key in self.keys]
        named += [
            arg
            for reduction in self.reductions
            if reduction.function in ("min", "max")
            for arg in reduction.args
        ]
        keys = {expr.name for expr in named if isinstance(expr, ex.Column)}
        return frozenset(
            column.name
            for column in self.schema
            if is_text(column.type) and (column.name in keys or pa.types.is_dictionary(column.type))
        )

    def may_be_null(self, nullable: frozenset[str]) -> Callable[[ex.Expr], bool]:
        return lambda expr: may_be_null(expr, self.schema, nullable)

    def keys_nullable(self, nullable: frozenset[str]) -> bool:
        return any(may_be_null(key.expr, self.schema, nullable) for key in self.keys)

    def partials(self, nullable: frozenset[str]) -> tuple[Partial, ...]:
        return partials_of(self.reductions, self.may_be_null(nullable))

    def monoids(self, nullable: frozenset[str], wide: bool) -> tuple[Monoid, ...]:
        return tuple(
            monoid_of(partial, [type_of(arg, self.schema) for arg in partial.args], wide)
            for partial in self.partials(nullable)
        )

    def sources(self, old: frozenset[str], new: frozenset[str]) -> list[int]:
        """For each state under the new assumption, the index of the state it continues.

        Both assumptions hold for the rows so far: a column that only one of them lists as nullable has had no
        nulls.
        """
        before, nullable = self.partials(old), self.may_be_null(old & new)
        starts = _starts(self.monoids(old, wide=True))
        found: list[int] = []
        for partial, monoid in zip(self.partials(new), self.monoids(new, wide=True), strict=True):
            start = starts[before.index(origin(partial, before, nullable))]
            found += range(start, start + len(monoid.states))
        return found

    def same_without_nulls(self, old: frozenset[str], new: frozenset[str]) -> list[tuple[int, int]]:
        """Pairs of states under `old` that agree if the columns that only `old` lists have held no null."""
        starts = _starts(self.monoids(old, wide=True))
        pairs = collapsing(self.partials(old), self.may_be_null(new))
        return [(starts[one], starts[other]) for one, other in pairs]

    def fold(self, op: PaneAggregate, instrumented: bool = False) -> RowKernel:
        """Build the fold kernel of a variant."""
        nullable = op.nullable
        return build_fold(
            FoldSpec(
                self.schema,
                self.time,
                self.panes,
                self.where,
                tuple(key.expr for key in self.keys),
                self.partials(nullable),
                self.monoids(nullable, op.wide),
                op.key_table,
                nullable,
                self.interned,
                op.order,
                op.sharing,
                op.runs,
                instrumented,
            )
        )

    def emit(self, nullable: frozenset[str], wide: bool, sliding: str, key_table: str) -> EmitKernel:
        """Build the emit kernel; `sliding` names the preferred algorithm to merge the panes of a window."""
        types = [type_of(key.expr, self.schema) for key in self.keys]
        return build_emit(
            EmitSpec(
                tuple((key.name, dtype) for key, dtype in zip(self.keys, types, strict=True)),
                () if self.carried else WINDOW_BOUNDS,
                *self.grid,
                self.row_time.type,
                self.partials(nullable),
                self.monoids(nullable, wide),
                self.monoids(nullable, wide=True),
                self.reductions,
                self.reduction_types,
                self.computed,
                self.op.having,
                self.may_be_null(nullable),
                algorithms(self.monoids(nullable, wide=True), sliding),
                key_table,
                self.keys_nullable(nullable),
            )
        )

    @property
    def profile_layout(self) -> ProfileLayout:
        """The words in which the instrumented fold counts."""
        return ProfileLayout(len(conjuncts(self.where)), len(self.keys))

    @property
    def exact(self) -> bool:
        """Whether no state is a float: a result does not depend on how rows are grouped."""
        return not has_floats(self.monoids(frozenset(), wide=False))

    @property
    def atomic_states(self) -> int:
        """The number of states, if each is an integer that one atomic operation updates; else 0."""
        monoids = self.monoids(frozenset(self.schema.names), wide=False)
        possible = all(
            monoid.name in ATOMIC_OPERATIONS
            and not monoid.text
            and monoid.states[0].type.kind in ("int", "uint")
            for monoid in monoids
        )
        return len(monoids) if possible and self.keys and not self.carried else 0

    @property
    def conjunct_costs(self) -> tuple[ConjunctCost, ...]:
        """What is known of the filter's conjuncts without rows."""
        return conjunct_costs(self.where, self.schema)

    @property
    def computed(self) -> tuple[ex.Field, ...]:
        """The result's fields other than keys and window bounds."""
        return tuple(column for column in self.op.fields if not isinstance(column.expr, ex.Column))

    def merge_fragments_into(self, nullable: frozenset[str], wide: bool) -> RowKernel:
        return build_merge_fragments(self.monoids(nullable, wide))

    def merge_pane(self, nullable: frozenset[str], wide: bool) -> RowKernel:
        return build_merge_pane(self.monoids(nullable, wide))


def _starts(monoids: Sequence[Monoid]) -> list[int]:
    starts = [0]
    for monoid in monoids:
        starts.append(starts[-1] + len(monoid.states))
    return starts
