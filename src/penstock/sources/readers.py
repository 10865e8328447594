"""Read the schemas of files, and Arrow files. (`prefetch.py` reads Parquet, `text.py` text.)"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import SourceError
from penstock.sources.conform import check
from penstock.sources.malformed import FAILURES
from penstock.sources.parquet_footers import footer
from penstock.sources.text_checks import json_reason, read_objects
from penstock.sources.text_formats import (
    BOM,
    Dialect,
    JsonLines,
    csv_head,
    delimiter_of,
    dialect,
    last_end,
    read_csv,
)
from penstock.storage.access import LOCAL, Access
from penstock.types.arrow import names_of

# --- Infer the columns and types of text from its first block, ignoring malformed records.

_SAMPLE = 1 << 24  # bytes used for type inference
_SMALL = 1 << 16  # bytes of a text whose lines are checked one by one


def csv_schema(path: str, declared: pa.Schema | None, access: Access = LOCAL) -> pa.Schema:
    """Read the header. Types are the declared ones, or are inferred from the first records."""
    with access.open_text(path) as file:
        names, text, _ = csv_head(path, file, _SMALL)
        if declared is None:
            text += file.read(max(_SAMPLE - len(text), 0))
            ended = len(text) < _SAMPLE
    if declared is not None:
        types = {field.name: field.type for field in declared}
        return pa.schema([pa.field(name, types.get(name, pa.null())) for name in names])
    if not names:
        raise SourceError(f"the file {path!r} has no header line; its first line must name the columns")
    return _csv_types(text, dialect(delimiter_of(path)), names, ended)


def _csv_types(text: bytes, marks: Dialect, names: tuple[str, ...], ended: bool) -> pa.Schema:
    """Infer types from records with the right number of fields, closed quotes and valid UTF-8."""
    whole = text if ended and marks.is_closed(text) else text[: marks.complete(text)]
    if not whole or (ended and len(whole) < len(text)) or not _is_utf8(whole):
        found = marks.records(text if ended else whole or text, 0, 0, len(names))
        whole = b"\n".join(record.text for record in found if record.reason is None and _is_utf8(record.text))
    if not whole.strip(b"\r\n"):
        return pa.schema([pa.field(name, pa.null()) for name in names])
    return read_csv(whole, marks, names, {}, list(names), lenient=True).schema


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def json_schema(path: str, declared: pa.Schema | None, access: Access = LOCAL) -> pa.Schema:
    """Infer the fields of the first lines. Types are the declared ones, or are inferred."""
    with access.open_text(path) as file:
        read = file.read(_SAMPLE)
    lines = JsonLines(pa.schema([]))
    text = read.removeprefix(BOM)
    whole = text if len(read) < _SAMPLE else text[: lines.complete(text)]
    if declared is None:
        found = _json_types(whole)
        if found is None:
            raise SourceError(f"the file {path!r} has no line that is one JSON object; give schema=")
        return found
    known = _read(whole)
    if known is None:
        return declared  # the reader finds the lines that are not rows
    types = {field.name: field.type for field in declared}
    return pa.schema([pa.field(field.name, types.get(field.name, field.type)) for field in known])


def _json_types(text: bytes) -> pa.Schema | None:
    """Infer fields from all lines that are objects, or from as many as agree."""
    known = _read(text)
    if known is not None:
        return known
    return _of_first([line for part in _objects(text) for line in part.splitlines() if line])


def _objects(text: bytes) -> Iterator[bytes]:
    """Drop the lines that are not objects; check single lines only near those."""
    if _read(text) is not None:
        yield text
        return
    if len(text) <= _SMALL:
        found = JsonLines(pa.schema([])).records(text, 0, 1)
        yield b"\n".join(record.text for record in found if json_reason(record.text, {}) is None)
        return
    size = max(len(text) // 16, _SMALL // 2)
    while text:
        cut = last_end(text[:size], size) or len(text)
        yield from _objects(text[:cut])
        text = text[cut:]


def _read(text: bytes) -> pa.Schema | None:
    """Infer the fields of a text; None if it cannot be read as a whole."""
    try:
        return read_objects(text, None).schema if text.strip() else None
    except FAILURES:
        return None


def _of_first(lines: Sequence[bytes]) -> pa.Schema | None:
    while lines and (known := _read(b"\n".join(lines))) is None:
        lines = lines[: len(lines) // 2]
    return known if lines else None


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
