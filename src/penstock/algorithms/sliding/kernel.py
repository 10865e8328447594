"""The sliding kernel: reductions over frames of rows, by one of the algorithms in `kernels/swag`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.algorithms import monoids
from penstock.algorithms.expressions.cells import Cell, narrow
from penstock.algorithms.expressions.lowering import Columns, may_be_null
from penstock.algorithms.monoids import Monoid, Values
from penstock.algorithms.partials import PRESENT, ROWS, Finish, Partial, monoid_of, partials_of
from penstock.algorithms.partials.algebra import contribution
from penstock.algorithms.sliding.count_slide import count_slide
from penstock.algorithms.sliding.frame_algorithms import prefix_sums, recompute, subtract_on_evict, two_stacks
from penstock.algorithms.sliding.slide import CountSlide, Row, Slide, SlideScratch
from penstock.caches import CACHES
from penstock.expr.typing import type_of
from penstock.ir.nodes import Reduction
from penstock.loop.abi import ERRORS, Binding, OutputColumn
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I32, I64, U8, Buffer, Kernel, Value, const
from penstock.loop.numbers import machine_type
from penstock.types.time import Time
from penstock.types.windows import Count

Algorithm = Callable[[Slide], tuple[SlideScratch, ...]]

# Functions that are not null over no rows; functions that are not null if any row counts.
DEFINED_WITHOUT_ROWS = frozenset({"count", "custom"})
DEFINED_WITH_ROWS = frozenset({"count", "sum", "mean", "min", "max", "product", "any", "all"})

FRAME_ALGORITHMS: dict[str, Algorithm] = {
    "recompute": recompute,
    "two-stacks": two_stacks,
    "prefix-sums": prefix_sums,
    "subtract-on-evict": subtract_on_evict,
}
COUNT_SLIDE = "count-slide"


@dataclass(frozen=True)
class FrameShape:
    """Properties of all frames: `dense`: about as many as rows; `may_be_empty`: some may have no rows.

    `count` is set for windows of rows in a single sorted partition: positions of frames are then computed.
    """

    dense: bool = False
    may_be_empty: bool = False
    count: Count | None = None


@dataclass(frozen=True)
class SlideSpec:
    """The specialisation of the kernel. Arguments and conditions of the reductions are columns."""

    schema: pa.Schema
    time: Time
    reductions: tuple[Reduction, ...]
    types: tuple[pa.DataType, ...]
    nullable: frozenset[str]
    algorithm: str
    shape: FrameShape


@dataclass(frozen=True)
class SlideKernel:
    """The kernel, the columns it writes, the bindings of its parameters, and its scratch memory."""

    kernel: Kernel
    outputs: tuple[OutputColumn, ...]
    bindings: tuple[Binding, ...]
    scratch: tuple[SlideScratch, ...]


@CACHES.results(most=256)
def build_slide(spec: SlideSpec) -> SlideKernel:
    """Build the sliding kernel for a specification; a second run of a query finds it in the cache."""
    return (_Counting if spec.algorithm == COUNT_SLIDE else _Sliding)(spec).write()


def slide_monoids(spec: SlideSpec) -> tuple[Monoid, ...]:
    """The monoids that the reductions need, which the algorithm must support."""
    return tuple(exact_monoid(partial, spec.schema) for partial in slide_partials(spec))


def slide_partials(spec: SlideSpec) -> tuple[Partial, ...]:
    """The partials that the reductions need of a frame, except its number of rows, which the bounds give."""
    found = partials_of(spec.reductions, lambda expr: may_be_null(expr, spec.schema, spec.nullable))
    return tuple(partial for partial in found if partial not in (PRESENT, ROWS))


def exact_monoid(partial: Partial, schema: pa.Schema) -> Monoid:
    """Choose the monoid of a partial.

    Presence is a count, so that values can be removed. Sums of narrow integers cannot overflow 64 bits,
    however many rows there are; others get 128.
    """
    if partial.kind == "present":
        return monoids.count()
    types = [type_of(arg, schema) for arg in partial.args]
    machines = [machine_type(dtype) for dtype in types]
    small = all(machine is not None and machine.bits <= I32.bits for machine in machines)
    return monoid_of(partial, types, wide=not small)


class _Sliding:
    """The kernel under construction."""

    def __init__(self, spec: SlideSpec) -> None:
        self.spec = spec
        self.k = k = KernelBuilder("slide")
        self.head = k.buffer("head", I64)
        self.bounds = self._bounds()
        self.begin, self.end = k.scalar("begin"), k.scalar("end")
        self.columns = Columns(k, spec.schema, spec.nullable, frozenset(), spec.time, k.scalar("first_row"))
        self.partials = slide_partials(spec)
        self.values, self.valid = self._buffers()
        self.errors = k.var("errors", False, BOOL)

    def _bounds(self) -> tuple[Buffer, ...]:
        """The buffers of the frames' bounds."""
        return self.k.buffer("lo", I64), self.k.buffer("hi", I64)

    def _buffers(self) -> tuple[list[Buffer], list[Buffer | None]]:
        machines = [machine_type(dtype) or I32 for dtype in self.spec.types]
        values = [self.k.buffer("out", machine) for machine in machines]
        return values, [
            self.k.buffer("out_valid", U8) if self._may_be_null(reduction) else None
            for reduction in self.spec.reductions
        ]

    def _may_be_null(self, reduction: Reduction) -> bool:
        """Whether a result may be null: not where every frame has rows and all of them count."""
        spec = self.spec
        partly = reduction.where is not None or any(
            may_be_null(arg, spec.schema, spec.nullable) for arg in reduction.args
        )
        return spec.shape.may_be_empty or partly or reduction.function not in DEFINED_WITH_ROWS

    def write(self) -> SlideKernel:
        k = self.k
        scratch = self._slid(slide_monoids(self.spec))
        k.store(self.head, ERRORS, self.head[ERRORS] | self.errors.to(I64))
        k.ret(0)
        outputs = tuple(
            OutputColumn(str(place), values.type, values.name, None if valid is None else valid.name)
            for place, (values, valid) in enumerate(zip(self.values, self.valid, strict=True))
        )
        return SlideKernel(k.build(), outputs, tuple(self.columns.bindings), scratch)

    def _slid(self, algebra: Sequence[Monoid]) -> tuple[SlideScratch, ...]:
        lo, hi = self.bounds
        frames = lo, hi, self.begin, self.end
        slide = Slide(self.k, *frames, algebra, self._row, self._emit, self.spec.shape.dense)
        return FRAME_ALGORITHMS[self.spec.algorithm](slide)

    def _rows(self, frame: Value) -> Value:
        """The number of rows of a frame."""
        lo, hi = self.bounds
        return hi[frame] - lo[frame]

    def _row(self, row: Value) -> Row:
        lowering = self.columns.lowering(row, self._fail)
        return [contribution(lowering, partial) for partial in self.partials]

    def _fail(self, condition: Value) -> None:
        self.k.set(self.errors, self.errors | condition)

    def _emit(self, frame: Value, states: Sequence[Values]) -> None:
        """Store a frame's results. A frame without rows has null results, except counts and custom aggregates."""
        spec, k = self.spec, self.k
        rows = k.var("rows", self._rows(frame))
        some = k.var("some", rows > 0)
        finish = Finish(
            k,
            (*self.partials, ROWS),
            (*states, (rows,)),
            lambda expr: may_be_null(expr, spec.schema, spec.nullable),
            self._fail,
        )
        for place, (reduction, dtype) in enumerate(zip(spec.reductions, spec.types, strict=True)):
            cell = finish.cell(reduction, dtype)
            k.store(self.values[place], frame, cell.value.to(self.values[place].type))
            valid = self.valid[place]
            if valid is not None:
                k.store(valid, frame, self._validity(reduction, cell, some).to(U8))

    @staticmethod
    def _validity(reduction: Reduction, cell: Cell, some: Value) -> Value:
        if reduction.function in DEFINED_WITHOUT_ROWS:
            return const(True, BOOL) if cell.valid is None else cell.valid
        return narrow(cell.valid, some)


class _Counting(_Sliding):
    """The kernel over windows of rows in a single partition: frame f is the `size` rows from f * `every` on."""

    @property
    def _count(self) -> Count:
        count = self.spec.shape.count
        assert count is not None, "only windows of rows lie at regular places"
        return count

    def _bounds(self) -> tuple[Buffer, ...]:
        return ()

    def _slid(self, algebra: Sequence[Monoid]) -> tuple[SlideScratch, ...]:
        size, every = self._count.size, self._count.every
        return count_slide(
            CountSlide(self.k, size, every, self.begin, self.end, algebra, self._row, self._emit)
        )

    def _rows(self, frame: Value) -> Value:
        return const(self._count.size, I64)
