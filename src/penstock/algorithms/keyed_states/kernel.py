"""What kernels over states per key have in common: key lookup, state buffers, results, and orderly stops.

Rows are processed one by one. Before a row is processed, the kernel makes sure that there is room for whatever the row
may add, so a stop leaves no row half applied (see loop/abi.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.algorithms.expressions.cells import Cell
from penstock.algorithms.expressions.lowering import Columns, may_be_null
from penstock.algorithms.hash_table.kernels import HashGroups
from penstock.algorithms.monoids import Monoid, Values
from penstock.algorithms.partials import PRESENT, Finish, Partial, partials_of
from penstock.algorithms.partials.algebra import contribution
from penstock.algorithms.sliding.kernel import exact_monoid
from penstock.algorithms.sliding.slide import Aggregation, Memory, Row, States
from penstock.expr import nodes as ex
from penstock.expr.typing import type_of
from penstock.ir.nodes import Reduction
from penstock.loop.abi import ERRORS, KEYS, NEED_KEYS, NEED_OUTPUT, OUTPUT, STATUS, Binding, OutputColumn
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I64, U8, Buffer, Kernel, Operand, Value, const
from penstock.loop.numbers import is_text, machine_type
from penstock.types.time import Time

RANKED = frozenset({"median", "quantile", "count_distinct"})
"""Reductions of all values that a search tree answers (`algorithms/order_statistics/trees.py`)."""


@dataclass(frozen=True)
class TreeSpec:
    """The values of a search tree: of a column, of the rows that fulfil a condition, as floats or as words."""

    value: ex.Expr
    where: ex.Expr | None
    floats: bool


@dataclass(frozen=True)
class KeyedSpec:
    """What a kernel reads and reduces. Keys, arguments and conditions are columns; `nullable` ones hold nulls.

    The layout of the states does not depend on `nullable`: it always has room for the presence of a value.
    """

    schema: pa.Schema
    time: Time
    keys: tuple[str, ...]
    reductions: tuple[Reduction, ...]
    types: tuple[pa.DataType, ...]
    nullable: frozenset[str] = frozenset()

    @property
    def partials(self) -> tuple[Partial, ...]:
        """The partials of a state. A state exists only if it has a row, so the presence of rows is not stored."""
        plain = tuple(reduction for reduction in self.reductions if reduction.function not in RANKED)
        found = partials_of(plain, self.may_be_null)
        return tuple(partial for partial in found if partial != PRESENT)

    @property
    def trees(self) -> tuple[TreeSpec, ...]:
        """The search trees that reductions of all values need."""
        ranked = (reduction for reduction in self.reductions if reduction.function in RANKED)
        return tuple(dict.fromkeys(self.tree_of(reduction) for reduction in ranked))

    def tree_of(self, reduction: Reduction) -> TreeSpec:
        """The tree that a reduction reads: of floats, or of words where only equality counts."""
        floats = reduction.function != "count_distinct" or pa.types.is_floating(
            type_of(reduction.args[0], self.schema)
        )
        return TreeSpec(reduction.args[0], reduction.where, floats)

    @property
    def monoids(self) -> tuple[Monoid, ...]:
        return tuple(exact_monoid(partial, self.schema) for partial in self.partials)

    def may_be_null(self, expr: ex.Expr) -> bool:
        return may_be_null(expr, self.schema, frozenset(self.schema.names))

    @property
    def interned(self) -> frozenset[str]:
        return frozenset(name for name in self.keys if is_text(self.schema.field(name).type))


@dataclass(frozen=True)
class KeyedKernel:
    """A kernel over rows and states per key, with the bindings of its columns and the columns it writes."""

    kernel: Kernel
    bindings: tuple[Binding, ...]
    outputs: tuple[OutputColumn, ...]


@dataclass
class KeyedStates(Aggregation):
    """A kernel under construction: rows `lo` … `hi` - 1, the key table, and the result columns."""

    name: str
    spec: KeyedSpec
    monoids: Sequence[Monoid] = field(init=False)

    def __post_init__(self) -> None:
        spec = self.spec
        self.k = k = KernelBuilder(self.name)
        self.monoids = spec.monoids
        self.head = k.buffer("head", I64)
        self.lo, self.hi, self.first_row = k.scalar("lo"), k.scalar("hi"), k.scalar("first_row")
        self.columns = Columns(k, spec.schema, spec.nullable, spec.interned, spec.time, self.first_row)
        self.key_capacity = k.scalar("key_capacity") if spec.keys else None
        self.table = HashGroups.declare(k, self.head, len(spec.keys)) if spec.keys else None
        self.capacity = k.scalar("capacity")
        self.out_key = k.buffer("out_key", I64)
        self.out_times = k.buffer("out_first", I64), k.buffer("out_last", I64)
        self.results = self._result_buffers()
        self.made = k.var("made", self.head[OUTPUT])
        self.errors = k.var("errors", False, BOOL)
        self.row = self._row

    def built(self) -> KeyedKernel:
        """Finish the kernel: all rows are processed."""
        self.leave(0, self.hi)
        outputs = tuple(
            OutputColumn(str(place), values.type, values.name, valid.name)
            for place, (values, valid) in enumerate(self.results)
        )
        return KeyedKernel(self.k.build(), tuple(self.columns.bindings), outputs)

    def leave(self, status: int, row: Operand) -> None:
        """Return `row`, the first one that is not processed."""
        k = self.k
        k.store(self.head, STATUS, status)
        k.store(self.head, OUTPUT, self.made)
        k.store(self.head, ERRORS, self.head[ERRORS] | self.errors.to(I64))
        k.ret(row)

    # -- keys ----------------------------------------------------------------------------------------

    def reserve_key(self, row: Value) -> None:
        """Stop unless a key can be added."""
        if self.key_capacity is not None:
            with self.k.if_(self.head[KEYS] >= self.key_capacity):
                self.leave(NEED_KEYS, row)

    def key_of(self, row: Value) -> Value:
        """The number of a row's key, which is added if it is new."""
        if self.table is None:
            return const(0, I64)
        cells = [self._key_cell(name, row) for name in self.spec.keys]
        return self.table.locate(self.k, cells)[0]

    def _key_cell(self, name: str, row: Value) -> Cell:
        cell = self.columns.cell(name, row)
        valid = const(True, BOOL) if cell.valid is None else cell.valid
        return Cell(self.k.var("key_value", cell.value), valid)

    # -- states and results --------------------------------------------------------------------------

    def _row(self, row: Value) -> Row:
        lowering = self.columns.lowering(row, self._fail)
        return [contribution(lowering, partial) for partial in self.spec.partials]

    def add(self, memory: Memory, place: Operand, row: Value) -> None:
        """Add a row to the states at a place in memory."""
        states = self.load(memory, place)
        self.step(states, row)
        self.store(memory, place, states)

    def clear(self, memory: Memory, place: Operand) -> None:
        """Store identities at a place in memory."""
        for monoid, buffers in zip(self.monoids, memory, strict=True):
            for state, buffer in zip(monoid.states, buffers, strict=True):
                self.k.store(buffer, place, const(state.identity, state.type))

    def _fail(self, condition: Value) -> None:
        self.k.set(self.errors, self.errors | condition)

    def _result_buffers(self) -> list[tuple[Buffer, Buffer]]:
        k = self.k
        found = []
        for dtype in self.spec.types:
            machine = machine_type(dtype)
            assert machine is not None, f"{dtype} is not a machine type"
            found.append((k.buffer("out", machine), k.buffer("out_valid", U8)))
        return found

    def reserve_output(self, row: Value) -> None:
        """Stop unless a result can be written."""
        with self.k.if_(self.made >= self.capacity):
            self.leave(NEED_OUTPUT, row)

    def emit(self, key: Value, first: Value, last: Value, states: States | Sequence[Values]) -> None:
        """Write a result: the key's number, the times of the first and the last row, and the aggregates."""
        k = self.k
        for buffer, value in zip((self.out_key, *self.out_times), (key, first, last), strict=True):
            k.store(buffer, self.made, value)
        self.write(self.made, states)
        k.set(self.made, self.made + 1)

    def write(self, at: Value, states: States | Sequence[Values]) -> None:
        """Write the aggregates of states at an index."""
        k, spec = self.k, self.spec
        finish = Finish(k, spec.partials, states, spec.may_be_null, self._fail)
        for reduction, dtype, (values, valid) in zip(spec.reductions, spec.types, self.results, strict=True):
            cell = finish.cell(reduction, dtype)
            k.store(values, at, cell.value.to(values.type))
            k.store(valid, at, const(1, U8) if cell.valid is None else cell.valid.to(U8))
