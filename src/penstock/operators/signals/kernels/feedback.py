"""The kernel of a recursive filter: a sequential loop over rows that reads the results of previous rows."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.algorithms.expressions.cells import Cell
from penstock.algorithms.expressions.lowering import Columns, Lowering
from penstock.expr import nodes as ex
from penstock.ir.signals.nodes import past
from penstock.loop.abi import ERRORS, Binding
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I64, U8, Kernel, Value, Var, const, maximum, select
from penstock.loop.numbers import machine_type
from penstock.types.time import Time


@dataclass(frozen=True)
class FeedbackSpec:
    """The specialisation of the kernel. `schema` has the columns of the other operands, then the past results."""

    schema: pa.Schema
    time: Time
    expr: ex.Expr
    backs: tuple[int, ...]  # the number of samples ago; 0 is a shift
    initial: float
    nullable: frozenset[str]


@dataclass(frozen=True)
class FeedbackKernel:
    kernel: Kernel
    bindings: tuple[Binding, ...]


def build_feedback(spec: FeedbackSpec) -> FeedbackKernel:
    """Build the kernel: in order of rows, partition by partition, each result is stored at its `place` among all results.

    Defined results are listed per partition, from `first` of a row's partition on; `listed` of them precede
    its rows. The result n samples ago is n before the end of the list; a shift reads the result at the place
    `back.i`. Missing results are the initial value.
    """
    k = KernelBuilder("feedback")
    rows, head, first_row = k.scalar("rows"), k.buffer("head", I64), k.scalar("first_row")
    results = _Results(k, spec)
    columns = Columns(k, spec.schema, spec.nullable, frozenset(), spec.time, first_row)
    errors = k.var("errors", False, BOOL)
    results.begin()
    with k.for_(0, rows, "row", scalar=True) as row:
        results.enter(row)
        results.add(row, _lowering(k, spec, results, columns, errors, row).lower(spec.expr))
    k.store(head, ERRORS, head[ERRORS] | errors.to(I64))
    k.ret(0)
    return FeedbackKernel(k.build(), tuple(columns.bindings))


def _lowering(
    k: KernelBuilder, spec: FeedbackSpec, results: _Results, columns: Columns, errors: Var, row: Value
) -> Lowering:
    """Resolve names in a row: past results, or columns of the other operands."""
    places = {past(i): i for i in range(len(spec.backs))}

    def read(name: str) -> Cell:
        return results.past(places[name], row) if name in places else columns.cell(name, row)

    def there(name: str) -> Value | None:
        return results.past(places[name], row).valid if name in places else columns.valid(name, row)

    return Lowering(
        k,
        spec.schema,
        read,
        lambda wrong: k.set(errors, errors | wrong),
        lambda name, text: columns.text_equals(name, text, row),
        there,
    )


class _Results:
    """The results of the kernel: values by place, and, per partition, the places of the defined ones."""

    def __init__(self, k: KernelBuilder, spec: FeedbackSpec) -> None:
        machine = machine_type(spec.schema.field(past(0)).type)
        assert machine is not None
        self.k, self.spec, self.machine = k, spec, machine
        self.initial = k.literal(spec.initial, machine)
        self.out, self.valid = k.buffer("out", machine), k.buffer("out_valid", U8)
        self.place_of = k.buffer("place", I64)
        self.first, self.listed, self.defined = (
            k.buffer(name, I64) for name in ("first", "listed", "defined")
        )
        self.backs = {i: k.buffer("back", I64) for i, back in enumerate(spec.backs) if not back}

    def begin(self) -> None:
        """Declare the start and the length of the current partition's list."""
        self.partition, self.count = self.k.var("partition", -1, I64), self.k.var("count", 0, I64)

    def enter(self, row: Value) -> None:
        """Move to the next row, which may be the first of another partition."""
        another = self.k.var("another", self.first[row].ne(self.partition))
        self.k.set(self.count, select(another, self.listed[row], self.count))
        self.k.set(self.partition, self.first[row])

    def past(self, place: int, row: Value) -> Cell:
        """Read the `place`-th past result of the expression."""
        k, back = self.k, self.spec.backs[place]
        if back:
            return self._samples_ago(back)
        source = k.var("from", self.backs[place][row])
        there = k.var("there", source >= 0)
        safe = k.var("safe", maximum(source, 0))
        valid = select(there, self.valid[safe].ne(const(0, U8)), True)
        return Cell(select(there, self.out[safe], self.initial), valid)

    def _samples_ago(self, back: int) -> Cell:
        k, count = self.k, self.count
        there = k.var("there", count >= back)
        listed = self.defined[self.partition + maximum(count - back, 0)]
        safe = k.var("safe", select(there, listed, const(0, I64)))
        return Cell(select(there, self.out[safe], self.initial))

    def add(self, row: Value, cell: Cell) -> None:
        """Store the result of a row, and list it if it is defined."""
        k = self.k
        place = k.var("here", self.place_of[row])
        k.store(self.out, place, cell.value.to(self.machine))
        defined = k.var("flag", const(1, U8) if cell.valid is None else cell.valid.to(U8))
        k.store(self.valid, place, defined)
        k.store(self.defined, self.partition + self.count, place)
        k.set(self.count, self.count + defined.to(I64))
