"""A fragment of a dataset: the unit that one task reads, described without reading it."""

from __future__ import annotations

import binascii
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import SchemaMismatchError, SourceError
from penstock.sources.paths import FILE_FORMATS, FoundFile, Partition, partition_fields


@dataclass(frozen=True, slots=True)
class Fragment:
    """A file, or some of its row groups.

    `row_groups` is a half-open range, None for a whole file; `rows` is None if unknown.
    `time_min` and `time_max` are ticks of the dataset's time column and enclose every time that is not null;
    None without statistics. `ordered` is True if the writer of the file declares its rows sorted by time, and None if
    unknown. `partition` holds values that apply to every row. `rows` excludes the rows that `deletes` lists
    (below). `size` counts the bytes of all columns, uncompressed. `renamed` lists columns with another name in
    the file, and fields of structs by their paths: (our name, the file's name).

    >>> piece = Fragment("day=1/a.parquet", "parquet", (0, 2), rows=10, partition=(("day", "1"),))
    >>> Fragment.from_json(piece.to_json()) == piece
    True
    """

    path: str
    format: str
    row_groups: tuple[int, int] | None = None
    rows: int | None = None
    time_min: int | None = None
    time_max: int | None = None
    ordered: bool | None = None
    partition: Partition = ()
    size: int | None = None
    deletes: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> str:
        """Encode the fragment as text, for example to send it to another machine."""
        # `asdict` copies first, and takes four times as long.
        values = {name: getattr(self, name) for name in _NAMES}
        return json.dumps(values, ensure_ascii=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Fragment:
        """Decode the output of `to_json`, rejecting anything else."""
        try:
            return _checked(json.loads(text))
        except (ValueError, TypeError, KeyError, RecursionError):
            raise SourceError(
                "a fragment of a dataset cannot be read back: it was not written by this version; use one version of Penstock everywhere"
            ) from None

    def joins(self, other: Fragment) -> bool:
        """Check whether another fragment continues where this one ends."""
        ends, begins = self.row_groups, other.row_groups
        return (
            (self.path, self.format, self.partition, self.renamed)
            == (other.path, other.format, other.partition, other.renamed)
            and ends is not None
            and begins is not None
            and ends[1] == begins[0]
        )


_NAMES = tuple(field.name for field in fields(Fragment))


def joined(fragments: Iterable[Fragment], rows: int) -> Iterator[Fragment]:
    """Merge adjacent fragments of a file up to `rows` rows."""
    held: list[Fragment] = []
    count = 0
    for fragment in fragments:
        count += fragment.rows or 0
        if held and not (held[-1].joins(fragment) and count <= rows):
            yield _join(held)
            held, count = [], fragment.rows or 0
        held.append(fragment)
    if held:
        yield _join(held)


def _join(parts: Sequence[Fragment]) -> Fragment:
    first, last = parts[0], parts[-1]
    if len(parts) == 1 or first.row_groups is None or last.row_groups is None:
        return first
    return replace(
        first,
        row_groups=(first.row_groups[0], last.row_groups[1]),
        rows=_of_all(sum, [part.rows for part in parts]),
        size=_of_all(sum, [part.size for part in parts]),
        time_min=_of_all(min, [part.time_min for part in parts]),
        time_max=_of_all(max, [part.time_max for part in parts]),
        ordered=_ordered(parts),
        deletes=tuple(text for part in parts for text in part.deletes),
    )


def _of_all(choose: Callable[[Iterable[int]], int], numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return choose(known) if len(known) == len(numbers) else None


def _ordered(parts: Sequence[Fragment]) -> bool | None:
    follow = all(
        before.time_max is not None and after.time_min is not None and before.time_max <= after.time_min
        for before, after in pairwise(parts)
    )
    return True if follow and all(part.ordered for part in parts) else None


def _checked(given: dict[str, object]) -> Fragment:
    """Build a fragment from values of the right types."""
    match given:
        case {
            "path": str(path),
            "format": str(format),
            "row_groups": None | [int(), int()] as groups,
            "rows": None | int() as rows,
            "time_min": None | int() as first,
            "time_max": None | int() as last,
            "ordered": None | bool() as ordered,
            "partition": list(partition),
            "size": None | int() as size,
            "deletes": list(deletes),
            "renamed": list(renamed),
            **rest,
        } if not rest and format in FILE_FORMATS:
            range_ = None if groups is None else (int(groups[0]), int(groups[1]))
            values = tuple(
                (_text(name), None if value is None else _text(value)) for name, value in partition
            )
            names = tuple((_text(ours), _text(theirs)) for ours, theirs in renamed)
            gone = tuple(_text(delete) for delete in deletes)
            return Fragment(path, format, range_, rows, first, last, ordered, values, size, gone, names)
    raise ValueError


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


# --- Deleted rows that files still contain, as lists of row numbers encoded as text.

Numbers = npt.NDArray[np.int64]


def packed(numbers: Numbers) -> str:
    """Encode row numbers as text: sorted, delta-encoded, compressed.

    >>> unpacked([packed(np.array([7, 3, 3]))]).tolist()
    [3, 7]
    """
    steps = np.diff(np.unique(numbers), prepend=0).astype("<i8")
    return binascii.b2a_base64(zlib.compress(steps.tobytes()), newline=False).decode("ascii")


def unpacked(texts: Iterable[str]) -> Numbers:
    """Decode row numbers, in order."""
    try:
        parts = [np.frombuffer(zlib.decompress(binascii.a2b_base64(text)), "<i8") for text in texts]
    except (ValueError, zlib.error):
        raise SourceError(
            "the deleted rows of a fragment cannot be read back: they were not written by this version; use one version of Penstock everywhere"
        ) from None
    return np.unique(np.concatenate([np.cumsum(part) for part in parts] or [np.zeros(0, np.int64)]))


def within(numbers: Numbers, begin: int, end: int) -> Numbers:
    """Return the numbers in [begin, end)."""
    low, high = np.searchsorted(numbers, [begin, end])
    return numbers[low:high]


def left(batch: pa.RecordBatch, start: int, gone: Numbers) -> pa.RecordBatch:
    """Drop the deleted rows of a batch whose first row has the number `start`."""
    found = within(gone, start, start + batch.num_rows)
    if not len(found):
        return batch
    keep = np.ones(batch.num_rows, np.uint8)
    keep[found - start] = 0
    return batch.filter(_flags(keep))


def _flags(keep: npt.NDArray[np.uint8]) -> Any:
    """Return bytes of 0 or 1 as a mask. (`pa.array` would import pandas where it is installed.)"""
    bits = pa.py_buffer(np.packbits(keep, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(keep), [None, bits])


# --- Columns from folder names: the value of `day=2026-01-01/` applies to every row of the files in it.


def with_partitions(schema: pa.Schema, found: Sequence[FoundFile]) -> pa.Schema:
    """Add the columns of folders. A folder's value replaces a column of the same name in the file."""
    for field in partition_fields(found):
        place = schema.get_field_index(field.name)
        schema = schema.append(field) if place < 0 else schema.set(place, field)
    return schema


def constant(text: str | None, field: pa.Field, path: str) -> pa.Scalar:
    """Parse a folder's value as the column's type."""
    if text is None:
        return pa.nulls(1, field.type)[0]
    try:
        return _texts(text).cast(field.type)[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise SchemaMismatchError(
            f"the folder of {path!r} gives column {field.name!r} a value that is no {field.type}; "
            "declare it as a string with schema="
        ) from None


def _texts(text: str) -> pa.Array:
    """Return one text as an array. (`pa.array` would import pandas where it is installed.)"""
    data = text.encode()
    offsets = (0).to_bytes(4, "little") + len(data).to_bytes(4, "little")
    return pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def completed(
    batch: pa.RecordBatch, partition: Partition, schema: pa.Schema, columns: Sequence[str], path: str
) -> pa.RecordBatch:
    """Combine the columns of a file and of its folders in the requested order."""
    given = dict(partition)
    if not given.keys() & set(columns):
        return batch
    fields = [schema.field(name) for name in columns]
    arrays: list[Any] = [
        _repeated(given[field.name], field, batch.num_rows, path)
        if field.name in given
        else batch.column(field.name)
        for field in fields
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _repeated(text: str | None, field: pa.Field, rows: int, path: str) -> pa.Array:
    return pa.nulls(rows, field.type) if text is None else pa.repeat(constant(text, field, path), rows)
