"""Infer the columns and types of text from its first block, ignoring malformed records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.errors import SourceError
from penstock.sources.csv_records import Dialect, dialect, last_end
from penstock.sources.json_read import read_objects
from penstock.sources.malformed import FAILURES
from penstock.sources.text_checks import json_reason
from penstock.sources.text_formats import BOM, JsonLines, csv_head, delimiter_of, read_csv
from penstock.storage.access import LOCAL, Access

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
