"""Choose the reducer of each reduction over frames, and bind its kernels."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from penstock.algorithms.hash_table.keys import Indexer
from penstock.algorithms.kernel_factory import KernelFactory
from penstock.algorithms.order_statistics.kernels import RankStatistic, build_rank_slide, memory_length
from penstock.algorithms.order_statistics.rank_cursors import bits_length
from penstock.algorithms.order_statistics.reducers import (
    RANK,
    ExtremeByReducer,
    ExtremeReducer,
    RankReducer,
)
from penstock.algorithms.sliding.kernel import COUNT_SLIDE, FrameShape, SlideSpec, build_slide
from penstock.algorithms.sort.kernels import (
    DIGIT_BITS,
    GROUP_BITS,
    PARTITION_CHUNK,
    assign_ranks,
    count_partitions,
    falls,
    fill_many_partitions,
    fill_partitions,
    float_words,
    place_floats,
    radix_pass,
    sort_words,
)
from penstock.algorithms.sort.sorting import Sorter
from penstock.algorithms.sorted_partitions.partitions import Partitioner, PartitionLayout
from penstock.algorithms.sorted_partitions.reducers import (
    Cells,
    CountReducer,
    EndReducer,
    FrameReduction,
    KernelPass,
    KernelReducer,
    ListReducer,
    Reducer,
    SlideCall,
)
from penstock.loop.nodes import MACHINE_TYPES, Kernel
from penstock.loop.numbers import machine_type
from penstock.runtime.kernels import Call, OutputCall
from penstock.types.time import Time
from penstock.types.windows import Count, LookBack, Window

Numbered = tuple[int, FrameReduction]
_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True)
class FrameReducers:
    """The reducers of one operator over rows of a schema and a time; `algorithms` holds that of each reduction."""

    schema: pa.Schema
    time: Time
    reductions: tuple[FrameReduction, ...]
    algorithms: tuple[str, ...]
    shape: FrameShape
    kernel_factory: KernelFactory

    @property
    def sorter(self) -> Sorter:
        return sorter(self.kernel_factory)

    def reducers(self, threads: int) -> list[Reducer]:
        numbered = list(enumerate(self.reductions))
        in_kernels = [pair for pair in numbered if self._fits_kernel(pair[1])]
        by_rank = [pair for pair in numbered if pair[1].function in QUESTIONS]
        others = [pair for pair in numbered if pair not in in_kernels and pair not in by_rank]
        return [
            *(self._other(*other, threads) for other in others),
            *(self._kernel(key, group, threads) for key, group in _grouped(in_kernels, self._pass_of)),
            *(self._ranks(group, threads) for _, group in _grouped(by_rank, _column_of)),
        ]

    def _fits_kernel(self, reduction: FrameReduction) -> bool:
        """Return whether the state has a fixed size and holds machine values."""
        if reduction.function in _OTHERS | QUESTIONS or (
            reduction.function == "count" and _counts_rows(reduction)
        ):
            return False
        if reduction.function in ("min", "max", "min_by", "max_by"):
            return all(self._is_machine(name) for name in reduction.args)
        return True

    def _is_machine(self, name: str) -> bool:
        return machine_type(self.schema.field(name).type) is not None

    def _other(self, place: int, reduction: FrameReduction, threads: int) -> Reducer:
        places, span, where = (place,), reduction.span, reduction.where
        match reduction.function:
            case "count":
                return CountReducer(places, span)
            case "first" | "last" as end:
                skips = bool(dict(reduction.options).get("ignore_nulls"))
                return EndReducer(
                    places, span, reduction.args[0], where, end == "last", skips, reduction.type
                )
            case "list":
                return ListReducer(places, span, reduction.args[0], where, reduction.type)
            case "min" | "max" as extreme:
                (column,) = reduction.args
                best = self._by_rank(extreme, reduction, threads)
                return ExtremeReducer(places, span, column, where, reduction.type, best, self.sorter)
            case "min_by" | "max_by" as extreme:
                column, by = reduction.args
                largest, least = extreme == "max_by", self._by_rank("min", reduction, threads)
                return ExtremeByReducer(
                    places, span, column, by, where, largest, reduction.type, least, self.sorter
                )
        raise AssertionError(f"{reduction.function} has no way to be computed over frames")

    def _by_rank(self, extreme: str, reduction: FrameReduction, threads: int) -> KernelPass:
        """Return the kernel pass that finds the least or greatest rank."""
        over = FrameReduction(extreme, (RANK,), None, (), 0, pa.int64())
        schema = pa.schema([pa.field(RANK, pa.int64())])
        return replace(self, schema=schema).kernel_pass((over,), self._algorithm_of(reduction), threads)

    # -- passes over frames --------------------------------------------------------------------------

    def _pass_of(self, reduction: FrameReduction) -> tuple[int, str]:
        """Return the key of a reduction's pass: reductions with the same span and algorithm share one."""
        return reduction.span, self._algorithm_of(reduction)

    def _algorithm_of(self, reduction: FrameReduction) -> str:
        return self.algorithms[self.reductions.index(reduction)]

    def _kernel(self, key: tuple[int, str], group: list[Numbered], threads: int) -> KernelReducer:
        span, algorithm = key
        several = tuple(reduction for _, reduction in group)
        return KernelReducer(
            tuple(place for place, _ in group), span, self.kernel_pass(several, algorithm, threads)
        )

    def kernel_pass(self, reductions: tuple[FrameReduction, ...], algorithm: str, threads: int) -> KernelPass:
        """Return one kernel pass for several reductions."""
        columns = {
            name
            for reduction in reductions
            for name in (*reduction.args, reduction.where)
            if name is not None
        }
        types = tuple(reduction.type for reduction in reductions)
        slide = partial(self._slide, reductions)
        if algorithm != COUNT_SLIDE:
            return KernelPass(tuple(columns), types, partial(slide, algorithm), threads)
        by_stacks = partial(slide, _OF_THE_REST)
        return KernelPass(tuple(columns), types, by_stacks, threads, partial(slide, COUNT_SLIDE))

    def _ranks(self, group: list[Numbered], threads: int) -> RankReducer:
        """Return one reducer for all order statistics of a column."""
        first = group[0][1]
        questions = tuple(_question(reduction) for _, reduction in group)

        def call(shared: bool) -> Call:
            return self.kernel_factory.call(
                ("rank_slide", questions, shared), lambda: build_rank_slide(questions, shared)
            )

        return RankReducer(
            tuple(place for place, _ in group),
            first.span,
            first.args[0],
            first.where,
            tuple(
                (question.kind, reduction.type)
                for question, (_, reduction) in zip(questions, group, strict=True)
            ),
            call,
            len({question.kind for question in questions} - {"quantile"}),
            memory_length,
            bits_length,
            self.sorter,
            threads,
        )

    def _spec(
        self, reductions: Sequence[FrameReduction], nullable: frozenset[str], algorithm: str
    ) -> SlideSpec:
        return SlideSpec(
            self.schema,
            self.time,
            tuple(reduction.as_ir() for reduction in reductions),
            tuple(reduction.type for reduction in reductions),
            nullable,
            algorithm,
            self.shape,
        )

    def _slide(
        self, reductions: tuple[FrameReduction, ...], algorithm: str, nullable: frozenset[str]
    ) -> SlideCall:
        spec = self._spec(reductions, nullable, algorithm)
        kernel = build_slide(spec)
        call = self.kernel_factory.call(spec, lambda: kernel.kernel)
        scratch = tuple(
            Cells(scratch.buffer.name, scratch.buffer.type, scratch.length, scratch.whole)
            for scratch in kernel.scratch
        )
        return SlideCall(OutputCall(call, kernel.outputs, kernel.bindings), scratch)


def sorter(kernel_factory: KernelFactory) -> Sorter:
    """Return the sorter of rows by integers. Its kernels are built on first use, since many queries sort nothing."""

    def made(build: Callable[[], Kernel]) -> Call:
        return lambda given: kernel_factory.call(build.__name__, build)(given)  # noqa: PLW0108 - not before

    return Sorter(
        made(radix_pass),
        DIGIT_BITS,
        made(float_words),
        made(assign_ranks),
        made(falls),
        made(sort_words),
        made(place_floats),
    )


def partitioner(kernel_factory: KernelFactory, threads: int) -> Partitioner:
    """Return the partitioner of rows by partition number."""

    def fill(dtypes: tuple[np.dtype, ...], many: bool) -> Call:
        types = tuple(MACHINE_TYPES[f"{dtype.kind}{8 * dtype.itemsize}"] for dtype in dtypes)
        written = fill_many_partitions if many else fill_partitions
        return kernel_factory.call((written.__name__, types), lambda: written(types))

    return Partitioner(
        kernel_factory.call("count_partitions", count_partitions), fill, PARTITION_CHUNK, GROUP_BITS, threads
    )


_FEW_ROWS = 4
_OF_THE_REST = "two-stacks"  # for windows cut off by the end of input; it works for any monoid
_OTHERS = frozenset({"first", "last", "list"})
QUESTIONS = frozenset({"median", "quantile", "mode", "count_distinct"})


def _question(reduction: FrameReduction) -> RankStatistic:
    match reduction.function:
        case "median":
            return RankStatistic("quantile", 0.5)
        case "quantile":
            fraction = dict(reduction.options)["q"]
            assert isinstance(fraction, int | float)
            return RankStatistic("quantile", float(fraction))
        case kind:
            return RankStatistic(kind)


def _column_of(reduction: FrameReduction) -> tuple[int, str, str]:
    """Return the key of a rank pass: the span, the column and the condition."""
    return reduction.span, reduction.args[0], reduction.where or ""


def _grouped(
    numbered: list[Numbered], key: Callable[[FrameReduction], _Key]
) -> list[tuple[_Key, list[Numbered]]]:
    found: dict[_Key, list[Numbered]] = {}
    for pair in numbered:
        found.setdefault(key(pair[1]), []).append(pair)
    return list(found.items())


def _counts_rows(reduction: FrameReduction) -> bool:
    return not reduction.args and reduction.where is None


def shape_of_windows(window: Window, keys: tuple[str, ...]) -> FrameShape:
    """Return the shape of the frames of windows, which are never empty."""
    match window:
        case Count() as count:
            return FrameShape(count.every <= _FEW_ROWS, count=None if keys else count)
        case _:
            return FrameShape()


def shape_of_look_backs(spans: tuple[LookBack, ...]) -> FrameShape:
    """Return the shape of the frames of look-backs, which are empty if they leave out the row itself."""
    itself = all(span.closed in ("right", "both") and not span.delay for span in spans)
    return FrameShape(dense=True, may_be_empty=not itself)


def indexer(kernel_factory: KernelFactory) -> Callable[[int], Indexer]:
    """Return the constructor of an empty index of keys, by their number of columns."""
    return lambda width: Indexer(width, kernel_factory.index, kernel_factory.texts)


def partition_layout(
    keys: tuple[str, ...], columns: tuple[str, ...], kernel_factory: KernelFactory, threads: int
) -> PartitionLayout:
    """Return the layout that partitions rows by `keys` and copies `columns` along."""
    return PartitionLayout(
        keys,
        columns,
        indexer(kernel_factory),
        partitioner(kernel_factory, threads),
        sorter(kernel_factory),
        threads,
    )
