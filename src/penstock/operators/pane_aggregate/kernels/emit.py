"""The emit kernel: panes to windows, partials to results, one row of a result at a time.

A window is a run of panes, given as a range of slots in order of time. Two steps:

    merging   merge the panes of a window, for all keys at once
    results   for each key in the window: states to values, `having`, keys and bounds

In a sparse table, (pane, key) pairs take the place of panes, ordered by key, then time: a frame of them is
one window of one key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.algorithms.expressions.cells import Cell, is_true, negate
from penstock.algorithms.expressions.lowering import Lowering, arenas
from penstock.algorithms.hash_table.kernels import KeyReader
from penstock.algorithms.monoids import Values
from penstock.algorithms.partials import Finish
from penstock.algorithms.selection import Selection, chunk_length
from penstock.expr import nodes as ex
from penstock.loop.abi import DONE, ERRORS, LANES, NEED_OUTPUT, OUTPUT, STATUS, OutputColumn
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import (
    BOOL,
    F64,
    I32,
    I64,
    U8,
    U64,
    Bitcast,
    Buffer,
    Const,
    Value,
    const,
    maximum,
    minimum,
    select,
)
from penstock.loop.numbers import is_text, machine_type
from penstock.operators.pane_aggregate.kernels.emit_panes import EmitKernel, EmitSpec, Mergers, WindowPanes


@dataclass
class ResultWriter:
    """Writes rows of the result; `rows` counts those of this call."""

    k: KernelBuilder
    spec: EmitSpec
    outputs: list[OutputColumn] = field(default_factory=list)
    columns: dict[str, tuple[Buffer, Buffer | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        k, spec = self.k, self.spec
        self.numbers = k.buffer("numbers", I64)  # window numbers
        self.keys = KeyReader.declare(k, spec.key_table, len(spec.keys))
        self.out_words = tuple(k.buffer("out_word", I64) for _ in spec.keys)
        self.out_nulls = k.buffer("out_nulls", I64) if spec.keys_nullable else None
        self.out_bounds = tuple(k.buffer("out_bound", I64) for _ in spec.bounds)
        self.errors = k.var("errors", False, BOOL)
        self.rows = k.var("rows", 0)
        self.grid = tuple(k.literal(number, I64) for number in (spec.every, spec.offset, spec.size))

    def add(self, w: Value, key: Value, states: Sequence[Values]) -> None:
        """Append the row of a window and key, if it satisfies `having`."""
        self.words = self.keys.read(self.k, key)
        lowering = self._lowering(w, states)
        if self.spec.having is None:
            self._next(lowering, w)
            return
        with self.k.if_(is_true(lowering.lower(self.spec.having))):
            self._next(lowering, w)

    def put(self, w: Value, key: Value, at: Value, states: Sequence[Values]) -> None:
        """Write the row of a window and key at a given index, without `having`."""
        self.words = self.keys.read(self.k, key)
        self._write(self._lowering(w, states), w, at)

    def _next(self, lowering: Lowering, w: Value) -> None:
        self._write(lowering, w, self.rows)
        self.k.set(self.rows, self.rows + 1)

    def _fail(self, condition: Value) -> None:
        self.k.set(self.errors, self.errors | condition)

    def _lowering(self, w: Value, states: Sequence[Values]) -> Lowering:
        spec = self.spec
        finish = Finish(self.k, spec.partials, states, spec.may_be_null, self._fail)
        used = _reduced_in(spec)
        cells = [
            finish.cell(reduction, dtype) if place in used else Cell(self.rows)
            for place, (reduction, dtype) in enumerate(
                zip(spec.reductions, spec.reduction_types, strict=True)
            )
        ]
        schema = pa.schema([*spec.keys, *((name, spec.time_type) for name in spec.bounds)])
        return Lowering(
            self.k,
            schema,
            lambda name: self._column(name, w),
            self._fail,
            _no_text,
            None,
            cells,
            spec.reduction_types,
        )

    def _column(self, name: str, w: Value) -> Cell:
        """A key, decoded from its word, or a bound of the window."""
        names = [key for key, _ in self.spec.keys]
        if name in names:
            place = names.index(name)
            word, null = self.words[place]
            valid = negate(null) if self.spec.keys_nullable else None
            return Cell(_from_word(word, self.spec.keys[place][1]), valid)
        machine = machine_type(self.spec.time_type)
        assert machine is not None
        return Cell(self._bounds(w)[self.spec.bounds.index(name)].to(machine))

    def _bounds(self, w: Value) -> tuple[Value, Value]:
        """The start and end of a window: the runtime guarantees that both fit 64 bits."""
        every, offset, size = self.grid
        start = self.k.var("start", self.numbers[w] * every + offset)
        return start, start + size

    def _write(self, lowering: Lowering, w: Value, at: Value) -> None:
        k = self.k
        if self.out_bounds:
            for buffer, bound in zip(self.out_bounds, self._bounds(w), strict=True):
                k.store(buffer, at, bound)
        for buffer, (word, _) in zip(self.out_words, self.words, strict=True):
            k.store(buffer, at, word)
        if self.out_nulls is not None:
            k.store(self.out_nulls, at, _null_mask(self.words))
        for column in self.spec.fields:
            self._write_field(column, lowering.lower(column.expr), lowering.type_of(column.expr), at)

    def _write_field(self, field: ex.Field, cell: Cell, dtype: pa.DataType, at: Value) -> None:
        values, valid = self._column_of(field, cell, dtype)
        self.k.store(values, at, cell.value.to(values.type))
        if valid is not None and cell.valid is not None:
            self.k.store(valid, at, cell.valid.to(U8))

    def _column_of(self, field: ex.Field, cell: Cell, dtype: pa.DataType) -> tuple[Buffer, Buffer | None]:
        """Declare the output buffers of a field, once."""
        if field.name not in self.columns:
            values = self.k.buffer("out", machine_type(dtype) or I32)
            valid = None if cell.valid is None else self.k.buffer("out_valid", U8)
            self.columns[field.name] = values, valid
            text = self._text_of(field.expr) if is_text(dtype) else None
            made = OutputColumn(field.name, values.type, values.name, valid.name if valid else None, text)
            self.outputs.append(made)
        return self.columns[field.name]

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


def _reduced_in(spec: EmitSpec) -> frozenset[int]:
    exprs = [column.expr for column in spec.fields] + ([] if spec.having is None else [spec.having])
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


EMIT_CHUNK = 2048  # keys


def build_emit(spec: EmitSpec) -> EmitKernel:
    """Build the emit kernel for a specification."""
    emit = _Emit(spec)
    emit.write()
    k = emit.k
    return EmitKernel(k.build(), tuple(emit.results.outputs), tuple(emit.panes.scratch), arenas(k))


@dataclass
class _Emit:
    """Emits windows lo … hi - 1, as many as fit the output."""

    spec: EmitSpec
    k: KernelBuilder = field(default_factory=lambda: KernelBuilder("emit"))

    def __post_init__(self) -> None:
        k = self.k
        self.head = k.buffer("head", I64)
        self.panes = WindowPanes(k, self.spec)
        self.merged = Mergers(self.panes)
        self.lo, self.hi, self.capacity = k.scalar("lo"), k.scalar("hi"), k.scalar("capacity")
        self.results = ResultWriter(k, self.spec)

    def write(self) -> None:
        """Emit the kernel with its return after the loop, not inside: LLVM then vectorises the loops over keys."""
        k = self.k
        w = k.var("w", self.lo)
        with k.while_((w < self.hi) & (self.results.rows + self.panes.columns <= self.capacity)):
            self.merged.advance(w)
            if self.spec.sparse:
                pair = k.var("pair", self.panes.order[self.panes.first[w]])
                self.results.add(w, pair, self._states(const(0, I64)))
            else:
                self._keys_of(w)
            k.set(w, w + 1)
        with k.if_(w.eq(self.hi)):
            self.merged.leave()
        self._leave(select(w < self.hi, const(NEED_OUTPUT, I64), const(DONE, I64)), w)

    def _keys_of(self, w: Value) -> None:
        """Write the keys of a window: contiguous keys without a selection, in a vectorisable loop."""
        k, columns = self.k, self.panes.columns
        if self.spec.having is not None or isinstance(columns, Const):
            self._keys_held(w)
            return
        first, last, held = k.var("first", columns), k.var("last", -1), k.var("held", 0)
        with self.panes.each_key() as key:
            present = k.var("present", self.merged.read(0, key)[0].ne(0))
            k.set(first, minimum(first, select(present, key, columns)))
            k.set(last, maximum(last, select(present, key, const(-1, I64))))
            k.set(held, held + present.to(I64))
        with k.if_((last - first).eq(held - 1)):
            base = k.var("base", self.results.rows - first)
            with k.for_(first, last + 1, "key") as key:
                self.results.put(w, key, k.var("at", base + key), self._states(key))
            k.set(self.results.rows, self.results.rows + held)
        with k.else_():
            self._keys_held(w)

    def _keys_held(self, w: Value) -> None:
        """Write the keys of a window through a selection: a branch per key would be mispredicted half the time."""
        k, columns = self.k, self.panes.columns
        chosen = k.local("chosen", I32, EMIT_CHUNK + LANES)
        positions = k.shared_buffer("positions", "", U8)
        begin = k.var("begin", 0)
        with k.while_(begin < columns):
            n = k.var("n", chunk_length(columns - begin, EMIT_CHUNK))
            held = Selection(k, begin, lambda r: self.merged.read(0, begin + r)[0].ne(0), chosen, positions)
            count = held.rows(n)
            with k.for_(0, count, "j") as j:
                key = k.var("key", chosen[j].to(I64))
                self.results.add(w, key, self._states(key))
            k.set(begin, begin + n)

    def _states(self, key: Value) -> list[tuple[Value, ...]]:
        return [self.merged.read(m, key) for m in range(len(self.spec.monoids))]

    def _leave(self, status: Value, reached: Value) -> None:
        k = self.k
        k.store(self.head, STATUS, status)
        k.store(self.head, OUTPUT, self.results.rows)
        k.store(self.head, ERRORS, self.head[ERRORS] | self.results.errors.to(I64))
        k.ret(reached)
