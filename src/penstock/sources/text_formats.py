"""CSV and JSON lines: how text is divided into records, decoded by Arrow, and checked record by record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyarrow import csv, json

from penstock.errors import SchemaMismatchError, SourceError
from penstock.sources.csv_records import Dialect, Record, dialect, ends, last_end, lines
from penstock.sources.text_checks import (
    NOT_OBJECT,
    NOT_UTF8,
    Check,
    ValueCheck,
    csv_check,
    json_check,
    json_reason,
    not_a,
)

BOM = b"\xef\xbb\xbf"
_NEWLINE, _OPEN, _CLOSE = b"\n{}"
_HEADER = 1 << 24  # bytes of the names of columns


class Format(Protocol):
    """What CSV and JSON lines do differently."""

    def decode(self, text: bytes) -> pa.Table:
        """Read whole records as the declared columns, or raise."""

    def complete(self, text: bytes) -> int:
        """Count the bytes of the whole records that a text begins with."""

    def records(self, text: bytes, number: int, line: int) -> Iterator[Record]:
        """Divide a text into records."""

    def reason(self, record: Record) -> str | None:
        """Say why a record is no row; None if it may be one."""

    def only(self, column: pa.Field) -> Format:
        """Read one column."""


@dataclass(frozen=True, slots=True)
class JsonLines:
    """One JSON object a line. Fields that are not declared are ignored, those that are missing are null."""

    schema: pa.Schema
    checks: Mapping[str, tuple[pa.DataType, ValueCheck]] = field(default_factory=dict, compare=False)

    @staticmethod
    def of(schema: pa.Schema) -> JsonLines:
        """Read columns, with a check for each that has one."""
        return JsonLines(schema, json_checks(schema))

    def decode(self, text: bytes) -> pa.Table:
        """Read lines; Arrow would also read several objects in one, and one in several."""
        if not text.strip():
            return self.schema.empty_table()
        table = read_json(text, self.schema)
        if not one_object_a_line(text, table.num_rows):
            raise ValueError(NOT_OBJECT)
        return table.select(self.schema.names)

    def complete(self, text: bytes) -> int:
        """Count the bytes of whole lines."""
        return last_end(text, len(text))

    def records(self, text: bytes, number: int, line: int) -> Iterator[Record]:
        """Divide a text into lines; those of spaces are no records."""
        kept = (each for each in lines(text, 0, line) if each.text.strip())
        return (each._replace(number=number + place) for place, each in enumerate(kept))

    def reason(self, record: Record) -> str | None:
        """Say why a line is no row."""
        return json_reason(record.text, self.checks)

    def only(self, column: pa.Field) -> JsonLines:
        """Read one column."""
        return JsonLines(pa.schema([column]))


@dataclass(frozen=True, slots=True)
class Csv:
    """Text with a header line. `names` are the columns of the file, `schema` those that are declared."""

    dialect: Dialect
    names: tuple[str, ...]
    schema: pa.Schema
    checks: Mapping[int, tuple[pa.Field, Check | None]] = field(default_factory=dict, compare=False)

    @staticmethod
    def of(path: str, names: tuple[str, ...], schema: pa.Schema) -> Csv:
        """Read a file; tabs separate its fields if its name says so."""
        checks = csv_checks(names, schema) if names else {}
        return Csv(dialect(delimiter_of(path)), names, schema, checks)

    def decode(self, text: bytes) -> pa.Table:
        """Read records in which all quotes are closed."""
        if not text.strip(b"\r\n"):
            return self.schema.empty_table()
        types = {field.name: field.type for field in self.schema}
        return read_csv(text, self.dialect, self.names, types, list(types))

    def complete(self, text: bytes) -> int:
        """Count the bytes of whole records."""
        return self.dialect.complete(text)

    def records(self, text: bytes, number: int, line: int) -> Iterator[Record]:
        """Divide a text into records."""
        return self.dialect.records(text, number, line, len(self.names))

    def reason(self, record: Record) -> str | None:
        """Say why a record is no row."""
        fields = self.dialect.fields(record.text)
        if len(fields) != len(self.names):
            return f"expected {len(self.names)} columns, found {len(fields)}"
        for place, (column, check) in self.checks.items():
            try:
                text = fields[place].decode()
            except UnicodeDecodeError:
                if pa.types.is_binary(column.type):
                    continue
                return f"column {column.name!r}: {NOT_UTF8}"
            if check is not None and not check(text):
                return not_a(column.name, column.type)
        return None

    def only(self, column: pa.Field) -> Csv:
        """Read one column."""
        return Csv(self.dialect, self.names, pa.schema([column]))


# --- CSV ------------------------------------------------------------------------------------------------


def delimiter_of(path: str) -> bytes:
    """Tell what separates fields."""
    return b"\t" if ".tsv" in Path(path).name else b","


def csv_head(path: str, file: Any, size: int) -> tuple[tuple[str, ...], bytes, int]:
    """Read the names of columns: with them, the text behind them, and its first line. A file of nothing has none."""
    marks, text = dialect(delimiter_of(path)), file.read(max(size, len(BOM))).removeprefix(BOM)
    while True:
        begin = len(text) - len(text.lstrip(b"\r\n"))
        found = marks.record.match(text, begin)
        more = b"" if found and found.end() < len(text) else file.read(size)
        if not more:
            break
        text += more
        if len(text) > _HEADER + size:
            raise SourceError(f"the file {path!r} has no header line; its first line must name the columns")
    if begin == len(text):
        return (), b"", 1
    if found is None:
        raise SourceError(f"the header of the file {path!r} has a quote that is not closed; close it")
    return _names(path, found[1], marks), text[found.end() :], ends(text[: found.end()]) + 1


def _names(path: str, head: bytes, marks: Dialect) -> tuple[str, ...]:
    try:
        return tuple(each.decode() for each in marks.fields(head))
    except UnicodeDecodeError:
        raise SchemaMismatchError(
            f"the header of the file {path!r} has a column name that is not valid UTF-8; rename the column"
        ) from None


def read_csv(
    text: bytes,
    marks: Dialect,
    names: tuple[str, ...],
    types: Mapping[str, pa.DataType],
    columns: list[str],
    lenient: bool = False,
) -> pa.Table:
    """Decode records without a header; a `lenient` reading leaves out those with too few or too many fields."""
    return csv.read_csv(
        pa.BufferReader(text),
        csv.ReadOptions(column_names=list(names), block_size=len(text) + 1, use_threads=False),
        csv.ParseOptions(
            delimiter=marks.delimiter.decode(),
            newlines_in_values=True,
            invalid_row_handler=_skip if lenient else None,
        ),
        csv.ConvertOptions(
            column_types=types,
            include_columns=columns,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _skip(row: object) -> str:
    del row
    return "skip"


def csv_checks(names: tuple[str, ...], schema: pa.Schema) -> dict[int, tuple[pa.Field, Check | None]]:
    """Make the checks of the declared columns, by their places."""
    return {names.index(column.name): (column, csv_check(column.type)) for column in schema}


# --- JSON -----------------------------------------------------------------------------------------------


def read_json(text: bytes, schema: pa.Schema | None) -> pa.Table:
    """Decode objects of valid UTF-8; Arrow does not look whether it is."""
    if not text.isascii():
        text.decode()
    beyond = "infer" if schema is None else "ignore"
    return json.read_json(
        pa.BufferReader(text),
        json.ReadOptions(block_size=len(text) + 1, use_threads=False),
        json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=beyond),
    )


def json_checks(schema: pa.Schema) -> dict[str, tuple[pa.DataType, ValueCheck]]:
    """Make the checks of the declared columns, where there are any."""
    found = ((column, json_check(column.type)) for column in schema)
    return {column.name: (column.type, check) for column, check in found if check is not None}


def one_object_a_line(text: bytes, rows: int) -> bool:
    """Tell whether so many objects stand one in each line.

    A line that begins with a brace after one that ends with a brace begins an object: none goes on there.
    """
    return _plainly_one_a_line(text.rstrip(), rows) or _surely_one_a_line(text, rows)


def _plainly_one_a_line(text: bytes, rows: int) -> bool:
    """Search lines without spaces around them: an array of bytes is searched at once."""
    array = np.frombuffer(text, np.uint8)
    breaks = np.flatnonzero(array == _NEWLINE)
    if len(breaks) != rows - 1 or not text.startswith(b"{") or not text.endswith(b"}"):
        return False
    return bool((array[breaks - 1] == _CLOSE).all() and (array[breaks + 1] == _OPEN).all())


def _surely_one_a_line(text: bytes, rows: int) -> bool:
    found = [line for each in text.splitlines() if (line := each.strip())]
    return len(found) == rows and all(line.startswith(b"{") and line.endswith(b"}") for line in found)
