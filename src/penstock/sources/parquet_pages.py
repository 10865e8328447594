"""Read the row counts and value ranges of a Parquet column's pages from the page headers.

A header precedes its page, in Thrift's compact protocol. The functions return None for anything unexpected: a full
Parquet reader then reads the whole column.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ticks = npt.NDArray[np.int64]

_CODECS = {"UNCOMPRESSED": None, "SNAPPY": "snappy", "ZSTD": "zstd"}
_WIDTH = 8
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
        raise ValueError("a page does not tell its values")
    plain = form == _FIRST_FORM and about[_ENCODING] == _PLAIN
    size = _size(head[_PLAIN_SIZE])
    return Page(_size(about[_VALUES]), low, high, body if plain else None, size, codec)


def values_of(path: str, page: Page) -> Ticks | None:
    """Read the values of a plain-encoded page; None if the page does not match its header."""
    if page.body is None or page.size > (_WIDTH + 1) * page.rows + _LONGEST:
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
    if len(whole) != page.size or page.size < page.rows * _WIDTH:
        return None
    return np.frombuffer(whole, "<i8", page.rows, page.size - page.rows * _WIDTH)


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
    if len(raw) != _WIDTH:
        raise ValueError("not 64 bits")
    return int.from_bytes(raw, "little", signed=True)


def _size(value: int) -> int:
    if value < 0:
        raise ValueError("less than nothing")
    return value
