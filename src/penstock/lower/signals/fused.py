"""One kernel for a temporal expression over stored times: walk, reductions, fields and joining of neighbours.

    for each lane:                                   (kernels/signals/changes.py)
        for each block of instants:
            where everything stands at each of them
            every reduction over its frames          (kernels/swag/carried.py)
            the fields, and what differs from the instant before

A block stays in the cache, so nothing passes through memory but points that are read and points that are new.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from penstock.expr import nodes as ex
from penstock.ir.nodes import Reduction
from penstock.kernels.cells import Cell, narrow
from penstock.kernels.monoids import Monoid, Values
from penstock.kernels.signals.changes import BLOCK, Changes, ChangesSpec
from penstock.kernels.swag.carried import Carried, PrefixSums, PrefixTable, Recompute, Subtract, TwoStacks
from penstock.kernels.swag.slide import Aggregation, Row, Scratch
from penstock.loop.abi import ERRORS, Binding
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import (
    BOOL,
    I64,
    U8,
    Bitcast,
    Buffer,
    Kernel,
    Type,
    Value,
    Var,
    const,
    maximum,
)
from penstock.loop.nodes import TYPES as MACHINE_TYPES
from penstock.lower.columns import Columns
from penstock.lower.emission.spec import Output
from penstock.lower.expressions import Lowering
from penstock.lower.folding.frame import contribution
from penstock.lower.machine import machine_type
from penstock.lower.nullability import may_be_null
from penstock.lower.partials import ROWS, Finish, Partial
from penstock.lower.slide import DEFINED_WITHOUT_ROWS, Shape, SlideSpec, slide_monoids, slide_partials
from penstock.temporal.nodes import at
from penstock.types.time import Time

PREFIX_SUMS, SUBTRACT, RECOMPUTE, TWO_STACKS = "prefix-sums", "subtract-on-evict", "recompute", "two-stacks"
ALGORITHMS: dict[str, type[Carried]] = {SUBTRACT: Subtract, RECOMPUTE: Recompute, TWO_STACKS: TwoStacks}
_NO_TIME = Time("", pa.int64(), None)


@dataclass(frozen=True)
class AccessSpec:
    """The value of a track before a cursor: `columns` are those that fields read; `always` that there is one."""

    cursor: int
    track: int
    columns: tuple[str, ...]
    always: bool


@dataclass(frozen=True)
class ReductionSpec:
    """A reduction over a span, and how it is computed: not at all where nobody reads it."""

    reduction: Reduction
    type: pa.DataType
    span: int
    algorithm: str | None


@dataclass(frozen=True)
class FusedSpec:
    """All that the kernel is specialised to. `schemas` and `nullable` are of tracks; `scope` is what fields read.

    `joining`: an instant whose value is that of the one before is left out, and so is whatever lies before the lane's
    `emitted`.
    """

    changes: ChangesSpec
    schemas: tuple[pa.Schema, ...]
    nullable: tuple[frozenset[str], ...]
    accesses: tuple[AccessSpec, ...]
    reductions: tuple[ReductionSpec, ...]
    fields: tuple[ex.Field, ...]
    scope: pa.Schema
    joining: bool


@dataclass(frozen=True)
class FusedKernel:
    """The kernel, what fills the columns of each track, the columns it writes, and the memory it asks for."""

    kernel: Kernel
    bindings: tuple[tuple[Binding, ...], ...]
    outputs: tuple[Output, ...]
    scratch: tuple[Scratch, ...]


@lru_cache(maxsize=128)
def build_fused(spec: FusedSpec) -> FusedKernel:
    """Write the kernel for a specification."""
    return _Fused(spec).build()


@dataclass(frozen=True)
class _Rows(Aggregation):
    """The rows of a track, by the monoids of some partials."""

    k: KernelBuilder
    monoids: Sequence[Monoid]
    row: Callable[[Value], Row]


@dataclass
class _Group:
    """The reductions over one span by one algorithm, and where their results are."""

    span: int
    slide: SlideSpec
    partials: tuple[Partial, ...]
    members: list[int]


class _Fused:
    def __init__(self, spec: FusedSpec) -> None:
        self.spec = spec
        self.k = k = KernelBuilder("changes")
        self.head, self.first_row = k.buffer("head", I64), k.scalar("first_row")
        self.emit = k.scalar("emit")
        self.walk = Changes(k, spec.changes)
        self.columns = [
            Columns(k, schema, nullable, frozenset(), _NO_TIME, self.first_row)
            for schema, nullable in zip(spec.schemas, spec.nullable, strict=True)
        ]
        self.out_times, self.out_bounds = k.buffer("out_times", I64), k.buffer("out_bounds", I64)
        self.emitted = k.buffer("emitted", I64) if spec.joining else None
        self.out_marks = None if spec.joining else k.buffer("out_marks", U8)
        self.errors = k.var("errors", False, BOOL)
        self.done = k.var("done", 0)
        self.results = [
            (k.local("result", machine_type(each.type) or I64, BLOCK), k.local("there", U8, BLOCK))
            for each in spec.reductions
        ]
        self.tables: dict[int, PrefixTable] = {}
        self.sliding = [self._sliding(each) for each in self._groups()]
        self.outputs = [self._output(each) for each in spec.fields]
        self.joined = _Joined(self) if spec.joining else None

    def build(self) -> FusedKernel:
        k = self.k
        self.walk.lanes(self._start, self._consume)
        k.store(self.out_bounds, self.walk.lane_hi, self.done)
        k.store(self.head, ERRORS, self.head[ERRORS] | self.errors.to(I64))
        k.ret(self.done)
        scratch = [each for several in self.tables.values() for each in several.scratch]
        scratch += [each for several in self.sliding for each in several.scratch]
        outputs = tuple(
            Output(field.name, values.type, values.name, valid.name)
            for field, (values, valid) in zip(self.spec.fields, self.outputs, strict=True)
        )
        bindings = tuple(tuple(each.bindings) for each in self.columns)
        return FusedKernel(k.build(), bindings, outputs, tuple(scratch))

    def _fail(self, condition: Value) -> None:
        self.k.set(self.errors, self.errors | condition)

    # -- reductions ----------------------------------------------------------------------------------

    def _groups(self) -> list[_Group]:
        """Reductions over the same span by the same algorithm share a pass."""
        found: dict[tuple[int, str], list[int]] = {}
        for place, each in enumerate(self.spec.reductions):
            if each.algorithm is not None:
                found.setdefault((each.span, each.algorithm), []).append(place)
        return [self._group(span, algorithm, members) for (span, algorithm), members in found.items()]

    def _group(self, span: int, algorithm: str, members: list[int]) -> _Group:
        track = self.spec.changes.spans[span].track
        several = [self.spec.reductions[place] for place in members]
        slide = SlideSpec(
            self.spec.schemas[track],
            _NO_TIME,
            tuple(each.reduction for each in several),
            tuple(each.type for each in several),
            self.spec.nullable[track],
            algorithm,
            Shape(dense=True, may_be_empty=True),
        )
        return _Group(span, slide, slide_partials(slide), members)

    def _sliding(self, group: _Group) -> Carried:
        track = self.spec.changes.spans[group.span].track
        rows = self._rows(track, group.partials, group.slide)
        lo, hi = self.walk.frames(group.span)

        def emit(f: Value, states: Sequence[Values]) -> None:
            self._finish(group, f, states)

        if group.slide.algorithm != PREFIX_SUMS:
            return ALGORITHMS[group.slide.algorithm](rows, lo, hi, emit)
        table = self._table(track)
        places = [self._partials_of(track).index(each) for each in group.partials]
        return PrefixSums(rows, lo, hi, emit, table, places)

    def _rows(self, track: int, partials: Sequence[Partial], slide: SlideSpec) -> _Rows:
        def row(place: Value) -> Row:
            lowering = self.columns[track].lowering(place, self._fail)
            return [contribution(lowering, each) for each in partials]

        return _Rows(self.k, slide_monoids(slide), row)

    def _partials_of(self, track: int) -> list[Partial]:
        """All that is summed up of a track, each once."""
        return list(dict.fromkeys(each for group in self._by_prefix(track) for each in group.partials))

    def _by_prefix(self, track: int) -> list[_Group]:
        return [
            each
            for each in self._groups()
            if each.slide.algorithm == PREFIX_SUMS and self.spec.changes.spans[each.span].track == track
        ]

    def _table(self, track: int) -> PrefixTable:
        if track not in self.tables:
            groups = self._by_prefix(track)
            monoid = {
                partial: monoid
                for group in groups
                for partial, monoid in zip(group.partials, slide_monoids(group.slide), strict=True)
            }
            partials = self._partials_of(track)
            row = self._rows(track, partials, groups[0].slide).row
            self.tables[track] = PrefixTable(_Rows(self.k, [monoid[each] for each in partials], row))
        return self.tables[track]

    def _finish(self, group: _Group, f: Value, states: Sequence[Values]) -> None:
        """Write a frame's results. One without rows has none, not even a count: nobody is there to be counted."""
        k, slide = self.k, group.slide
        lo, hi = self.walk.frames(group.span)
        rows = k.var("rows", hi[f] - lo[f])
        some = k.var("some", rows > 0)
        finish = Finish(
            k,
            (*group.partials, ROWS),
            (*states, (rows,)),
            lambda expr: may_be_null(expr, slide.schema, slide.nullable),
            lambda wrong: self._fail(wrong & some),
        )
        for place in group.members:
            each = self.spec.reductions[place]
            cell = finish.cell(each.reduction, each.type)
            values, there = self.results[place]
            k.store(values, f, cell.value.to(values.type))
            counts = each.reduction.function in DEFINED_WITHOUT_ROWS and cell.valid is None
            k.store(there, f, (some if counts else narrow(cell.valid, some)).to(U8))

    # -- blocks --------------------------------------------------------------------------------------

    def _start(self, lane: Var) -> None:
        self.k.store(self.out_bounds, lane, self.done)
        for track, table in self.tables.items():
            table.start(self.walk.begins[track])
        for each in self.sliding:
            each.start()
        if self.joined is not None:
            self.joined.start()

    def _consume(self, lane: Var, n: Var) -> None:
        k = self.k
        with k.if_(self.emit.ne(0)):
            self._reduce(n)
            if self.joined is not None:
                self.joined.write(lane, n)
            else:
                self._write(n)
        with k.else_():
            k.set(self.done, self.done + n)

    def _reduce(self, n: Var) -> None:
        for track, table in self.tables.items():
            table.extend([self.walk.frames(each.span) for each in self._by_prefix(track)], n)
        for each in self.sliding:
            each.sweep(n)
        for each in self.sliding:
            if isinstance(each, PrefixSums):
                each.sweep_doubted(n)

    def _write(self, n: Var) -> None:
        """All instants as points."""
        k = self.k
        assert self.out_marks is not None
        with k.for_(0, n, "i") as i:
            place = k.var("to", self.done + i)
            k.store(self.out_times, place, self.walk.instants[i])
            k.store(self.out_marks, place, self.walk.marked[i])
            self.store_fields(i, self.outputs, place)
        k.set(self.done, self.done + n)

    # -- fields --------------------------------------------------------------------------------------

    def _output(self, field: ex.Field) -> tuple[Buffer, Buffer]:
        machine = machine_type(self._type_of(field))
        assert machine is not None
        return self.k.buffer("out", machine), self.k.buffer("out_valid", U8)

    def _type_of(self, field: ex.Field) -> pa.DataType:
        return self._lowering(const(0, I64)).type_of(field.expr)

    def store_fields(self, i: Value, to: Sequence[tuple[Buffer, Buffer]], place: Value) -> None:
        """Compute the fields at an instant of the block."""
        lowering = self._lowering(i)
        for field, (values, valid) in zip(self.spec.fields, to, strict=True):
            cell = lowering.lower(field.expr)
            self.k.store(values, place, cell.value.to(values.type))
            there = const(True, BOOL) if cell.valid is None else cell.valid
            self.k.store(valid, place, there.to(U8))

    def _lowering(self, i: Value) -> Lowering:
        cells = [Cell(values[i], there[i].ne(0)) for values, there in self.results]
        return Lowering(
            self.k,
            self.spec.scope,
            lambda name: self._accessed(name, i),
            self._fail,
            _no_text,
            lambda name: self._accessed(name, i).valid,
            cells,
            [each.type for each in self.spec.reductions],
        )

    def _accessed(self, name: str, i: Value) -> Cell:
        """A column of an access: its track's point before the cursor, if there is one."""
        k = self.k
        number, column = next(
            (number, column)
            for number, access in enumerate(self.spec.accesses)
            for column in access.columns
            if at(number, column) == name
        )
        access = self.spec.accesses[number]
        place, begin = self.walk.places[access.cursor][i], self.walk.begins[access.track]
        row = k.var("row", place - 1 if access.always else maximum(place - 1, 0))
        cell = self.columns[access.track].cell(column, row)
        return cell if access.always else Cell(cell.value, narrow(cell.valid, place > begin))


class _Joined:
    """Writes an instant only if its value is not that of the one before."""

    def __init__(self, owner: _Fused) -> None:
        self.owner = owner
        k = owner.k
        self.block = [
            (k.local("value", values.type, BLOCK), k.local("valid", U8, BLOCK)) for values, _ in owner.outputs
        ]
        self.before = [
            (k.var("before", const(0, _bits(values.type))), k.var("was", 0, U8)) for values, _ in owner.outputs
        ]
        self.fresh = k.var("fresh", True, BOOL)

    def start(self) -> None:
        self.owner.k.set(self.fresh, True)

    def write(self, lane: Var, n: Var) -> None:
        owner, k = self.owner, self.owner.k
        assert owner.emitted is not None
        since = k.var("emitted", owner.emitted[lane])
        with k.for_(0, n, "i") as i:
            owner.store_fields(i, self.block, i)
        with k.for_(0, n, "i", scalar=True) as i:
            self._one(i, since)

    def _one(self, i: Var, since: Var) -> None:
        """Write every instant, to be overwritten by the next unless it counts: that costs no branch."""
        owner, k = self.owner, self.owner.k
        when = k.var("when", owner.walk.instants[i])
        k.store(owner.out_times, owner.done, when)
        differs = k.var("differs", self.fresh)
        for (block, block_valid), (out, out_valid), (before, was) in zip(
            self.block, owner.outputs, self.before, strict=True
        ):
            there = k.var("there", block_valid[i])
            value = k.var("value", block[i])
            bits = k.var("bits", _as_bits(value))
            k.set(differs, differs | there.ne(was) | (bits.ne(before) & there.ne(0)))
            k.store(out, owner.done, value)
            k.store(out_valid, owner.done, there)
            k.set(before, bits)
            k.set(was, there)
        counts = k.var("counts", when >= since)
        k.set(owner.done, owner.done + (differs & counts).to(I64))
        k.set(self.fresh, self.fresh & ~counts)


def _bits(type: Type) -> Type:
    return MACHINE_TYPES[f"i{type.bits}"] if type.is_float else type


def _as_bits(value: Value) -> Value:
    return Bitcast(value, _bits(value.type)) if value.type.is_float else value


def _no_text(name: str, text: str) -> Cell:
    raise AssertionError(f"{name} is a text, which kernels over signals do not read")
