"""Reductions over frames: native kernels for states of fixed size, row positions otherwise.

A reduction that selects a row (first, last, the largest text, …) yields the row's position; Arrow then takes the value,
of any type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.algorithms.kernel_factory import BatchArguments
from penstock.algorithms.sorted_partitions.frames import Frames, Regular
from penstock.algorithms.sorted_partitions.partitions import SortedPartitions
from penstock.errors import OverflowError
from penstock.expr import nodes as ex
from penstock.ir import nodes as ir
from penstock.loop.abi import ERRORS, WORDS
from penstock.loop.nodes import Type
from penstock.runtime.buffers import column_type, filled, indices, plain, room, to_arrow
from penstock.runtime.kernels import OutputCall
from penstock.runtime.stage import KernelOverflowError
from penstock.runtime.threads import run_on_threads

# Fewer rows and frames than this are not worth a second thread.
WORK_PER_THREAD = 1 << 16
# The scratch memory for this many rows fits the L2 cache.
FRAME_BLOCK = 1 << 15
# The first kernel call over regular frames has at least FEWEST_ROWS rows, and SEVERAL times the rows of a frame.
FEWEST_ROWS, SEVERAL = 1 << 17, 8


class Reducer(Protocol):
    """A group of a query's reductions: `places` are their numbers, `span` is the look-back they apply to."""

    @property
    def places(self) -> tuple[int, ...]: ...

    @property
    def span(self) -> int: ...

    def reduce(self, partitions: SortedPartitions, frames: Frames) -> list[pa.Array]:
        """The value of each reduction for each frame."""


@dataclass(frozen=True)
class Cells:
    """Scratch memory of a kernel: `length` cells; None: the rows of the longest frame, plus one.

    `whole`: the rows of all frames of a call, plus one.
    """

    parameter: str
    type: Type
    length: int | None
    whole: bool

    def made(self, longest: int, rows: int) -> np.ndarray:
        length = rows + 1 if self.whole else longest + 1 if self.length is None else self.length
        return filled(self.type, 0, length)


@dataclass(frozen=True)
class SlideCall:
    """A sliding kernel, and the scratch memory it needs."""

    output: OutputCall
    scratch: tuple[Cells, ...]

    @property
    def block(self) -> int | None:
        """The preferred number of rows of a call; None if there is no preference."""
        return FRAME_BLOCK if any(cells.whole for cells in self.scratch) else None


@dataclass(frozen=True)
class KernelPass:
    """Reductions with states of fixed size, all in one kernel pass over the frames.

    `slide(nullable)` returns the kernel for a set of nullable columns; `regular(nullable)`, if set, the kernel for
    frames at regular positions.
    """

    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    slide: Callable[[frozenset[str]], SlideCall]
    threads: int
    regular: Callable[[frozenset[str]], SlideCall] | None = None

    def arrays(self, batch: pa.RecordBatch, frames: Frames) -> list[pa.Array]:
        nullable = frozenset(name for name in self.columns if batch.column(name).null_count)
        if self.regular is None or not isinstance(frames, Regular):
            return self._swept(self.slide(nullable), batch, frames)
        full = self._counted(self.regular(nullable), batch, frames)
        if not frames.cut:
            return full
        rest = self._swept(self.slide(nullable), batch, frames.rest)
        return [pa.concat_arrays(both) for both in zip(full, rest, strict=True)]

    def _swept(self, kernel: SlideCall, batch: pa.RecordBatch, frames: Frames) -> list[pa.Array]:
        """Run the sliding kernel, which reads the bounds of each frame."""
        given = BatchArguments(batch, {}).fill(kernel.output.bindings)
        outputs = _outputs(kernel.output, len(frames))
        run_on_threads(
            [
                partial(_sweep, kernel, given, outputs, frames, *part)
                for part in parts(len(frames), batch.num_rows + len(frames), self.threads)
            ]
        )
        return self._results(kernel, outputs)

    def _counted(self, kernel: SlideCall, batch: pa.RecordBatch, frames: Regular) -> list[pa.Array]:
        """Run the regular kernel over full frames, which computes bounds from frame numbers."""
        batch = batch.slice(frames.first)
        given = BatchArguments(batch, {}).fill(kernel.output.bindings)
        outputs = _outputs(kernel.output, frames.full)
        run_on_threads(
            [
                partial(_count, kernel, {**given, **outputs}, frames, *part)
                for part in parts(frames.full, batch.num_rows, self.threads)
            ]
        )
        return self._results(kernel, outputs)

    def _results(self, kernel: SlideCall, outputs: Mapping[str, np.ndarray]) -> list[pa.Array]:
        return [
            to_arrow(outputs[output.values], None if output.valid is None else outputs[output.valid], dtype)
            for output, dtype in zip(kernel.output.outputs, self.types, strict=True)
        ]


@dataclass(frozen=True)
class KernelReducer:
    """Reductions that kernels compute from columns."""

    places: tuple[int, ...]
    span: int
    over: KernelPass

    def reduce(self, partitions: SortedPartitions, frames: Frames) -> list[pa.Array]:
        return self.over.arrays(partitions.batch(self.over.columns), frames)


def parts(frames: int, rows: int, most: int) -> list[tuple[int, int]]:
    """Split frames into a run for each thread; no run is empty, whatever the length of a frame."""
    threads = max(min(most, rows // WORK_PER_THREAD, frames), 1)
    cuts = np.linspace(0, frames, threads + 1).astype(int)
    return [(int(begin), int(end)) for begin, end in pairwise(cuts)]


def _outputs(call: OutputCall, frames: int) -> dict[str, np.ndarray]:
    made: dict[str, np.ndarray] = {}
    for output in call.outputs:
        made[output.values] = room(frames, column_type(output.type))
        if output.valid is not None:
            made[output.valid] = room(frames, np.uint8)
    return made


def _sweep(
    kernel: SlideCall,
    given: Mapping[str, object],
    outputs: Mapping[str, np.ndarray],
    frames: Frames,
    begin: int,
    end: int,
) -> None:
    """Run a kernel over the frames begin … end - 1, with scratch memory that grows with the longest frame."""
    head, scratch = np.zeros(WORDS, np.int64), {}
    longest = rows = -1
    for stretch in frames.sweep(begin, end, kernel.block):
        if stretch.longest > longest or stretch.rows > rows:
            longest, rows = 2 * stretch.longest, 2 * stretch.rows
            scratch = {cells.parameter: cells.made(longest, rows) for cells in kernel.scratch}
        count = len(stretch.lo)
        here = {name: output[stretch.first : stretch.first + count] for name, output in outputs.items()}
        bounds = {"lo": stretch.lo, "hi": stretch.hi, "begin": 0, "end": count}
        kernel.output.call({**given, **scratch, **here, **bounds, "head": head, "first_row": 0})
    if head[ERRORS]:
        raise KernelOverflowError


def _count(kernel: SlideCall, given: Mapping[str, object], frames: Regular, begin: int, end: int) -> None:
    """Run a kernel over the frames begin … end - 1, doubling the frames per call: the first call shows if it is slow.

    Each call first reads the rows of one frame, so a call covers the rows of several frames.
    """
    head = np.zeros(WORDS, np.int64)
    scratch = {cells.parameter: cells.made(frames.size, 0) for cells in kernel.scratch}
    many = max(FEWEST_ROWS, SEVERAL * frames.size) // frames.every + 1
    while begin < end:
        upto = min(begin + many, end)
        kernel.output.call({**given, **scratch, "begin": begin, "end": upto, "head": head, "first_row": 0})
        begin, many = upto, 2 * many
    if head[ERRORS]:
        raise KernelOverflowError


@dataclass(frozen=True)
class CountReducer:
    """The number of rows of each frame."""

    places: tuple[int, ...]
    span: int

    def reduce(self, partitions: SortedPartitions, frames: Frames) -> list[pa.Array]:
        return [to_arrow(frames.lengths, None, pa.int64())]


@dataclass(frozen=True)
class EndReducer:
    """The first or last selected row of a frame: of all rows, or of those where the condition holds and the value is not null."""

    places: tuple[int, ...]
    span: int
    column: str
    where: str | None
    last: bool
    ignore_nulls: bool
    type: pa.DataType

    def reduce(self, partitions: SortedPartitions, frames: Frames) -> list[pa.Array]:
        counts = active(partitions, (self.column,) if self.ignore_nulls else (), self.where)
        if counts is None:
            row = frames.hi - 1 if self.last else frames.lo
            return [chosen(partitions.column(self.column), row, frames.lo < frames.hi, self.type)]
        listed = np.flatnonzero(counts)
        if self.last:
            place = np.searchsorted(listed, frames.hi) - 1
            found = place >= 0
            row = listed[np.maximum(place, 0)] if len(listed) else frames.lo
            found &= row >= frames.lo
        else:
            place = np.searchsorted(listed, frames.lo)
            found = place < len(listed)
            row = listed[np.minimum(place, len(listed) - 1)] if len(listed) else frames.lo
            found &= row < frames.hi
        return [chosen(partitions.column(self.column), row, found, self.type)]


@dataclass(frozen=True)
class ListReducer:
    """The non-null values of a frame, in order."""

    places: tuple[int, ...]
    span: int
    column: str
    where: str | None
    type: pa.DataType

    def reduce(self, partitions: SortedPartitions, frames: Frames) -> list[pa.Array]:
        counts = active(partitions, (self.column,), self.where)
        listed = np.arange(len(partitions)) if counts is None else np.flatnonzero(counts)
        first, last = np.searchsorted(listed, frames.lo), np.searchsorted(listed, frames.hi)
        offsets = np.concatenate([[0], np.cumsum(last - first)])
        values = plain(partitions.column(self.column)).take(indices(listed[ranges(first, last)]))
        if offsets[-1] > np.iinfo(np.int32).max:
            raise OverflowError(
                "the lists of these windows hold more than 2^31 values together; collect fewer at a time"
            )
        return [pa.ListArray.from_arrays(to_arrow(offsets.astype(np.int32), None, pa.int32()), values)]


def active(partitions: SortedPartitions, args: Sequence[str], where: str | None) -> np.ndarray | None:
    """Which rows are selected: all arguments non-null, and the condition true; None for every row."""
    masks = [
        partitions.column(name).is_valid().to_numpy(zero_copy_only=False)
        for name in args
        if partitions.column(name).null_count
    ]
    if where is not None:
        column = partitions.column(where)
        masks.append(column.fill_null(False).to_numpy(zero_copy_only=False))
    if not masks:
        return None
    found: np.ndarray = np.logical_and.reduce(masks)
    return found


def chosen(column: pa.Array, rows: np.ndarray, found: np.ndarray, dtype: pa.DataType) -> pa.Array:
    """The values at some rows, null if none was found."""
    places = to_arrow(np.where(found, rows, 0), None if found.all() else found, pa.int64())
    if not len(column):
        return pa.nulls(len(rows), dtype)
    return plain(column.take(places)).cast(dtype)


def ranges(first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """All integers first[i] … last[i] - 1, range after range."""
    counts = last - first
    starts = np.repeat(first - (np.cumsum(counts) - counts), counts)
    listed: np.ndarray = starts + np.arange(int(counts.sum()))
    return listed


@dataclass(frozen=True)
class FrameReduction:
    """A reduction whose arguments and condition are columns."""

    function: str
    args: tuple[str, ...]
    where: str | None
    options: ex.Options
    span: int
    type: pa.DataType

    def as_ir(self) -> ir.Reduction:
        args = tuple(ex.Column(name) for name in self.args)
        where = None if self.where is None else ex.Column(self.where)
        return ir.Reduction(self.function, args, where, self.options)
