"""Avoid reading times: if all times of a row group lie in one step of a query's windows, one time represents them."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.sources import parquet_footers
from penstock.sources.parquet_decode import WORTH_ALONE, starts_of, stretch_of
from penstock.sources.value_ranges import Range
from penstock.types.arrow import kind_of
from penstock.types.windows import Steps

# --- Read the row counts and value ranges of a Parquet column's pages from the page headers.
#
# A header precedes its page, in Thrift's compact protocol. The functions return None for anything unexpected: a full
# Parquet reader then reads the whole column.

Ticks = npt.NDArray[np.int64]

_CODECS = {"UNCOMPRESSED": None, "SNAPPY": "snappy", "ZSTD": "zstd"}
_PAGE_WIDTH = 8
_LONGEST = 512  # bytes of a header of numbers; about seventy are usual
_DEEPEST = 3

# Field numbers and enum values of parquet.thrift.
_KIND, _PLAIN_SIZE, _STORED_SIZE, _FIRST_FORM, _SECOND_FORM = 1, 2, 3, 5, 8
_FIRST, _DICTIONARY, _SECOND = 0, 2, 3
_VALUES, _ENCODING = 1, 2
_STATISTICS = {_FIRST_FORM: 5, _SECOND_FORM: 8}
_NULLS, _HIGH, _LOW, _HIGH_EXACT = 3, 5, 6, 7
_PLAIN = 0

# Types of Thrift's compact protocol.
_TRUE, _FALSE, _BINARY, _STRUCT = 1, 2, 8, 12
_NUMBERS = (4, 5, 6)
_NEXT = 16  # a field header holds the distance from the previous field number, then the type
_MORE = 128  # a byte from this value on is followed by another of the same number

Struct = Mapping[int, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """Rows of a column without nulls, between two values. `body` is their byte range if they are plain-encoded."""

    rows: int
    low: int
    high: int
    body: tuple[int, int] | None
    size: int
    codec: str


def pages_of(path: str, group: Any, leaf: int) -> list[Page] | None:
    """Return the pages of a row group's 64-bit integer column; None if the headers are incomplete."""
    chunk = group.column(leaf)
    if chunk.physical_type != "INT64" or chunk.compression not in _CODECS:
        return None
    try:
        found = list(_pages(path, chunk))
    except (IndexError, KeyError, TypeError, ValueError, OSError):
        return None
    return found if sum(page.rows for page in found) == group.num_rows else None


def _pages(path: str, chunk: Any) -> Iterator[Page]:
    begin = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
        begin = min(begin, chunk.dictionary_page_offset)
    # Read, not mapped: each header lies in another memory page, and each page fault has a cost.
    with Path(path).open("rb", buffering=0) as file:
        yield from _walked(file.fileno(), begin, begin + chunk.total_compressed_size, chunk.compression)


def _walked(file: int, at: int, end: int, codec: str) -> Iterator[Page]:
    while at < end:
        head, width = _struct(os.pread(file, _LONGEST, at), 0, 0)
        body, at = at + width, at + width + _size(head[_STORED_SIZE])
        if at > end:
            raise ValueError("a page ends behind its column")
        if head[_KIND] != _DICTIONARY:
            yield _page(head, (body, at), codec)


def _page(head: Struct, body: tuple[int, int], codec: str) -> Page:
    form = {_FIRST: _FIRST_FORM, _SECOND: _SECOND_FORM}[head[_KIND]]
    about = head[form]
    reported = about[_STATISTICS[form]]
    low, high = (_number(reported[name]) for name in (_LOW, _HIGH))
    if reported[_NULLS] != 0 or low > high or not reported.get(_HIGH_EXACT, True):
        raise ValueError("a page has no value range")
    plain = form == _FIRST_FORM and about[_ENCODING] == _PLAIN
    size = _size(head[_PLAIN_SIZE])
    return Page(_size(about[_VALUES]), low, high, body if plain else None, size, codec)


def values_of(path: str, page: Page) -> Ticks | None:
    """Read the values of a plain-encoded page; None if the page does not match its header."""
    if page.body is None or page.size > (_PAGE_WIDTH + 1) * page.rows + _LONGEST:
        return None
    begin, end = page.body
    try:
        with Path(path).open("rb", buffering=0) as file:
            stored = os.pread(file.fileno(), end - begin, begin)
        name = _CODECS[page.codec]
        whole = stored if name is None else pa.decompress(stored, page.size, codec=name)
    except (OSError, ValueError, pa.ArrowException):
        return None
    # Definition levels precede the values; no value is null.
    if len(whole) != page.size or page.size < page.rows * _PAGE_WIDTH:
        return None
    return np.frombuffer(whole, "<i8", page.rows, page.size - page.rows * _PAGE_WIDTH)


# --- Thrift -----------------------------------------------------------------------------------------------


def _struct(data: bytes, at: int, depth: int) -> tuple[Struct, int]:
    """Read a struct. Returns its fields by number and its end. This runs for every page, so common types are tested first."""
    if depth > _DEEPEST:
        raise ValueError("structs within structs")
    found: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        if head < _NEXT:
            raise ValueError("fields that are not in order")
        number += head >> 4
        kind = head & 15
        if kind in _NUMBERS:
            value, at = _varint(data, at + 1)
            found[number] = (value >> 1) ^ -(value & 1)
        elif kind == _BINARY:
            begin = at + 2 if data[at + 1] < _MORE else len(data)
            at = begin + data[at + 1]
            found[number] = data[begin:at]
        elif kind == _STRUCT:
            found[number], at = _struct(data, at + 1, depth + 1)
        elif kind in (_TRUE, _FALSE):
            found[number], at = kind == _TRUE, at + 1
        else:
            raise ValueError("a type that no header of a page has")
    return found, at + 1


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value, shift = data[at], 7
    if value < _MORE:
        return value, at + 1
    value &= _MORE - 1
    while (byte := data[at := at + 1]) >= _MORE:
        value |= (byte & (_MORE - 1)) << shift
        shift += 7
    return value | byte << shift, at + 1


def _number(raw: bytes) -> int:
    if len(raw) != _PAGE_WIDTH:
        raise ValueError("not 64 bits")
    return int.from_bytes(raw, "little", signed=True)


def _size(value: int) -> int:
    if value < 0:
        raise ValueError("less than nothing")
    return value


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
