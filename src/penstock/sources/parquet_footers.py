"""Read Parquet footers: the description of a file's row groups, before any row is read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from penstock.caches import CACHES, BoundedTable
from penstock.errors import SourceError
from penstock.expr.decimals import of_digits
from penstock.sources.footer_check import TYPE_NAMES, LeafColumn, checked_footer
from penstock.sources.fragment import Fragment
from penstock.sources.paths import FoundFile
from penstock.sources.thrift import DamagedError
from penstock.sources.value_ranges import Range
from penstock.storage.access import LOCAL, Access
from penstock.types.arrow import kind_of, member_type, tick_unit, value_type
from penstock.types.time import NANOSECONDS

MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_TAIL = 1 << 16  # bytes of the first read
_WIDEST = 16  # bytes of a decimal
_WHOLE = ("int", "date", "timestamp", "duration")


def open_parquet(path: str, metadata: Any = None, legacy_unit: str | None = None) -> Any:
    """Open a file and check its footer, unless the metadata is given. Threads read different row groups, never one together.

    Pages are read, not mapped: truncating a mapped file would terminate the process. 96-bit timestamps are read in
    `legacy_unit`, nanoseconds by default.
    """
    whole = str(Path(path).absolute())  # a relative path could be read as a URL: "s3:a.parquet"
    return parquet.ParquetFile(
        whole,
        metadata=footer(path) if metadata is None else metadata,
        memory_map=False,
        pre_buffer=False,
        coerce_int96_timestamp_unit=legacy_unit,
    )


class Footer:
    """The footer of a file, read on first use and cached."""

    def __init__(self, path: str, access: Access = LOCAL) -> None:
        self.path, self._access, self._lock = path, access, Lock()
        self._raw: bytes | None = None
        self._metadata: Any = None

    def get(self) -> Any:
        """Return the parsed footer."""
        with self._lock:
            if self._metadata is None:
                self._raw = footer_bytes(self.path, self._access)
                self._metadata = parsed(self.path, self._raw)
            return self._metadata

    @property
    def raw(self) -> bytes:
        """Return the bytes of the footer."""
        self.get()
        assert self._raw is not None
        return self._raw


def footer(path: str, access: Access = LOCAL) -> Any:
    """Read a file's footer after checking that Arrow can process it."""
    return parsed(path, footer_bytes(path, access))


def parsed(path: str, data: bytes) -> Any:
    """Parse the bytes of a footer after checking that Arrow can process them."""
    try:
        leaves = checked_footer(data)
    except DamagedError as reason:
        raise SourceError(
            f"the file {path!r} cannot be read: its footer is damaged: {reason}; write the file again, or leave it out"
        ) from None
    # Arrow parses the checked bytes, even if the file has changed since.
    metadata = parquet.read_metadata(pa.BufferReader(MAGIC + ending(data)))
    _check_agreement(path, metadata, leaves)
    return metadata


def ending(data: bytes) -> bytes:
    """Return the end of a file with a footer."""
    return b"".join([data, len(data).to_bytes(4, "little"), MAGIC])


def footer_bytes(path: str, access: Access = LOCAL) -> bytes:
    """Read the end of a file, mostly in one read."""
    if access.reaches(path):
        return _stored_footer_bytes(path, access)
    with Path(path).open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        tail = os.pread(file.fileno(), min(size, _TAIL), max(size - _TAIL, 0))
        length = _length(path, tail, size)
        if length + 8 > len(tail):
            tail = os.pread(file.fileno(), length + 8, size - length - 8)
    if len(tail) < length + 8:
        raise SourceError(f"the file {path!r} cannot be read: it has become shorter meanwhile")
    return tail[-length - 8 : -8]


def _stored_footer_bytes(path: str, access: Access) -> bytes:
    """Read the end of a file in a store: by one request, or by a second one for a large footer."""
    tail, size = access.tail(path, _TAIL)
    length = _length(path, bytes(tail[-8:]), size)
    if length + 8 > len(tail):
        tail = access.spans(path, [(size - length - 8, size)])[0]
    return bytes(tail[-length - 8 : -8])


def _length(path: str, tail: bytes, size: int) -> int:
    """Return the length of a footer from the end of its file."""
    length = int.from_bytes(tail[-8:-4], "little")
    if tail[-4:] != MAGIC or not 0 < length <= size - 12:
        raise SourceError(f"the file {path!r} cannot be read: {_no_parquet(tail)}")
    return length


def _no_parquet(tail: bytes) -> str:
    if tail[-4:] == _ENCRYPTED:
        return "it is encrypted, which this version cannot read; write it unencrypted"
    return "it does not end as Parquet files do: it is none, or was cut short"


def _check_agreement(path: str, metadata: Any, leaves: Sequence[LeafColumn]) -> None:
    """Check that Arrow parsed the same schema as the footer check."""
    schema = metadata.schema
    columns = [schema.column(place) for place in range(len(schema))]
    found = [
        (column.physical_type, column.max_repetition_level, column.max_definition_level) for column in columns
    ]
    same = found == [(TYPE_NAMES[leaf.type], leaf.repeated, leaf.optional) for leaf in leaves]
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    if not same or not all(group.num_rows >= 0 for group in groups):
        raise SourceError(
            f"the file {path!r} cannot be read: its footer is damaged; write the file again, or leave it out"
        )


@dataclass(frozen=True, slots=True)
class _Leaves:
    """The leaves of a footer: their places by path, None for a path that is not unique, and those of 96-bit timestamps."""

    metadata: Any
    places: Mapping[str, int | None]
    legacy: tuple[str, ...]


# By the identity of the footer, which each entry holds.
_LEAVES: BoundedTable[int, _Leaves] = CACHES.table(most=32)


def _leaves_of(metadata: Any) -> _Leaves:
    """Return the leaves of a footer, listed once: it may have thousands, of which a query reads a few."""
    known = _LEAVES.get(id(metadata))
    if known is not None:
        return known
    schema, places, legacy = metadata.schema, dict[str, int | None](), []
    for place in range(len(schema)):
        column = schema.column(place)
        path = column.path
        places[path] = None if path in places else place
        if column.physical_type == "INT96":
            legacy.append(path)
    return _LEAVES.keep(id(metadata), _Leaves(metadata, places, tuple(legacy)))


def leaves_under(metadata: Any, columns: Sequence[str]) -> list[int]:
    """Return the places of some columns, or of the leaves of structs among them."""
    known, found = _leaves_of(metadata).places, set[int]()
    for column in columns:
        place = known.get(column)
        if place is not None:
            found.add(place)
        else:
            schema = metadata.schema
            paths = (schema.column(number).path for number in range(len(schema)))
            found.update(at for at, path in enumerate(paths) if f"{path}.".startswith(f"{column}."))
    return sorted(found)


def declared_leaves(name: str, stored: pa.DataType, declared: pa.DataType) -> list[str]:
    """Name the parts of a struct that the declared type has; the column itself if it is no struct, or names hold dots.

    >>> place = pa.struct({"city": pa.string(), "at": pa.struct({"x": pa.int64(), "y": pa.int64()})})
    >>> declared_leaves("place", place, pa.struct({"at": pa.struct({"y": pa.int64()})}))
    ['place.at.y']
    """
    if stored == declared or not (pa.types.is_struct(stored) and pa.types.is_struct(declared)) or "." in name:
        return [name]
    parts: list[str] = []
    for field in declared:
        inside = member_type(stored, field.name)
        if "." in field.name:
            return [name]
        if inside is not None:
            below = declared_leaves(field.name, inside, field.type)
            parts += [f"{name}.{path}" for path in below]
    return parts or [name]


def legacy_times(metadata: Any) -> Sequence[str]:
    """List the columns with 96-bit timestamps."""
    return _leaves_of(metadata).legacy


def leaf_of(metadata: Any, name: str) -> int | None:
    """Find a column among the leaves of a file's schema; None if its name is ambiguous."""
    return _leaves_of(metadata).places.get(name)


def row_groups(found: FoundFile, metadata: Any, time: pa.Field | None, stored: pa.Schema) -> list[Fragment]:
    """Describe each non-empty row group, with its time range in ticks of the declared type."""
    leaf = None if time is None or time.name not in stored.names else leaf_of(metadata, time.name)
    return [
        _row_group(found, metadata.row_group(number), number, leaf, time, stored)
        for number in range(metadata.num_row_groups)
    ]


def _row_group(
    found: FoundFile, group: Any, number: int, leaf: int | None, time: pa.Field | None, stored: pa.Schema
) -> Fragment:
    low = high = None
    ordered = True if group.num_rows <= 1 else None
    if leaf is not None and time is not None:
        low, high = _bounds(group.column(leaf), value_type(stored.field(time.name).type), time.type)
        ordered = ordered or _sorted_by(group, leaf)
    return Fragment(
        found.path,
        "parquet",
        (number, number + 1),
        group.num_rows,
        low if isinstance(low, int) else None,
        high if isinstance(high, int) else None,
        ordered,
        found.partition,
        group.total_byte_size,
    )


def _sorted_by(group: Any, leaf: int) -> bool | None:
    """Check whether the writer declared the rows of a group sorted by a column first."""
    declared = group.sorting_columns
    return True if declared and declared[0].column_index == leaf and not declared[0].descending else None


def ranges(
    metadata: Any, number: int, columns: Mapping[str, tuple[int | None, pa.DataType, pa.DataType]]
) -> dict[str, Range]:
    """Return the statistics of a row group's columns: each (leaf, stored type, declared type) by name."""
    group = metadata.row_group(number)
    return {
        name: _range(group.column(leaf), stored, declared)
        for name, (leaf, stored, declared) in columns.items()
        if leaf is not None
    }


def _range(chunk: Any, stored: pa.DataType, declared: pa.DataType) -> Range:
    statistics = chunk.statistics
    if statistics is None:
        return Range(declared)
    low, high = _bounds(chunk, stored, declared)
    counted = bool(statistics.has_null_count)
    return Range(
        declared,
        low,
        high,
        nulls=not counted or statistics.null_count > 0,
        empty=counted and statistics.null_count == chunk.num_values,
    )


def _bounds(chunk: Any, stored: pa.DataType, declared: pa.DataType) -> tuple[object, object]:
    """Read the minimum and maximum of a column chunk, in the representation of the declared type."""
    statistics = chunk.statistics
    if statistics is None or not statistics.has_min_max or chunk.physical_type == "INT96":
        return None, None
    low = _value(statistics.min_raw, chunk.physical_type, stored, declared)
    high = _value(statistics.max_raw, chunk.physical_type, stored, declared)
    return (None, None) if low is None or high is None or high < low else (low, high)


def _value(raw: Any, physical: str, stored: pa.DataType, declared: pa.DataType) -> Any:
    """Read one raw statistic; None if it is unusable. Arrow's own conversions go through pandas."""
    match kind_of(stored):
        case "uint":
            return raw & (0xFFFFFFFF if physical == "INT32" else 0xFFFFFFFFFFFFFFFF)
        case kind if kind in _WHOLE:
            return _ticks(raw, stored, declared)
        case "bool":
            return bool(raw)
        case "float":
            return None if raw != raw else float(raw)  # noqa: PLR0124 - NaN, which old writers wrote
        case "string":
            return _text(raw)
        case "decimal":
            if isinstance(raw, bytes) and len(raw) > _WIDEST:
                return None
            digits = raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)
            return of_digits(digits, stored)
        case _:
            return None


def _ticks(raw: int, stored: pa.DataType, declared: pa.DataType) -> int | None:
    units = tick_unit(stored), tick_unit(declared)
    if units[0] is None or units[1] is None:
        return int(raw) if units[0] == units[1] else None
    return int(raw) * NANOSECONDS[units[0]] // NANOSECONDS[units[1]]


def _text(raw: bytes) -> str | None:
    """Read a text bound. A bound truncated within a character is not valid text."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def leaves(
    metadata: Any, declared: pa.Schema, names: Mapping[str, str]
) -> dict[str, tuple[int | None, pa.DataType, pa.DataType]]:
    """Find columns by the names in the file, as input of `ranges`."""
    stored = metadata.schema.to_arrow_schema()
    return {
        ours: (
            leaf_of(metadata, theirs),
            value_type(stored.field(theirs).type),
            value_type(declared.field(ours).type),
        )
        for ours, theirs in names.items()
        if theirs in stored.names
    }


def numbers(fragment: Fragment, metadata: Any) -> Iterator[int]:
    """Return the numbers of a fragment's row groups."""
    begin, end = fragment.row_groups or (0, metadata.num_row_groups)
    yield from range(begin, min(end, metadata.num_row_groups))
