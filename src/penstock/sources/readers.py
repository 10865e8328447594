"""Read the schemas of files, and Arrow files. (`prefetch.py` reads Parquet, `text.py` text.)"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import SourceError
from penstock.sources.conform import check
from penstock.sources.infer_text import csv_schema, json_schema
from penstock.sources.parquet_footers import footer
from penstock.storage.access import LOCAL, Access
from penstock.types.arrow import names_of

_MARK = b"\xff\xff\xff\xff"  # precedes each message of an IPC stream, since 2019
_ZERO = b"\x00\x00\x00\x00"  # the length of the message that ends a stream


@dataclass(frozen=True, slots=True)
class FormatReader:
    """The reader of one format.

    `schema(path, declared, access)` returns the columns.
    `batches(path, columns, schema, access)` reads columns, in any order, perhaps with others.
    """

    schema: Callable[[str, pa.Schema | None, Access], pa.Schema]
    batches: Callable[[str, Sequence[str], pa.Schema, Access], Iterator[pa.RecordBatch]]


def _ipc(path: str, source: Any, wanted: pa.Schema | None = None) -> Any:
    """Open an IPC file or an IPC stream, for some columns or all."""
    try:
        opened, reader = pa.ipc.open_file, pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        opened, reader = pa.ipc.open_stream, pa.ipc.open_stream(source)
    if wanted is None:
        return reader
    check(reader.schema, wanted, f"the file {path!r}")
    places = sorted(reader.schema.get_field_index(name) for name in wanted.names)
    source.seek(0)
    return opened(source, options=pa.ipc.IpcReadOptions(included_fields=places))


def _ipc_schema(path: str, declared: pa.Schema | None, access: Access) -> pa.Schema:
    with access.open(path) as source, _ipc(path, source) as file:
        return file.schema


def _ipc_batches(
    path: str, columns: Sequence[str], schema: pa.Schema, access: Access
) -> Iterator[pa.RecordBatch]:
    """Read batches without memory mapping: truncating a mapped file would terminate the process."""
    wanted = pa.schema([schema.field(name) for name in columns])
    with access.open(path) as source, _ipc(path, source, wanted) as file:
        whole = isinstance(file, pa.ipc.RecordBatchFileReader)
        for part in map(file.get_batch, range(file.num_record_batches)) if whole else file:
            needed = part.select(list(columns))
            needed.validate(full=True)  # kernels trust offsets, which may be wrong in a damaged file
            yield needed
        if not whole:
            _check_end(path, source)


def _check_end(path: str, source: Any) -> None:
    """Reject a stream truncated between two batches, which Arrow accepts as its end."""
    size, end = source.size(), source.tell()
    source.seek(0)
    expected = _MARK + _ZERO if source.read(len(_MARK)) == _MARK else _ZERO
    source.seek(max(size - len(expected), 0))
    if end != size or source.read() != expected:
        raise SourceError(
            f"the file {path!r} cannot be read: it does not end as Arrow streams do, so rows may be missing"
        )


TEXT = ("csv", "json")
READERS: dict[str, FormatReader] = {"arrow": FormatReader(_ipc_schema, _ipc_batches)}


def stored_schema(path: str, format: str, declared: pa.Schema | None, access: Access = LOCAL) -> pa.Schema:
    """Return the schema of a file. Text is read with the declared types, if any."""
    found = _stored_schema(path, format, declared, access)
    names_of(found, f"the file {path!r}")
    return found


def _stored_schema(path: str, format: str, declared: pa.Schema | None, access: Access) -> pa.Schema:
    match format:
        case "parquet":
            return footer(path, access).schema.to_arrow_schema()
        case "csv":
            return csv_schema(path, declared, access)
        case "json":
            return json_schema(path, declared, access)
        case _:
            return READERS[format].schema(path, declared, access)
