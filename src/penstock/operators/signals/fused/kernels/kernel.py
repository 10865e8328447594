"""Build the kernel of an expression: its reductions and fields inside the walk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.algorithms.expressions.cells import Cell, narrow
from penstock.algorithms.expressions.lowering import Columns, Lowering, may_be_null
from penstock.algorithms.monoids import Monoid, Values
from penstock.algorithms.partials import ROWS, Finish, Partial
from penstock.algorithms.partials.algebra import contribution
from penstock.algorithms.sliding.incremental import (
    BoundsAlone,
    Carried,
    PrefixSums,
    PrefixTable,
    Recompute,
    Subtract,
    TwoStacks,
)
from penstock.algorithms.sliding.kernel import (
    DEFINED_WITHOUT_ROWS,
    FrameShape,
    SlideSpec,
    slide_monoids,
    slide_partials,
)
from penstock.algorithms.sliding.slide import Aggregation, Row
from penstock.caches import CACHES
from penstock.expr import nodes as ex
from penstock.ir.signals.nodes import at
from penstock.loop.abi import ERRORS, OutputColumn
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import (
    BOOL,
    I32,
    I64,
    U8,
    Buffer,
    Type,
    Value,
    Var,
    const,
    maximum,
)
from penstock.loop.numbers import machine_type
from penstock.operators.signals.fused.kernels import changes
from penstock.operators.signals.fused.kernels.changes import (
    CHANGES,
    INSTANTS,
    SAMPLES,
    FusedKernel,
    FusedSpec,
)
from penstock.operators.signals.fused.kernels.joining import (
    EveryChange,
    EveryInstant,
    EverySample,
    Fields,
    PointTarget,
)
from penstock.types.time import Time

PREFIX_SUMS, SUBTRACT, RECOMPUTE, TWO_STACKS = "prefix-sums", "subtract-on-evict", "recompute", "two-stacks"
SIGNAL_ALGORITHMS: dict[str, type[Carried]] = {
    SUBTRACT: Subtract,
    RECOMPUTE: Recompute,
    TWO_STACKS: TwoStacks,
}
_WRITERS: dict[str, Callable[[PointTarget], EveryInstant | EveryChange | EverySample]] = {
    INSTANTS: EveryInstant,
    CHANGES: EveryChange,
    SAMPLES: EverySample,
}
_NO_TIME = Time("", pa.int64(), None)


@CACHES.results(most=128)
def build_fused(spec: FusedSpec) -> FusedKernel:
    """Build the kernel for a specification."""
    return _Fused(spec).build()


@dataclass(frozen=True)
class _Rows(Aggregation):
    """The rows of a track, aggregated by the monoids of some partials."""

    k: KernelBuilder
    monoids: Sequence[Monoid]
    row: Callable[[Value], Row]


@dataclass
class _Group:
    """The reductions over one span with one algorithm, and the indices of their results."""

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
        self.walk = changes.Changes(k, spec.changes)
        self.columns = [
            Columns(k, schema, nullable, frozenset(), _NO_TIME, self.first_row)
            for schema, nullable in zip(spec.schemas, spec.nullable, strict=True)
        ]
        self.out_times, self.out_bounds = k.buffer("out_times", I64), k.buffer("out_bounds", I64)
        self.errors = k.var("errors", False, BOOL)
        self.done = k.var("done", k.scalar("first_point"))
        self.results = [
            (
                k.local("result", machine_type(reduction.type) or I64, changes.INSTANTS_PER_BLOCK),
                k.local("there", U8, changes.INSTANTS_PER_BLOCK),
            )
            for reduction in spec.reductions
        ]
        self.tables: dict[int, PrefixTable] = {}
        self.sliding = [self._sliding(group) for group in self._groups()]
        self.outputs = [self._output(field) for field in spec.fields]
        target = PointTarget(k, self.walk, self.out_times, self.outputs, self.done, self._store_fields)
        self.writer = _WRITERS[spec.writes](target)

    def build(self) -> FusedKernel:
        k = self.k
        self.walk.partitions(self._start, self._consume)
        k.store(self.out_bounds, self.walk.partition_hi, self.done)
        k.store(self.head, ERRORS, self.head[ERRORS] | self.errors.to(I64))
        k.ret(self.done)
        scratch = [buffer for several in self.tables.values() for buffer in several.scratch]
        scratch += [buffer for several in self.sliding for buffer in several.scratch]
        outputs = tuple(
            OutputColumn(field.name, values.type, values.name, valid.name)
            for field, (values, valid) in zip(self.spec.fields, self.outputs, strict=True)
        )
        bindings = tuple(tuple(column.bindings) for column in self.columns)
        return FusedKernel(k.build(), bindings, outputs, tuple(scratch))

    def _fail(self, condition: Value) -> None:
        self.k.set(self.errors, self.errors | condition)

    # -- reductions ----------------------------------------------------------------------------------

    def _groups(self) -> list[_Group]:
        """Group reductions with the same span and algorithm, which share a pass."""
        found: dict[tuple[int, str], list[int]] = {}
        for place, reduction in enumerate(self.spec.reductions):
            if reduction.algorithm is not None:
                found.setdefault((reduction.span, reduction.algorithm), []).append(place)
        return [self._group(span, algorithm, members) for (span, algorithm), members in found.items()]

    def _group(self, span: int, algorithm: str, members: list[int]) -> _Group:
        track = self.spec.changes.spans[span].track
        several = [self.spec.reductions[place] for place in members]
        slide = SlideSpec(
            self.spec.schemas[track],
            _NO_TIME,
            tuple(spec.reduction for spec in several),
            tuple(spec.type for spec in several),
            self.spec.nullable[track],
            algorithm,
            FrameShape(dense=True, may_be_empty=True),
        )
        if algorithm == SUBTRACT and all(monoid.prefix is not None for monoid in slide_monoids(slide)):
            slide = replace(slide, algorithm=PREFIX_SUMS)  # as exact, and without a branch per row
        return _Group(span, slide, slide_partials(slide), members)

    def _sliding(self, group: _Group) -> Carried:
        track = self.spec.changes.spans[group.span].track
        rows = self._rows(track, group.partials, group.slide)
        lo, hi = self.walk.frames(group.span)

        def emit(f: Value, states: Sequence[Values]) -> None:
            self._finish(group, f, states, I64)

        def emit_few(f: Value, states: Sequence[Values]) -> None:
            self._finish(group, f, states, I32)

        if not group.partials:
            return BoundsAlone(rows, lo, hi, emit)
        if group.slide.algorithm != PREFIX_SUMS:
            return SIGNAL_ALGORITHMS[group.slide.algorithm](rows, lo, hi, emit)
        table = self._table(track)
        places = [self._partials_of(track).index(partial) for partial in group.partials]
        return PrefixSums(TwoStacks(rows, lo, hi, emit), emit_few, table, places)

    def _rows(self, track: int, partials: Sequence[Partial], slide: SlideSpec) -> _Rows:
        def row(place: Value) -> Row:
            lowering = self.columns[track].lowering(place, self._fail)
            return [contribution(lowering, partial) for partial in partials]

        return _Rows(self.k, slide_monoids(slide), row)

    def _partials_of(self, track: int) -> list[Partial]:
        """All partials with prefix sums over a track, without duplicates."""
        return list(dict.fromkeys(partial for group in self._by_prefix(track) for partial in group.partials))

    def _by_prefix(self, track: int) -> list[_Group]:
        return [
            group
            for group in self._groups()
            if group.slide.algorithm == PREFIX_SUMS and self.spec.changes.spans[group.span].track == track
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
            self.tables[track] = PrefixTable(_Rows(self.k, [monoid[partial] for partial in partials], row))
        return self.tables[track]

    def _finish(self, group: _Group, f: Value, states: Sequence[Values], counter: Type) -> None:
        """Store a frame's results. They are null for a frame without rows, counts included.

        Small counts use 32 bits, which most vector units convert to floats directly, unlike 64 bits.
        """
        k, slide = self.k, group.slide
        lo, hi = self.walk.frames(group.span)
        rows = k.var("rows", (hi[f] - lo[f]).to(counter))
        some = k.var("some", rows > 0)
        finish = Finish(
            k,
            (*group.partials, ROWS),
            (*states, (rows,)),
            lambda expr: may_be_null(expr, slide.schema, slide.nullable),
            lambda wrong: self._fail(wrong & some),
        )
        for place in group.members:
            spec = self.spec.reductions[place]
            cell = finish.cell(spec.reduction, spec.type)
            values, there = self.results[place]
            k.store(values, f, cell.value.to(values.type))
            counts = spec.reduction.function in DEFINED_WITHOUT_ROWS and cell.valid is None
            k.store(there, f, (some if counts else narrow(cell.valid, some)).to(U8))

    # -- blocks --------------------------------------------------------------------------------------

    def _start(self, partition: Var) -> None:
        self.k.store(self.out_bounds, partition, self.done)
        for track, table in self.tables.items():
            table.start(self.walk.begins[track])
        for sweep in self.sliding:
            sweep.start()
        self.writer.start(partition)

    def _consume(self, partition: Var, n: Var) -> None:
        k = self.k
        with k.if_(self.emit.ne(0)):
            self._reduce(n)
            self.writer.write(partition, n)
        with k.else_():
            k.set(self.done, self.done + n)

    def _reduce(self, n: Var) -> None:
        for track, table in self.tables.items():
            table.extend([self.walk.frames(group.span) for group in self._by_prefix(track)], n)
        for sweep in self.sliding:
            sweep.sweep(n)
        for sweep in self.sliding:
            if isinstance(sweep, PrefixSums):
                sweep.sweep_doubted(n)

    # -- fields --------------------------------------------------------------------------------------

    def _output(self, field: ex.Field) -> tuple[Buffer, Buffer]:
        machine = machine_type(self._type_of(field))
        assert machine is not None
        return self.k.buffer("out", machine), self.k.buffer("out_valid", U8)

    def _type_of(self, field: ex.Field) -> pa.DataType:
        return self._lowering(const(0, I64)).type_of(field.expr)

    def _store_fields(self, i: Value, to: Fields, place: Value) -> None:
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
            [reduction.type for reduction in self.spec.reductions],
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


def _no_text(name: str, text: str) -> Cell:
    raise AssertionError(f"{name} is a text, which kernels over signals do not read")
