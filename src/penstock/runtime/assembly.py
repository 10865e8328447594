"""From panes to windows: which windows exist, which are complete, and their results as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.errors import OverflowError
from penstock.loop.abi import ERRORS, OUTPUT, numbered
from penstock.runtime.buffers import filled, numpy_type, time_array, to_arrow
from penstock.runtime.flow import FOREVER, NEVER
from penstock.runtime.keys import HashKeys
from penstock.runtime.programs import Grid, OutputCall, OutputColumn, ResultColumn
from penstock.runtime.worker import OVERFLOW, Worker

MOST_ROWS = 1 << 20


@dataclass(frozen=True)
class Windows:
    """Arithmetic of windows on a grid. Window n covers panes n * step … n * step + span - 1."""

    grid: Grid

    @property
    def step(self) -> int:
        return self.grid.every // self.grid.width

    @property
    def span(self) -> int:
        return self.grid.size // self.grid.width

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

    def of_panes(self, panes: np.ndarray, after: int, upto: int) -> np.ndarray:
        """The windows after `after` up to `upto` that hold at least one of the sorted panes."""
        low = np.maximum((panes - self.span) // self.step + 1, after + 1 if after > NEVER else NEVER)
        high = np.minimum(panes // self.step, upto)
        return _union_of_ranges(low, high)

    def pairs(self, panes: np.ndarray, after: int, upto: int) -> tuple[np.ndarray, np.ndarray]:
        """Every (place in `panes`, window) such that the window, after `after` up to `upto`, holds the pane."""
        low = np.maximum((panes - self.span) // self.step + 1, after + 1 if after > NEVER else NEVER)
        high = np.minimum(panes // self.step, upto)
        counts = np.maximum(high - low + 1, 0)
        place = np.repeat(np.arange(len(panes)), counts)
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        return place, low[place] + within

    def finished(self, panes: np.ndarray, upto: int) -> np.ndarray:
        """Which panes no window after `upto` will need."""
        return panes // self.step <= upto

    def next_result(self, upto: int) -> int:
        """The earliest time a result after window `upto` can have."""
        if upto in (NEVER, FOREVER):
            return upto
        return self.grid.offset + (upto + 1) * self.grid.every + self.grid.size - 1


def _union_of_ranges(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """All integers in any of the ranges low[i] … high[i], whose bounds ascend."""
    some = high >= low
    low, high = low[some], high[some]
    if len(low) == 0:
        return np.zeros(0, np.int64)
    low = np.maximum(low, np.concatenate([[low[0]], np.maximum.accumulate(high)[:-1] + 1]))
    counts = np.maximum(high - low + 1, 0)
    starts = np.repeat(low - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
    return starts + np.arange(int(counts.sum()))


def emit(worker: Worker, windows: Windows, after: int, upto: int) -> Iterator[pa.RecordBatch]:
    """Give the results of complete windows, ordered by their ends."""
    table = worker.table
    if table is None or table.slots == 0:
        return
    if table.sparse:
        yield from _emit_sparse(worker, windows, after, upto)
        return
    panes = table.panes[: table.slots]
    order = np.argsort(panes, kind="stable")
    numbers = windows.of_panes(panes[order], after, upto)
    if len(numbers) == 0:
        return
    first = np.searchsorted(panes[order], numbers * windows.step)
    last = np.searchsorted(panes[order], numbers * windows.step + windows.span)
    yield from _Emission(worker, windows, numbers, order, first, last).batches()


def _emit_sparse(worker: Worker, windows: Windows, after: int, upto: int) -> Iterator[pa.RecordBatch]:
    """Give the results of pairs (pane, key): pairs of windows and keys first, where a window has several panes."""
    if windows.span > 1 or windows.step > 1:
        worker = worker.over_windows(lambda panes: windows.pairs(panes, after, upto))
    table = worker.table
    assert table is not None and isinstance(table.keys, HashKeys)
    window = table.keys.words[0][: table.keys.count]
    chosen = np.flatnonzero((window > after) & (window <= upto))
    if len(chosen) == 0:
        return
    numbers, place = np.unique(window[chosen], return_inverse=True)
    order = np.argsort(place, kind="stable")
    yield from _Emission(worker, windows, numbers, chosen[order], place[order], place[order]).batches()


def _check_bounds(grid: Grid, numbers: np.ndarray, dtype: pa.DataType) -> None:
    """Refuse windows whose bounds the time column's type cannot hold."""
    least, most = (
        grid.offset + int(numbers[0]) * grid.every,
        grid.offset + int(numbers[-1]) * grid.every + grid.size,
    )
    signed = not pa.types.is_unsigned_integer(dtype)
    low, high = (
        (-(1 << (dtype.bit_width - 1)), (1 << (dtype.bit_width - 1)) - 1)
        if signed
        else (0, (1 << dtype.bit_width) - 1)
    )
    if least < low or most > high:
        raise OverflowError(
            f"the bounds of a window do not fit the time column's type {dtype}; cast it to a wider one"
        )


class _Emission:
    """One pass of the emit kernel over some windows, as many calls as the output needs."""

    def __init__(
        self,
        worker: Worker,
        windows: Windows,
        numbers: np.ndarray,
        order: np.ndarray,
        first: np.ndarray,
        last: np.ndarray,
    ) -> None:
        assert worker.table is not None
        self.worker, self.table, self.program = worker, worker.table, worker.program
        self.order, self.first, self.last = (each.astype(np.int64) for each in (order, first, last))
        _check_bounds(windows.grid, numbers, self.program.time.type)
        self.starts = windows.grid.offset + numbers * windows.grid.every
        self.ends = self.starts + windows.grid.size
        self.several = not self.table.sparse and bool((self.last - self.first > 1).any())
        self.kernel: OutputCall = self.program.emit(worker.variant, self.several)
        self.nullable = self.program.key_may_be_null(worker.nullable)

    def batches(self) -> Iterator[pa.RecordBatch]:
        texts = self.worker.arenas(self.kernel.bindings)
        arguments = {**self.table.arguments(), **self._scratch(), **texts}
        capacity = self._capacity()
        done, total = 0, len(self.first)
        while done < total:
            outputs = self._outputs(capacity)
            limits = {"lo": done, "hi": total, "capacity": capacity}
            done = self.kernel.call({**arguments, **self._windows(), **outputs, **limits})
            if self.table.head[ERRORS]:
                raise OverflowError(OVERFLOW)
            rows = int(self.table.head[OUTPUT])
            if rows:
                yield self._batch(outputs, rows)

    def _windows(self) -> dict[str, object]:
        return {
            "order": self.order,
            "first": self.first,
            "last": self.last,
            "starts": self.starts,
            "ends": self.ends,
        }

    def _scratch(self) -> dict[str, object]:
        if not self.several:
            return {}
        specs = self.program.layout(self.worker.nullable, True)
        return {
            numbered("merged", place): filled(spec.type, 0, self.table.keys.columns)
            for place, spec in enumerate(specs)
        }

    def _capacity(self) -> int:
        """Room for whole windows: exactly enough if each is one pane, else up to MOST_ROWS at a time."""
        columns = self.table.keys.columns
        if self.table.sparse:
            return len(self.order)
        if not self.several:
            return self.table.rows_in(self.order[self.first]) + columns
        return min(len(self.first) * columns, max(MOST_ROWS, columns)) + columns

    def _outputs(self, capacity: int) -> dict[str, np.ndarray]:
        names = [numbered("out_word", place) for place in range(len(self.program.keys))]
        names += ["out_nulls"] if self.nullable else []
        names += [] if self.program.carried else [numbered("out_bound", place) for place in range(2)]
        outputs = {name: np.empty(capacity, np.int64) for name in names}
        for each in self.kernel.outputs:
            outputs[each.values] = np.empty(capacity, numpy_type(each.type))
            if each.valid is not None:
                outputs[each.valid] = np.empty(capacity, np.uint8)
        return outputs

    def _batch(self, outputs: dict[str, np.ndarray], rows: int) -> pa.RecordBatch:
        cut = {name: array[:rows] for name, array in outputs.items()}
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
        return to_arrow(_from_words(words, column.type), None if null is None else ~null, column.type)

    def _computed(self, output: OutputColumn, cut: dict[str, np.ndarray], dtype: pa.DataType) -> pa.Array:
        values, valid = cut[output.values], None if output.valid is None else cut[output.valid]
        if output.text is None:
            return to_arrow(values, valid, dtype)
        codes = values if valid is None else np.where(valid != 0, values, -1)
        return self.worker.interners[output.text].decode(codes, dtype)


def _from_words(words: np.ndarray, dtype: pa.DataType) -> np.ndarray:
    if pa.types.is_floating(dtype):
        values = np.ascontiguousarray(words).view(np.float64)
        return values.astype(np.float32) if dtype.bit_width == 32 else values
    if pa.types.is_boolean(dtype):
        return words.astype(np.uint8)
    kind = "u" if pa.types.is_unsigned_integer(dtype) else "i"
    return np.ascontiguousarray(words.astype(f"{kind}{dtype.bit_width // 8}", copy=False))
