"""The emit kernel: panes to windows, partials to results, `having` applied, keys and bounds beside them.

A window is a run of panes, given as a range of slots in time order. A window of one pane is read where
it lies; a longer one is merged pane by pane into a row of accumulators first, all keys side by side. A
sparse table has no panes to merge: each of its entries is the result of one window and key already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.expr import nodes as ex
from penstock.ir.nodes import Reduction
from penstock.kernels.cells import Cell, is_true, negate
from penstock.kernels.monoids import Monoid, Values
from penstock.kernels.tables.keys import KeyReader
from penstock.loop.abi import DONE, ERRORS, NEED_OUTPUT, OUTPUT, STATUS, Binding
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, F64, I32, I64, U8, U64, Bitcast, Buffer, Kernel, Type, Value, const
from penstock.lower.columns import arenas
from penstock.lower.expressions import Lowering
from penstock.lower.machine import is_text, machine_type
from penstock.lower.partials import Finish, MayBeNull, Partial


@dataclass(frozen=True)
class EmitSpec:
    """All that the kernel is specialised to. `fields` are those that must be computed."""

    keys: tuple[tuple[str, pa.DataType], ...]
    bounds: tuple[str, ...]
    time_type: pa.DataType
    partials: tuple[Partial, ...]
    monoids: tuple[Monoid, ...]
    wide_monoids: tuple[Monoid, ...]
    reductions: tuple[Reduction, ...]
    reduction_types: tuple[pa.DataType, ...]
    fields: tuple[ex.Field, ...]
    having: ex.Expr | None
    may_be_null: MayBeNull
    several_panes: bool
    key_table: str
    keys_nullable: bool


@dataclass(frozen=True, slots=True)
class Output:
    """Where a computed column arrives: its parameter, and that of its validity bytes (None: no nulls).

    `text` names the column whose interned codes the values are.
    """

    name: str
    type: Type
    values: str
    valid: str | None
    text: str | None = None


@dataclass(frozen=True)
class EmitKernel:
    """The kernel, its computed columns, and what fills the texts it compares."""

    kernel: Kernel
    outputs: tuple[Output, ...]
    bindings: tuple[Binding, ...]


def build_emit(spec: EmitSpec) -> EmitKernel:
    """Write the emit kernel for a specification."""
    emit = _Emit(spec)
    emit.write()
    return EmitKernel(emit.k.build(), tuple(emit.outputs), arenas(emit.k))


@dataclass
class _Emit:
    spec: EmitSpec
    k: KernelBuilder = field(default_factory=lambda: KernelBuilder("emit"))
    outputs: list[Output] = field(default_factory=list)

    def __post_init__(self) -> None:
        k = self.k
        self.head = k.buffer("head", I64)
        self.columns = k.scalar("columns")
        self.states = self._declare_states("state", self.spec.monoids)
        # Panes whose sums fit 64 bits can make a window whose sum does not: merge in 128.
        several = self.spec.several_panes
        self.merged = self._declare_states("merged", self.spec.wide_monoids) if several else self.states
        self.order = k.buffer("order", I64)
        self.first, self.last = k.buffer("first", I64), k.buffer("last", I64)
        self.starts, self.ends = k.buffer("starts", I64), k.buffer("ends", I64)
        self.lo, self.hi, self.capacity = k.scalar("lo"), k.scalar("hi"), k.scalar("capacity")
        self.keys = KeyReader.declare(k, self.spec.key_table, len(self.spec.keys))
        self.out_words = tuple(k.buffer("out_word", I64) for _ in self.spec.keys)
        self.out_nulls = k.buffer("out_nulls", I64) if self.spec.keys_nullable else None
        self.out_bounds = tuple(k.buffer("out_bound", I64) for _ in self.spec.bounds)
        self.errors = k.var("errors", False, BOOL)
        self.rows = k.var("rows", 0)

    def _declare_states(self, hint: str, monoids: Sequence[Monoid]) -> tuple[tuple[Buffer, ...], ...]:
        return tuple(tuple(self.k.buffer(hint, state.type) for state in monoid.states) for monoid in monoids)

    def write(self) -> None:
        if self.spec.key_table == "sparse":
            self._write_sparse()
        else:
            self._write_grid()
        self._leave(DONE, self.hi)

    def _write_sparse(self) -> None:
        """Entries in order of their windows: `order` lists them, `first` tells each one's window."""
        k = self.k
        with k.for_(self.lo, self.hi, "i") as i:
            entry = k.var("entry", self.order[i])
            self._result(k.var("w", self.first[i]), entry, entry)

    def _write_grid(self) -> None:
        k = self.k
        with k.for_(self.lo, self.hi, "w") as w:
            with k.if_(self.rows + self.columns > self.capacity):
                self._leave(NEED_OUTPUT, w)
            base = k.var("base", self.order[self.first[w]] * self.columns)
            if self.spec.several_panes:
                self._merge_panes(base, w)
                k.set(base, 0)
            present = self.merged[0][0]
            with k.for_(0, self.columns, "key") as key, k.if_(present[base + key].to(I64).ne(0)):
                self._result(w, key, base + key)

    def _leave(self, status: int, reached: Value) -> None:
        k = self.k
        k.store(self.head, STATUS, status)
        k.store(self.head, OUTPUT, self.rows)
        k.store(self.head, ERRORS, self.head[ERRORS] | self.errors.to(I64))
        k.ret(reached)

    def _merge_panes(self, base: Value, w: Value) -> None:
        k = self.k
        with k.for_(0, self.columns, "key") as key:
            for source, target in zip(_flat(self.states), _flat(self.merged), strict=True):
                k.store(target, key, source[base + key].to(target.type))
        with k.for_(self.first[w] + 1, self.last[w], "pane") as pane:
            row = k.var("pane_row", self.order[pane] * self.columns)
            with k.for_(0, self.columns, "key") as key:
                self._merge_one(row + key, key)

    def _merge_one(self, source: Value, target: Value) -> None:
        k = self.k
        for monoid, states, merged in zip(self.spec.wide_monoids, self.states, self.merged, strict=True):
            a = tuple(k.var("a", each[target]) for each in merged)
            b = tuple(k.var("b", each[source].to(own.type)) for each, own in zip(states, merged, strict=True))
            for buffer, value in zip(merged, monoid.merge(k, a, b), strict=True):
                k.store(buffer, target, value)

    # -- one result ----------------------------------------------------------------------------------

    def _result(self, w: Value, key: Value, place: Value) -> None:
        k, spec = self.k, self.spec
        states = [tuple(k.var("s", each[place]) for each in buffers) for buffers in self.merged]
        self.words = self.keys.read(k, key)
        lowering = self._lowering(w, key, states)
        if spec.having is None:
            self._write(lowering, w, key)
            return
        with k.if_(is_true(lowering.lower(spec.having))):
            self._write(lowering, w, key)

    def _fail(self, condition: Value) -> None:
        self.k.set(self.errors, self.errors | condition)

    def _lowering(self, w: Value, key: Value, states: Sequence[Values]) -> Lowering:
        spec = self.spec
        finish = Finish(self.k, spec.partials, states, spec.may_be_null, self._fail)
        used = _reduced_in(spec)
        cells = [
            finish.cell(reduction, dtype) if place in used else Cell(self.columns)
            for place, (reduction, dtype) in enumerate(
                zip(spec.reductions, spec.reduction_types, strict=True)
            )
        ]
        schema = pa.schema([*spec.keys, *((name, spec.time_type) for name in spec.bounds)])
        return Lowering(
            self.k,
            schema,
            lambda name: self._column(name, w, key),
            self._fail,
            _no_text,
            None,
            cells,
            spec.reduction_types,
        )

    def _column(self, name: str, w: Value, key: Value) -> Cell:
        """A key, read back from its word, or a bound of the window."""
        names = [each for each, _ in self.spec.keys]
        if name in names:
            place = names.index(name)
            word, null = self.words[place]
            valid = negate(null) if self.spec.keys_nullable else None
            return Cell(_from_word(word, self.spec.keys[place][1]), valid)
        machine = machine_type(self.spec.time_type)
        assert machine is not None
        bound = self.starts if name == self.spec.bounds[0] else self.ends
        return Cell(bound[w].to(machine))

    def _write(self, lowering: Lowering, w: Value, key: Value) -> None:
        k = self.k
        for buffer, bound in zip(self.out_bounds, (self.starts, self.ends), strict=False):
            k.store(buffer, self.rows, bound[w])
        for buffer, (word, _) in zip(self.out_words, self.words, strict=True):
            k.store(buffer, self.rows, word)
        if self.out_nulls is not None:
            k.store(self.out_nulls, self.rows, _null_mask(self.words))
        for each in self.spec.fields:
            self._write_field(each, lowering.lower(each.expr), lowering.type_of(each.expr))
        k.set(self.rows, self.rows + 1)

    def _write_field(self, field: ex.Field, cell: Cell, dtype: pa.DataType) -> None:
        k = self.k
        machine = machine_type(dtype) or I32
        values = k.buffer("out", machine)
        k.store(values, self.rows, cell.value.to(machine))
        valid = None if cell.valid is None else k.buffer("out_valid", U8)
        if valid is not None and cell.valid is not None:
            k.store(valid, self.rows, cell.valid.to(U8))
        text = self._text_of(field.expr) if is_text(dtype) else None
        self.outputs.append(Output(field.name, machine, values.name, valid.name if valid else None, text))

    def _text_of(self, expr: ex.Expr) -> str:
        assert isinstance(expr, ex.Reduced), "other texts are computed behind this kernel"
        (arg,) = self.spec.reductions[expr.index].args
        assert isinstance(arg, ex.Column)
        return arg.name


def _null_mask(words: Sequence[tuple[Value, Value]]) -> Value:
    mask: Value = const(0, I64)
    for place, (_, null) in enumerate(words):
        mask = mask | (null.to(I64) << place)
    return mask


def _flat(buffers: Sequence[tuple[Buffer, ...]]) -> list[Buffer]:
    return [each for several in buffers for each in several]


def _reduced_in(spec: EmitSpec) -> frozenset[int]:
    exprs = [each.expr for each in spec.fields] + ([] if spec.having is None else [spec.having])
    return frozenset(n.index for expr in exprs for n in ex.walk(expr) if isinstance(n, ex.Reduced))


def _from_word(word: Value, dtype: pa.DataType) -> Value:
    machine = machine_type(dtype)
    assert machine is not None
    if machine.is_float:
        return Bitcast(word, F64).to(machine)
    if machine == BOOL:
        return word.ne(0)
    return Bitcast(word, U64) if machine == U64 else word.to(machine)


def _no_text(name: str, text: str) -> Cell:
    raise AssertionError("text keys are not compared inside the emit kernel")
