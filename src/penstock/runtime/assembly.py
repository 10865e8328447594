"""From panes to windows: which windows exist, which are complete, and their results as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial

import numpy as np
import pyarrow as pa

from penstock.errors import OverflowError
from penstock.loop.abi import ERRORS, OUTPUT, WORDS, Output, numbered, positions_table
from penstock.runtime.buffers import filled, rooms, stored_type, time_array, to_arrow
from penstock.runtime.flow import FOREVER, NEVER
from penstock.runtime.keys import HashKeys
from penstock.runtime.programs import Grid, OutputCall, ResultColumn
from penstock.runtime.threads import run_on_threads
from penstock.runtime.words import values_of
from penstock.runtime.worker import OVERFLOW, Worker

MOST_ROWS = 1 << 20
FEW_ROWS = 1 << 17  # for so many there is room without counting them
# Fewer results than this are not worth a thread of their own (nor the merging of its first window).
CELLS_PER_THREAD = 1 << 16
FEW_PANES = 256
_NUMBERS = np.arange(FEW_PANES)


@dataclass(frozen=True)
class Windows:
    """Arithmetic of windows on a grid. Window n covers panes n * step … n * step + span - 1.

    Panes lie between the bounds of windows: one to each slide, or two where windows end between the starts of
    others. The second belongs to no window where windows are shorter than the slide.
    """

    grid: Grid

    @cached_property
    def step(self) -> int:
        return 2 if self.grid.size % self.grid.every else 1

    @cached_property
    def span(self) -> int:
        whole, rest = divmod(self.grid.size, self.grid.every)
        return 2 * whole + 1 if rest else whole

    def last_complete(self, watermark: int) -> int:
        """The last window that ends at or before a watermark."""
        if watermark >= FOREVER:
            return FOREVER
        if watermark <= NEVER:
            return NEVER
        return (watermark - self.grid.offset - self.grid.size) // self.grid.every

    def last_holding(self, times: np.ndarray) -> np.ndarray:
        """The last window that starts at or before each time."""
        found: np.ndarray = np.floor_divide(times - self.grid.offset, self.grid.every)
        return found

    def holds(self, times: np.ndarray) -> np.ndarray:
        """Whether any window holds each time: not so in the gaps between windows shorter than the slide."""
        inside = (times - self.grid.offset) - self.last_holding(times) * self.grid.every
        held: np.ndarray = inside < self.grid.size
        return held

    def holds_panes(self, panes: np.ndarray) -> np.ndarray:
        """Whether any window holds each pane."""
        held: np.ndarray = panes % self.step < self.span
        return held

    def first_holding(self, times: np.ndarray) -> np.ndarray:
        """The first window that ends after each time."""
        found: np.ndarray = np.floor_divide(times - self.grid.offset - self.grid.size, self.grid.every) + 1
        return found

    def complete_at(self, frontier: np.ndarray) -> np.ndarray:
        """The last window complete at each watermark."""
        never = frontier <= NEVER + self.grid.size + abs(self.grid.offset)
        return np.where(
            never, NEVER, np.floor_divide(frontier - self.grid.offset - self.grid.size, self.grid.every)
        )

    def late(self, times: np.ndarray, frontier: np.ndarray) -> np.ndarray:
        """Which rows came when every window that holds them had been complete."""
        late: np.ndarray = (self.last_holding(times) <= self.complete_at(frontier)) & self.holds(times)
        return late

    def holding(self, panes: np.ndarray, after: int, upto: int) -> tuple[np.ndarray, np.ndarray]:
        """The first and last window, after `after` up to `upto`, that holds each pane (none: last < first)."""
        low = np.maximum((panes - self.span) // self.step + 1, after + 1 if after > NEVER else NEVER)
        return low, np.minimum(panes // self.step, upto)

    def bounds(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The panes at which windows start, are cut, and end (see lower/emission/merging.py for the cut)."""
        start = numbers * self.step
        return start, (start // self.span + 1) * self.span, start + self.span

    def finished(self, panes: np.ndarray, upto: int) -> np.ndarray:
        """Which panes no window after `upto` will need."""
        return panes // self.step <= upto

    def next_result(self, upto: int) -> int:
        """The earliest time a result after window `upto` can have."""
        if upto in (NEVER, FOREVER):
            return upto
        return self.grid.offset + (upto + 1) * self.grid.every + self.grid.size - 1


@dataclass(frozen=True)
class Frames:
    """Windows as ranges of panes: frame f is window numbers[f], `order` lists the slots of its panes.

    They are those from first[f] up to last[f]; cuts[f] lies between. `overlapping`: a window has several panes.
    """

    numbers: np.ndarray
    order: np.ndarray
    first: np.ndarray
    cuts: np.ndarray
    last: np.ndarray
    overlapping: bool
    ascending: bool = True  # so are the numbers, but for those of one key after another's

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the largest number."""
        if self.ascending:
            return int(self.numbers[0]), int(self.numbers[-1])
        return int(self.numbers.min()), int(self.numbers.max())


@lru_cache(maxsize=64)
def windows_on(grid: Grid) -> Windows:
    """The windows of a grid: every run of a query asks again."""
    return Windows(grid)


def frames_of_panes(windows: Windows, panes: np.ndarray, after: int, upto: int) -> Frames:
    """Windows over the slots of a grid."""
    panes, order = _in_order(panes)
    if windows.span == windows.step == 1:  # each pane is a window
        chosen = _count(len(panes))
        if after > NEVER or upto < FOREVER:
            chosen = chosen[(panes > after) & (panes <= upto)]
            panes = panes[chosen]
        ends = chosen + 1
        return Frames(panes, order, chosen, ends, ends, overlapping=False)
    low, high = windows.holding(panes, after, upto)
    _, numbers = _first_held(low, high, np.zeros(len(panes), np.int64))
    first, cuts, last = (np.searchsorted(panes, bound) for bound in windows.bounds(numbers))
    return Frames(numbers, order, first, cuts, last, _overlapping(first, last))


def _in_order(panes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Panes in order, and their slots. Few that rows in order have left in order are soon seen to be."""
    if len(panes) <= FEW_PANES:
        numbers = panes.tolist()
        if numbers == sorted(numbers):
            return panes, _count(len(panes))
    order = panes.argsort(kind="stable")
    return panes[order], order


def _count(upto: int) -> np.ndarray:
    """Numbers from 0 up, not to be written to."""
    return _NUMBERS[:upto] if upto <= FEW_PANES else np.arange(upto)


def frames_of_pairs(windows: Windows, keys: HashKeys, after: int, upto: int) -> Frames:
    """Windows of single keys over the pairs of a sparse table, in order of keys where several pairs make one."""
    panes, *words = (each[: keys.count] for each in keys.words)
    by_key = [] if windows.span == 1 else [keys.nulls[: keys.count] >> 1, *words]
    order = np.lexsort([panes, *by_key])
    panes, lane = panes[order], _lanes([each[order] for each in by_key], len(order))
    low, high = windows.holding(panes, after, upto)
    if windows.span == 1:  # each pair is a window of its own, whatever its key
        chosen = np.flatnonzero(low <= high)
        ends = chosen + 1
        return Frames(low[chosen], order, chosen, ends, ends, overlapping=False)
    first, numbers = _first_held(low, high, lane)
    known = np.unique(panes)
    rank = lane * (len(known) + 1) + np.searchsorted(known, panes)
    _, cut, end = (
        lane[first] * (len(known) + 1) + np.searchsorted(known, b) for b in windows.bounds(numbers)
    )
    cuts, last = np.searchsorted(rank, cut), np.searchsorted(rank, end)
    return Frames(numbers, order, first, cuts, last, _overlapping(first, last), ascending=False)


def _overlapping(first: np.ndarray, last: np.ndarray) -> bool:
    return bool((last - first > 1).any())


def _lanes(columns: list[np.ndarray], length: int) -> np.ndarray:
    """Number the runs of rows that are equal in all columns."""
    changes = np.zeros(length, bool)
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    return np.cumsum(changes)


def _first_held(low: np.ndarray, high: np.ndarray, lane: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All windows of the ranges low[i] … high[i], each once in a lane, beside the first i that it is in.

    In a lane both bounds ascend.
    """
    again = lane[1:] == lane[:-1]
    low[1:] = np.where(again, np.maximum(low[1:], high[:-1] + 1), low[1:])
    counts = np.where(low <= high, high - low + 1, 0)  # bounds far apart may wrap, the wrong way round
    first = np.repeat(np.arange(len(low)), counts)
    return first, low[first] + np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)


def emit(
    worker: Worker, windows: Windows, after: int, upto: int, threads: int = 1
) -> Iterator[pa.RecordBatch]:
    """Give the results of complete windows, ordered by their ends."""
    table, slots = worker.table, worker.slots
    if table is None or slots == 0:
        return
    if isinstance(table.keys, HashKeys) and table.keys.sparse:
        frames = frames_of_pairs(windows, table.keys, after, upto)
    else:
        frames = frames_of_panes(windows, table.panes[:slots], after, upto)
    if len(frames):
        yield from _Emission(worker, windows, frames).batches(threads)


def _check_bounds(grid: Grid, least: int, most: int, dtype: pa.DataType) -> None:
    """Refuse windows, by their least and largest number, whose bounds the time column's type cannot hold."""
    low, high = _limits(stored_type(dtype))
    if grid.offset + least * grid.every < low or grid.offset + most * grid.every + grid.size > high:
        raise OverflowError(
            f"the bounds of a window do not fit the time column's type {dtype}; cast it to a wider one"
        )


@cache
def _limits(dtype: np.dtype) -> tuple[int, int]:
    limits = np.iinfo(dtype)
    return limits.min, limits.max


class _Emission:
    """One pass of the emit kernel over some windows, as many calls as the output needs."""

    def __init__(self, worker: Worker, windows: Windows, frames: Frames) -> None:
        assert worker.table is not None
        self.worker, self.table, self.program = worker, worker.table, worker.program
        self.frames, self.span = frames, windows.span
        _check_bounds(windows.grid, *frames.limits, self.program.time.type)
        self.kernel: OutputCall = self.program.emit(worker.variant, frames.overlapping)
        self.nullable = self.program.key_may_be_null(worker.nullable)
        sparse = self.table.sparse
        self.by_key = sparse and windows.span > 1
        self.columns = 1 if sparse else self.table.keys.columns
        self.arguments = {
            **self.table.arguments(),
            **worker.arenas(self.kernel.bindings),
            "order": frames.order,
            "first": frames.first,
            "cuts": frames.cuts,
            "last": frames.last,
            "positions": positions_table(),
            "numbers": frames.numbers,
        }

    def batches(self, threads: int) -> Iterator[pa.RecordBatch]:
        """The results of all windows; large parts of them side by side."""
        many = len(self.frames)
        if self.by_key:
            yield from self._some(0, many, many)
            return
        parts = self._parts(many, threads)
        if parts == 1:
            yield from self._some(0, many, self._capacity(0, many))
            return
        bounds = [many * place // parts for place in range(parts + 1)]
        found: list[list[pa.RecordBatch]] = [[] for _ in bounds[1:]]

        def work(place: int) -> None:
            low, high = bounds[place : place + 2]
            found[place] = list(self._some(low, high, self._capacity(low, high)))

        run_on_threads([partial(work, place) for place in range(len(found))])
        yield from (batch for batches in found for batch in batches)

    def _parts(self, many: int, threads: int) -> int:
        """How many parts to make of so many windows: each merges its first one, pane by pane, once more."""
        least = max(CELLS_PER_THREAD // self.columns, self.span)
        return min(threads, max(many // least, 1))

    def _some(self, lo: int, hi: int, capacity: int) -> Iterator[pa.RecordBatch]:
        head = np.zeros(WORDS, np.int64)
        arguments = {**self.arguments, **self._scratch(lo, hi), "head": head, "capacity": capacity}
        while lo < hi:
            outputs = self._outputs(capacity)
            lo = self.kernel.call({**arguments, **outputs, "lo": lo, "hi": hi})
            if head[ERRORS]:
                raise OverflowError(OVERFLOW)
            if head[OUTPUT]:
                yield self._batch(self._cut(outputs, int(head[OUTPUT])))

    def _scratch(self, lo: int, hi: int) -> dict[str, object]:
        """Memory for the windows from lo up to hi, as no pane of theirs has been merged yet."""
        if not self.kernel.scratch:
            return {}
        rows: dict[str, object] = {"cursor": np.array([0, -1, 0, 0])}
        deepest = int((self.frames.cuts - self.frames.first)[lo:hi].max()) + 1
        for each in self.kernel.scratch:
            rows[each.parameter] = filled(each.type, 0, (deepest if each.deep else 1) * self.columns)
        return rows

    def _capacity(self, lo: int, hi: int) -> int:
        """Room for whole windows: enough for all if each is one pane, else up to MOST_ROWS at a time."""
        frames, columns = self.frames, self.columns
        if not frames.overlapping and (hi - lo) * columns > FEW_ROWS:
            slots = frames.order[frames.first[lo:hi]]
            low, high = np.minimum.reduce(slots), np.maximum.reduce(slots) + 1
            cells = self.table.states[0][low * columns : high * columns]
            return min(int(np.count_nonzero(cells)), len(slots) * columns) + columns
        return min((hi - lo) * columns, max(MOST_ROWS, columns)) + columns

    def _outputs(self, capacity: int) -> dict[str, np.ndarray]:
        written = self.kernel.written
        found = rooms([(capacity, dtype) for _, dtype in written])
        return {name: array for (name, _), array in zip(written, found, strict=True)}

    def _cut(self, outputs: dict[str, np.ndarray], rows: int) -> dict[str, np.ndarray]:
        """The rows that were written; in order of time, where they were written key by key."""
        cut = {name: array[:rows] for name, array in outputs.items()}
        if not self.by_key:
            return cut
        order = np.argsort(cut[numbered("out_bound", 0)], kind="stable")
        return {name: array[order] for name, array in cut.items()}

    def _batch(self, cut: dict[str, np.ndarray]) -> pa.RecordBatch:
        computed = {each.name: each for each in self.kernel.outputs}
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
        """Read a key back from its words."""
        key, words = self.program.keys[column.key], cut[numbered("out_word", column.key)]
        null = ((cut["out_nulls"] >> column.key) & 1) != 0 if self.nullable else None
        if key.text:
            assert key.column is not None
            codes = words if null is None else np.where(null, -1, words)
            return self.worker.interners[key.column].decode(codes, column.type)
        return to_arrow(values_of(words, column.type), None if null is None else ~null, column.type)

    def _computed(self, output: Output, cut: dict[str, np.ndarray], dtype: pa.DataType) -> pa.Array:
        values, valid = cut[output.values], None if output.valid is None else cut[output.valid]
        if output.text is None:
            return to_arrow(values, valid, dtype)
        codes = values if valid is None else np.where(valid != 0, values, -1)
        return self.worker.interners[output.text].decode(codes, dtype)
