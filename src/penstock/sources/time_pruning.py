"""Avoid reading times: if all times of a row group lie in one step of a query's windows, one time represents them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.sources import parquet_footers
from penstock.sources.parquet_decode import WORTH_ALONE, starts_of, stretch_of
from penstock.sources.parquet_pages import Page, Ticks, pages_of, values_of
from penstock.sources.value_ranges import Range
from penstock.types.arrow import kind_of
from penstock.types.windows import Steps

_WIDTH = 8
_KINDS = ("int", "timestamp")
# If more than this share of a row group's rows lies in pages that must be read, the whole group is decoded as usual.
MOST_UNKNOWN = 0.25


@dataclass(frozen=True, slots=True)
class OneTime:
    """A constant time column that is known without reading, in the ticks of its type."""

    name: str
    type: pa.DataType
    tick: int
    _made: list[pa.Array] = field(default_factory=list, compare=False, repr=False)

    def added(self, batch: pa.RecordBatch, start: int = 0) -> pa.RecordBatch:
        """Append the column to a batch; consumers find columns by name."""
        del start  # the column is constant
        column = self._column(batch.num_rows)
        return pa.RecordBatch.from_arrays([*batch.columns, column], [*batch.schema.names, self.name])

    def _column(self, rows: int) -> pa.Array:
        """Return the column for a number of rows. Batches share one array, which stays in the processor's cache."""
        if not self._made or len(self._made[0]) < rows:
            # Arrow's pool reuses touched pages: fresh ones cost more than the values written to them.
            room = pa.allocate_buffer(rows * self.type.bit_width // 8)
            sign = "u" if pa.types.is_unsigned_integer(self.type) else "i"
            np.frombuffer(room, f"{sign}{self.type.bit_width // 8}").fill(self.tick)
            self._made[:] = [pa.Array.from_buffers(self.type, rows, [None, room])]
        return self._made[0].slice(0, rows)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows `begin` to `end` of a file that one time represents, or a page whose times must be read."""

    begin: int
    end: int
    tick: int
    page: Page | None


@dataclass(frozen=True, slots=True)
class PagedTimes:
    """A time column of some row groups that is known except for a few pages, in the ticks of its type."""

    name: str
    type: pa.DataType
    stretches: Sequence[Stretch]
    read: Callable[[Stretch], Ticks]

    def added(self, batch: pa.RecordBatch, start: int) -> pa.RecordBatch:
        """Append the column to a batch whose first row has the number `start` in the file."""
        room = pa.allocate_buffer(batch.num_rows * _WIDTH)
        ticks = np.frombuffer(room, np.int64)
        at = bisect_right(self.stretches, start, key=lambda stretch: stretch.end)
        while at < len(self.stretches) and self.stretches[at].begin < start + batch.num_rows:
            stretch, at = self.stretches[at], at + 1
            begin, end = max(stretch.begin, start), min(stretch.end, start + batch.num_rows)
            found = (
                stretch.tick
                if stretch.page is None
                else self.read(stretch)[begin - stretch.begin : end - stretch.begin]
            )
            ticks[begin - start : end - start] = found
        column = pa.Array.from_buffers(self.type, batch.num_rows, [None, room])
        return pa.RecordBatch.from_arrays([*batch.columns, column], [*batch.schema.names, self.name])


Times = OneTime | PagedTimes


def in_steps(
    numbers: Sequence[int],
    metadata: Any,
    schema: pa.Schema,
    columns: Sequence[str],
    names: Mapping[str, str],
    steps: Steps | None,
    path: str | None = None,
) -> Iterator[tuple[list[int], Times | None]]:
    """Cut row groups into runs whose times lie in one step, each with its time column, and other runs without one.

    At least one column must be read to count rows, so a query that reads only times reads them. The representative is the
    latest time of a run, so the watermark stays exact. If `path` is given, page headers are read for row groups that do not
    lie in one step.
    """
    if steps is None or steps.column not in columns or len(columns) < 2:
        yield list(numbers), None
        return
    field = schema.field(steps.column)
    leaves = parquet_footers.leaves(metadata, schema, {field.name: names.get(field.name, field.name)})
    found = {number: parquet_footers.ranges(metadata, number, leaves).get(field.name) for number in numbers}
    paged = None if path is None else Paged.of(path, metadata, field, leaves.get(field.name), steps)
    for step, run in groupby(numbers, key=lambda number: _step(found[number], steps)):
        held = list(run)
        if step is not None:
            yield held, OneTime(field.name, field.type, max(_high(found[number]) for number in held))
        elif paged is None:
            yield held, None
        else:
            yield from paged.runs(held)


@dataclass(frozen=True, slots=True)
class Paged:
    """A time column of a file whose page headers may contain time ranges."""

    path: str
    metadata: Any
    field: pa.Field
    leaf: int
    steps: Steps

    @staticmethod
    def of(
        path: str,
        metadata: Any,
        field: pa.Field,
        leaf: tuple[int | None, pa.DataType, pa.DataType] | None,
        steps: Steps,
    ) -> Paged | None:
        """Create the reader; None unless the column is stored in its declared type."""
        if leaf is None or leaf[0] is None or leaf[1] != leaf[2] or kind_of(leaf[1]) not in _KINDS:
            return None
        return Paged(path, metadata, field, leaf[0], steps)

    def runs(self, numbers: Sequence[int]) -> Iterator[tuple[list[int], PagedTimes | None]]:
        """Cut row groups into runs whose page headers give nearly all times, and others."""
        starts = starts_of(self.metadata)
        reported = {number: self._stretches(number, starts[number]) for number in numbers}
        for known, run in groupby(numbers, key=lambda number: reported[number] is not None):
            held = list(run)
            stretches = [stretch for number in held for stretch in reported[number] or ()]
            yield (
                held,
                PagedTimes(self.field.name, self.field.type, stretches, self._times) if known else None,
            )

    def _stretches(self, number: int, start: int) -> list[Stretch] | None:
        group = self.metadata.row_group(number)
        pages = pages_of(self.path, group, self.leaf) if group.num_rows >= WORTH_ALONE else None
        if pages is None:
            return None
        starts = accumulate((page.rows for page in pages), initial=start)
        found = [self._stretch(page, begin) for page, begin in zip(pages, starts, strict=False)]
        unknown = sum(stretch.end - stretch.begin for stretch in found if stretch.page is not None)
        return found if unknown <= MOST_UNKNOWN * group.num_rows else None

    def _stretch(self, page: Page, begin: int) -> Stretch:
        known = self.steps.number(page.low) == self.steps.number(page.high)
        return Stretch(begin, begin + page.rows, page.high, None if known else page)

    def _times(self, stretch: Stretch) -> Ticks:
        """Read a page directly, or else read its rows with a full Parquet reader."""
        assert stretch.page is not None
        found = values_of(self.path, stretch.page)
        if found is not None:
            return found
        name = self.metadata.schema.column(self.leaf).path
        read = stretch_of(self.path, self.metadata, name, stretch.begin, stretch.end)
        return np.frombuffer(read.buffers()[1], np.int64, len(read), read.offset * _WIDTH)


def _high(times: Range | None) -> int:
    assert times is not None
    assert isinstance(times.high, int)
    return times.high


def _step(times: Range | None, steps: Steps) -> int | None:
    """Return the number of the step that contains all times; None if there is none, or if it is unknown."""
    match times:
        case Range(low=int(low), high=int(high), nulls=False) if steps.number(low) == steps.number(high):
            return steps.number(low)
        case _:
            return None
