"""The kernel of a recursive filter: one row after the other, each reading results of rows before it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.expr import nodes as ex
from penstock.kernels.cells import Cell
from penstock.loop.abi import ERRORS, Binding
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I64, U8, Const, Kernel, Value, const, maximum, select
from penstock.lower.columns import Columns
from penstock.lower.expressions import Lowering
from penstock.lower.machine import machine_type
from penstock.temporal.nodes import past
from penstock.types.time import Time


@dataclass(frozen=True)
class FeedbackSpec:
    """`schema` has the columns of the other operands, then the own past results."""

    schema: pa.Schema
    time: Time
    expr: ex.Expr
    backs: tuple[int, ...]  # so many samples ago; 0 is a shift
    initial: float
    nullable: frozenset[str]


@dataclass(frozen=True)
class FeedbackKernel:
    kernel: Kernel
    bindings: tuple[Binding, ...]


def build_feedback(spec: FeedbackSpec) -> FeedbackKernel:
    """Write the kernel: row after row, lane by lane, the result goes to its `place` among all results, old ones too.

    Those that are defined are listed lane by lane, from `first` of a row's lane on: there `listed` of them are
    known before its rows. So many samples ago is so many before the end of the list; a shift reads the result
    at the place `back.i`. What is not there is the initial value.
    """
    k = KernelBuilder("feedback")
    rows, head, first_row = k.scalar("rows"), k.buffer("head", I64), k.scalar("first_row")
    dtype = spec.schema.field(past(0)).type
    machine = machine_type(dtype)
    assert machine is not None
    out, valid = k.buffer("out", machine), k.buffer("out_valid", U8)
    place_of = k.buffer("place", I64)
    first, listed, defined = (k.buffer(name, I64) for name in ("first", "listed", "defined"))
    backs = {i: k.buffer("back", I64) for i, back in enumerate(spec.backs) if not back}
    columns = Columns(k, spec.schema, spec.nullable, frozenset(), spec.time, first_row)
    errors = k.var("errors", False, BOOL)
    initial: Const = const(spec.initial, machine)
    lane, count = k.var("lane", -1, I64), k.var("count", 0, I64)

    def own(place: int, row: Value) -> Cell:
        if spec.backs[place]:
            return defined_before(spec.backs[place])
        back = k.var("from", backs[place][row])
        there = k.var("there", back >= 0)
        safe = k.var("safe", maximum(back, 0))
        return Cell(select(there, out[safe], initial), select(there, valid[safe].ne(const(0, U8)), True))

    def defined_before(back: int) -> Cell:
        there = k.var("there", count >= back)
        safe = k.var("safe", select(there, defined[lane + maximum(count - back, 0)], const(0, I64)))
        return Cell(select(there, out[safe], initial))

    places = {past(i): i for i in range(len(spec.backs))}
    with k.for_(0, rows, "row", scalar=True) as row:
        another = k.var("another", first[row].ne(lane))
        k.set(count, select(another, listed[row], count))
        k.set(lane, first[row])

        def read(name: str, row: Value = row) -> Cell:
            return own(places[name], row) if name in places else columns.cell(name, row)

        def there(name: str, row: Value = row) -> Value | None:
            return own(places[name], row).valid if name in places else columns.valid(name, row)

        lowering = Lowering(
            k,
            spec.schema,
            read,
            lambda wrong: k.set(errors, errors | wrong),
            lambda name, text, row=row: columns.text_equals(name, text, row),  # type: ignore[misc]
            there,
        )
        cell = lowering.lower(spec.expr)
        place = k.var("here", place_of[row])
        k.store(out, place, cell.value.to(machine))
        there_now = k.var("flag", const(1, U8) if cell.valid is None else cell.valid.to(U8))
        k.store(valid, place, there_now)
        k.store(defined, lane + count, place)
        k.set(count, count + there_now.to(I64))
    k.store(head, ERRORS, head[ERRORS] | errors.to(I64))
    k.ret(0)
    return FeedbackKernel(k.build(), tuple(columns.bindings))
