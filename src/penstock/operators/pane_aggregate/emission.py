"""Emit complete windows as Arrow batches; workers own windows such that few panes are moved before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import pyarrow as pa

from penstock.algorithms.hash_table.keys import HashKeys
from penstock.algorithms.window_grid import Grid, WindowGrid
from penstock.loop.abi import ERRORS, OUTPUT, WORDS, OutputColumn, numbered, positions_table
from penstock.operators.pane_aggregate.merge_tables import kernels_for
from penstock.operators.pane_aggregate.pane_assembly import (
    PaneRanges,
    SlidingCursor,
    frames_of_pairs,
    frames_of_panes,
)
from penstock.operators.pane_aggregate.worker import Worker
from penstock.runtime.buffers import filled, rooms, stored_type, time_array, to_arrow
from penstock.runtime.kernels import OutputCall, ResultColumn
from penstock.runtime.key_encoding import values_of
from penstock.runtime.stage import END_OF_TIME, KernelOverflowError, TimedBatch, does_not_fit
from penstock.runtime.threads import run_on_threads

MOST_EMITTED_ROWS = 1 << 20
ROWS_ALLOCATED_UNCOUNTED = 1 << 17  # output for this many rows is allocated without counting them first
# Fewer results than this are not worth a separate thread, which must also merge its first window.
CELLS_PER_THREAD = 1 << 16


def emit(
    worker: Worker, windows: WindowGrid, after: int, upto: int, threads: int = 1
) -> Iterator[pa.RecordBatch]:
    """Yield the results of complete windows, ordered by window end."""
    emission = emission_of(worker, windows, after, upto)
    if emission is not None:
        yield from emission.batches(threads)


def emission_of(worker: Worker, windows: WindowGrid, after: int, upto: int) -> Emission | None:
    """Prepare the emission of complete windows; None if there are none."""
    table, slots = worker.table, worker.slots
    if table is None or slots == 0:
        return None
    if isinstance(table.keys, HashKeys) and table.keys.sparse:
        frames = frames_of_pairs(windows, table.keys, after, upto)
    else:
        frames = frames_of_panes(windows, table.panes[:slots], after, upto)
    return Emission(worker, windows, frames, (after, upto)) if len(frames) else None


def _check_bounds(grid: Grid, least: int, most: int, dtype: pa.DataType) -> None:
    """Refuse windows, given by their smallest and largest number, whose bounds do not fit the time column's type."""
    low, high = _limits(stored_type(dtype))
    if grid.offset + least * grid.every < low or grid.offset + most * grid.every + grid.size > high:
        raise does_not_fit(dtype)


@cache
def _limits(dtype: np.dtype) -> tuple[int, int]:
    limits = np.iinfo(dtype)
    return limits.min, limits.max


class Emission:
    """Run the emit kernel over windows, in as many calls as the output needs."""

    def __init__(
        self, worker: Worker, windows: WindowGrid, frames: PaneRanges, between: tuple[int, int]
    ) -> None:
        table = worker.table
        assert table is not None
        self.worker, self.table, self.windows, self.between = worker, table, windows, between
        self.program, self.interners = worker.program, worker.interners
        self.frames, self.span = frames, windows.span
        _check_bounds(windows.grid, *frames.limits, self.program.time.type)
        self.kernel: OutputCall = kernels_for(worker.program, worker.nullable, table).emit(frames.overlapping)
        self.nullable = self.program.key_may_be_null(worker.nullable)
        self.by_key = table.sparse and windows.span > 1
        self.columns = 1 if table.sparse else table.keys.columns
        self.presence = table.states[0]
        self.arguments = {
            **table.arguments(),
            **worker.arenas(self.kernel.bindings),
            "order": frames.order,
            "first": frames.first,
            "cuts": frames.cuts,
            "last": frames.last,
            "positions": positions_table(),
            "numbers": frames.numbers,
            "gone": 0,  # places of panes that leave after the last window
        }

    def batches(self, threads: int) -> Iterator[pa.RecordBatch]:
        """Yield the results of all windows; large parts are computed in parallel."""
        many = len(self.frames)
        if self.by_key:
            yield from self._some(0, many, many)
            return
        parts = self._parts(many, threads)
        if parts == 1:
            yield from self._going_on(many)
            return
        self.worker.sliding = None
        bounds = [many * place // parts for place in range(parts + 1)]
        found: list[list[pa.RecordBatch]] = [[] for _ in bounds[1:]]

        def work(place: int) -> None:
            low, high = bounds[place : place + 2]
            found[place] = list(self._some(low, high, self._capacity(low, high)))

        run_on_threads([partial(work, place) for place in range(len(found))])
        yield from (batch for batches in found for batch in batches)

    @property
    def cells(self) -> int:
        """The cells of all windows, empty ones included."""
        return len(self.frames) * self.columns

    def _going_on(self, many: int) -> Iterator[pa.RecordBatch]:
        """Yield the results of all windows, merging from where the last emission stopped, if more will follow."""
        after, upto = self.between
        capacity, cursor = self._capacity(0, many), self.worker.sliding
        self.worker.sliding = None
        if not self.kernel.scratch or upto == END_OF_TIME:
            yield from self._some(0, many, capacity)
            return
        deepest, panes = self._deepest(0, many), self.table.panes[self.frames.order]
        if cursor is not None and cursor.fits(self.kernel, self.table, deepest, after):
            cursor.find(panes)
        else:
            cursor = SlidingCursor.new(self.kernel, self.table, deepest)
        cursor.stop(self.windows, int(self.frames.numbers[-1]), upto)
        self.arguments["gone"] = int(panes.searchsorted(cursor.left))
        yield from self._some(0, many, capacity, cursor.rows)
        self.worker.sliding = cursor

    def _parts(self, many: int, threads: int) -> int:
        """The number of parts to divide the windows into: each part merges the panes of its first window again."""
        least = max(CELLS_PER_THREAD // self.columns, self.span)
        return min(threads, max(many // least, 1))

    def _some(
        self, lo: int, hi: int, capacity: int, scratch: Mapping[str, object] | None = None
    ) -> Iterator[pa.RecordBatch]:
        head = np.zeros(WORDS, np.int64)
        rows = self._scratch(lo, hi) if scratch is None else scratch
        arguments = {**self.arguments, **rows, "head": head, "capacity": capacity}
        while lo < hi:
            outputs = self._outputs(capacity)
            lo = self.kernel.call({**arguments, **outputs, "lo": lo, "hi": hi})
            if head[ERRORS]:
                raise KernelOverflowError
            if head[OUTPUT]:
                yield self._batch(self._cut(outputs, int(head[OUTPUT])))

    def _scratch(self, lo: int, hi: int) -> dict[str, object]:
        """Scratch memory for the windows lo … hi, with no pane merged yet."""
        if not self.kernel.scratch:
            return {}
        rows: dict[str, object] = {"cursor": np.array([0, -1, 0, 0])}
        deepest = self._deepest(lo, hi)
        for buffer in self.kernel.scratch:
            rows[buffer.parameter] = filled(buffer.type, 0, (deepest if buffer.deep else 1) * self.columns)
        return rows

    def _deepest(self, lo: int, hi: int) -> int:
        """The rows that the stacks of these windows need."""
        return int((self.frames.cuts - self.frames.first)[lo:hi].max()) + 1

    def _capacity(self, lo: int, hi: int) -> int:
        """Output capacity for whole windows: all of them if each is one pane, else up to MOST_EMITTED_ROWS per call."""
        frames, columns = self.frames, self.columns
        if not frames.overlapping and (hi - lo) * columns > ROWS_ALLOCATED_UNCOUNTED:
            slots = frames.order[frames.first[lo:hi]]
            low, high = np.minimum.reduce(slots), np.maximum.reduce(slots) + 1
            cells = self.presence[low * columns : high * columns]
            return min(int(np.count_nonzero(cells)), len(slots) * columns) + columns
        return min((hi - lo) * columns, max(MOST_EMITTED_ROWS, columns)) + columns

    def _outputs(self, capacity: int) -> dict[str, np.ndarray]:
        written = self.kernel.written
        found = rooms([(capacity, dtype) for _, dtype in written])
        return {name: array for (name, _), array in zip(written, found, strict=True)}

    def _cut(self, outputs: dict[str, np.ndarray], rows: int) -> dict[str, np.ndarray]:
        """The written rows; sorted by time if they were written key by key."""
        cut = {name: array[:rows] for name, array in outputs.items()}
        if not self.by_key:
            return cut
        order = np.argsort(cut[numbered("out_bound", 0)], kind="stable")
        return {name: array[order] for name, array in cut.items()}

    def _batch(self, cut: dict[str, np.ndarray]) -> pa.RecordBatch:
        computed = {output.name: output for output in self.kernel.outputs}
        arrays = []
        for column in self.program.result:
            match column.origin:
                case "start" | "end" as bound:
                    arrays.append(time_array(cut[numbered("out_bound", int(bound == "end"))], column.type))
                case "key":
                    arrays.append(self._key(column, cut))
                case _:
                    arrays.append(self._computed(computed[column.name], cut, column.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.program.schema)

    def _key(self, column: ResultColumn, cut: dict[str, np.ndarray]) -> pa.Array:
        """Decode a key from its words."""
        key, words = self.program.keys[column.key], cut[numbered("out_word", column.key)]
        null = ((cut["out_nulls"] >> column.key) & 1) != 0 if self.nullable else None
        if key.text:
            assert key.column is not None
            codes = words if null is None else np.where(null, -1, words)
            return self.interners[key.column].decode(codes, column.type)
        return to_arrow(values_of(words, column.type), None if null is None else ~null, column.type)

    def _computed(self, output: OutputColumn, cut: dict[str, np.ndarray], dtype: pa.DataType) -> pa.Array:
        values, valid = cut[output.values], None if output.valid is None else cut[output.valid]
        if output.text is None:
            return to_arrow(values, valid, dtype)
        codes = values if valid is None else np.where(valid != 0, values, -1)
        return self.interners[output.text].decode(codes, dtype)


@dataclass(frozen=True, eq=False)
class PaneDeparture:
    """Complete windows that are to be emitted while later rows are folded into the same table."""

    emission: Emission
    ahead: int  # the earliest time of later results

    def emit(self) -> list[TimedBatch]:
        """Compute the results, in any thread."""
        return [TimedBatch(batch, counted=True) for batch in self.emission.batches(1)]


# With fewer cells, threads that emit windows spend more time on the interpreter lock than in kernels.
CELLS_WORTH_THREADS = 1 << 18


def is_cheap_to_merge(workers: list[Worker]) -> bool:
    """Whether merging all tables is cheaper than emitting from several: same columns, and few cells."""
    first, *others = workers
    for other in others:
        if not first.same_columns(other):
            return False
    return sum([worker.cells for worker in workers]) < CELLS_WORTH_THREADS


def disjoint(workers: list[Worker]) -> list[Worker]:
    """Make each pane belong to one worker: the first that holds it merges the panes of the others."""
    for place, worker in enumerate(workers):
        for other in workers[place + 1 :]:
            assert worker.table is not None and other.table is not None
            shared = np.isin(other.table.panes[: other.slots], worker.table.panes[: worker.slots])
            if shared.any():
                worker.merge_slots(other, np.flatnonzero(shared).tolist())
                other.table.drop(shared)
    return [worker for worker in workers if worker.slots]


def runs_of(workers: list[Worker]) -> list[tuple[Worker, int]]:
    """The workers in pane order: (worker, the last pane before another worker's)."""
    held = [worker.table.panes[: worker.slots] for worker in workers if worker.table is not None]
    panes = np.concatenate(held)
    owners = np.repeat(np.arange(len(held)), [len(held_panes) for held_panes in held])
    order = np.argsort(panes)
    panes, owners = panes[order], owners[order]
    ends = np.append(np.flatnonzero(np.diff(owners)), len(owners) - 1)
    return [(workers[owners[end]], int(panes[end])) for end in ends]


def copy_overlap(runs: list[tuple[Worker, int]], reach: int) -> dict[int, int] | None:
    """Copy to each worker the panes up to `reach` after its runs, unless those are more than half of all panes.

    Return the number of slots of each worker before the copy, by worker id; None if nothing was copied.
    """
    workers = list({id(worker): worker for worker, _ in runs}.values())
    held = {id(worker): worker.slots for worker in workers}
    copied = [
        (worker, other, _behind([last for owner, last in runs[:-1] if owner is worker], other, reach))
        for worker in workers
        for other in workers
        if other is not worker
    ]
    if 2 * sum(len(slots) for _, _, slots in copied) > sum(held.values()):
        return None
    for worker, other, slots in copied:
        if len(slots):
            worker.copy_panes(other, slots)
    return held


def _behind(ends: list[int], other: Worker, reach: int) -> list[int]:
    """The slots of another worker's panes that lie up to `reach` after any of the ends."""
    assert other.table is not None
    panes = other.table.panes[: other.slots]
    near = np.zeros(len(panes), bool)
    for end in ends:
        near |= (panes > end) & (panes - end <= reach)
    found: list[int] = np.flatnonzero(near).tolist()
    return found
