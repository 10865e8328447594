"""CSV and JSON lines: splitting text into records, decoding with Arrow, and checks per record."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from pyarrow import csv

from penstock.caches import CACHES
from penstock.errors import SchemaMismatchError, SourceError
from penstock.sources.text_checks import (
    NOT_OBJECT,
    NOT_UTF8,
    Check,
    ValueCheck,
    csv_check,
    json_check,
    json_reason,
    not_a,
    read_objects,
)

# --- Split CSV into records and fields, with the rules of Arrow's reader.
#
# A quote counts only at the start of a field; it ends at the next quote that is not doubled. Anywhere else a quote is an
# ordinary character. A quoted text of several lines must end at the end of its field; otherwise a quote was left
# open and swallowed the lines. A line ends with a line feed, a carriage return, or both; empty lines are not records.

UNCLOSED = "a quote is not closed"
_LINE = re.compile(rb"([^\r\n]*+)(\r\n|\n|\r|\Z)")
_QUOTED = re.compile(rb'"((?:[^"]|"")*+)"(.*)', re.DOTALL)
_QUOTE, _CSV_NEWLINE = b'"\n'


class Record(NamedTuple):
    """A record of text: its number in the file, its first line, and the reason if it cannot be a row."""

    number: int
    line: int
    text: bytes
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """CSV with one delimiter, as regular expressions without backtracking."""

    delimiter: bytes
    closed: re.Pattern[bytes]  # matches up to the first unclosed quote
    record: re.Pattern[bytes]
    field: re.Pattern[bytes]

    def complete(self, text: bytes) -> int:
        r"""Return the length in bytes of the complete records at the start of a text.

        >>> dialect(b",").complete(b'1,a\n2,"b\nc"\n3,"d\n')
        12
        """
        at = last_end(text, len(text))
        if b'"' not in text:
            return at
        quotes = self._pairs(text)
        while at and (closed := self._closed(text, at, quotes)) < at:
            at = last_end(text, closed)
        return at

    def is_closed(self, text: bytes) -> bool:
        """Check whether every quote is closed."""
        return b'"' not in text or self._closed(text, len(text), self._pairs(text)) == len(text)

    def _closed(self, text: bytes, end: int, quotes: np.ndarray | None) -> int:
        """Find the first unclosed quote before `end`; return `end` if there is none."""
        if quotes is None:
            found = self.closed.match(text, 0, end)
            return found.end() if found else 0
        before = int(np.searchsorted(quotes, end))
        return int(quotes[before - 1]) if before % 2 else end

    def _pairs(self, text: bytes) -> np.ndarray | None:
        """Return the positions of all quotes if they certainly alternate as open and close; array search is six times as fast."""
        data = np.frombuffer(b"\n" + text + b"\n", np.uint8)
        quotes = np.flatnonzero(data == _QUOTE)
        border = np.zeros(256, np.bool_)
        border[[*self.delimiter, *b'\r\n"']] = True
        opens, closes = quotes[0::2], quotes[1::2]
        if border[data[opens - 1]].all() and border[data[closes + 1]].all():
            return np.asarray(quotes - 1)
        return None

    def records(self, text: bytes, number: int, line: int, columns: int) -> Iterator[Record]:
        """Split a text into records. After an unclosed quote, the next line begins a record.

        The same holds after the first line of a multi-line record whose number of fields differs from the number of columns.
        """
        if b'"' not in text:
            yield from lines(text, number, line)
            return
        at = 0
        while at < len(text):
            found = self.record.match(text, at)
            reason = None
            if found is None or (ends(found[1]) and len(self.fields(found[1])) != columns):
                reason = UNCLOSED
                found = _LINE.match(text, at)
                assert found is not None
            if found[1]:
                yield Record(number, line, found[1], reason)
                number += 1
            line += ends(found[0])
            at = found.end()

    def fields(self, record: bytes) -> list[bytes]:
        """Return the fields of a record, without quotes.

        >>> dialect(b",").fields(b'1,"a, b",5" pipe,')
        [b'1', b'a, b', b'5" pipe', b'']
        """
        if b'"' not in record:
            return record.split(self.delimiter)
        return [_plain(found[1]) for found in self.field.finditer(record)]


@CACHES.results(most=128)
def dialect(delimiter: bytes) -> Dialect:
    """Compile the expressions for a delimiter."""
    end = re.escape(delimiter) + rb"\r\n"
    one_line = rb'"[^"\r\n]*+(?:""[^"\r\n]*+)*+"'
    several = rb'"[^"]*+(?:""[^"]*+)*+"(?=[%b]|\Z)' % end
    quoted = rb"(?:%b|%b)" % (one_line, several)
    field = rb'(?:%b[^%b]*+|(?!")[^%b]*+)' % (quoted, end, end)
    return Dialect(
        delimiter,
        re.compile(rb'(?:[^"]++|(?:\A|(?<=[%b]))%b|(?<=[^%b])")*+' % (end, quoted, end)),
        re.compile(rb"(%b(?:%b%b)*+)(?:\r\n|\n|\r|\Z)" % (field, re.escape(delimiter), field)),
        re.compile(rb"(?:\A|%b)(%b)" % (re.escape(delimiter), field)),
    )


def lines(text: bytes, number: int, line: int) -> Iterator[Record]:
    """Split a text into lines; empty lines are not records."""
    for place, text_line in enumerate(text.splitlines()):
        if text_line:
            yield Record(number, line + place, text_line)
            number += 1


def ends(text: bytes) -> int:
    """Count the line ends."""
    # Lines are short, so comparing all bytes is faster than searching for each line end.
    count = int(np.count_nonzero(np.frombuffer(text, np.uint8) == _CSV_NEWLINE))
    return count if b"\r" not in text else count + text.count(b"\r") - text.count(b"\r\n")


def last_end(text: bytes, until: int) -> int:
    """Return the end of the last complete line; 0 if there is none. A final carriage return may be half of a line end."""
    at = text.rfind(b"\n", 0, until) + 1
    return at or text.rfind(b"\r", 0, min(until, len(text) - 1)) + 1


def _plain(field: bytes) -> bytes:
    found = _QUOTED.fullmatch(field)
    return field if found is None else found[1].replace(b'""', b'"') + found[2]


BOM = b"\xef\xbb\xbf"
_NEWLINE, _OPEN, _CLOSE = b"\n{}"
_HEADER = 1 << 24  # bytes of the header


class Format(Protocol):
    """The differences between CSV and JSON lines."""

    def decode(self, text: bytes) -> pa.Table:
        """Decode complete records to the declared columns, or raise."""

    def complete(self, text: bytes) -> int:
        """Return the length in bytes of the complete records at the start of a text."""

    def records(self, text: bytes, number: int, line: int) -> Iterator[Record]:
        """Split a text into records."""

    def reason(self, record: Record) -> str | None:
        """Return why a record is not a row; None if it may be one."""

    def only(self, column: pa.Field) -> Format:
        """Return a format that reads one column."""


@dataclass(frozen=True, slots=True)
class JsonLines:
    """One JSON object per line. Undeclared fields are ignored, missing ones are null."""

    schema: pa.Schema
    checks: Mapping[str, tuple[pa.DataType, ValueCheck]] = field(default_factory=dict, compare=False)

    @staticmethod
    def of(schema: pa.Schema) -> JsonLines:
        """Create the format, with the checks of its columns."""
        return JsonLines(schema, json_checks(schema))

    def decode(self, text: bytes) -> pa.Table:
        """Decode lines. Arrow would also accept several objects in a line, and an object over several lines."""
        if not text.strip():
            return self.schema.empty_table()
        table = read_objects(text, self.schema)
        if not one_object_a_line(text, table.num_rows):
            raise ValueError(NOT_OBJECT)
        return table.select(self.schema.names)

    def complete(self, text: bytes) -> int:
        """Return the length in bytes of complete lines."""
        return last_end(text, len(text))

    def records(self, text: bytes, number: int, line: int) -> Iterator[Record]:
        """Split a text into lines; blank lines are not records."""
        kept = (record for record in lines(text, 0, line) if record.text.strip())
        return (record._replace(number=number + place) for place, record in enumerate(kept))

    def reason(self, record: Record) -> str | None:
        """Return why a line is not a row."""
        return json_reason(record.text, self.checks)

    def only(self, column: pa.Field) -> JsonLines:
        """Return a format that reads one column."""
        return JsonLines(pa.schema([column]))


@dataclass(frozen=True, slots=True)
class Csv:
    """Text with a header line. `names` are the columns of the file, `schema` the declared ones."""

    dialect: Dialect
    names: tuple[str, ...]
    schema: pa.Schema
    checks: Mapping[int, tuple[pa.Field, Check | None]] = field(default_factory=dict, compare=False)

    @staticmethod
    def of(path: str, names: tuple[str, ...], schema: pa.Schema) -> Csv:
        """Create the format of a file; the file name decides whether tabs separate fields."""
        checks = csv_checks(names, schema) if names else {}
        return Csv(dialect(delimiter_of(path)), names, schema, checks)

    def decode(self, text: bytes) -> pa.Table:
        """Decode records whose quotes are all closed."""
        if not text.strip(b"\r\n"):
            return self.schema.empty_table()
        types = {field.name: field.type for field in self.schema}
        return read_csv(text, self.dialect, self.names, types, list(types))

    def complete(self, text: bytes) -> int:
        """Return the length in bytes of complete records."""
        return self.dialect.complete(text)

    def records(self, text: bytes, number: int, line: int) -> Iterator[Record]:
        """Split a text into records."""
        return self.dialect.records(text, number, line, len(self.names))

    def reason(self, record: Record) -> str | None:
        """Return why a record is not a row."""
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
        """Return a format that reads one column."""
        return Csv(self.dialect, self.names, pa.schema([column]))


# --- CSV ------------------------------------------------------------------------------------------------


def delimiter_of(path: str) -> bytes:
    """Return the field delimiter of a file."""
    return b"\t" if ".tsv" in Path(path).name else b","


def csv_head(path: str, file: Any, size: int) -> tuple[tuple[str, ...], bytes, int]:
    """Read the header. Returns column names, the text after it, and the number of its first line. An empty file has no names."""
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
        return tuple(column.decode() for column in marks.fields(head))
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
    """Decode records without a header. With `lenient`, records with too few or too many fields are dropped."""
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
    """Return the checks of the declared columns, by position."""
    return {names.index(column.name): (column, csv_check(column.type)) for column in schema}


# --- JSON -----------------------------------------------------------------------------------------------


def json_checks(schema: pa.Schema) -> dict[str, tuple[pa.DataType, ValueCheck]]:
    """Return the checks of the declared columns that have one."""
    found = ((column, json_check(column.type)) for column in schema)
    return {column.name: (column.type, check) for column, check in found if check is not None}


def one_object_a_line(text: bytes, rows: int) -> bool:
    """Check that a text has `rows` objects, one per line.

    A line that begins with a brace, after a line that ends with a brace, begins an object: no object continues there.
    """
    return _plainly_one_a_line(text.rstrip(), rows) or _surely_one_a_line(text, rows)


def _plainly_one_a_line(text: bytes, rows: int) -> bool:
    """Check lines without surrounding spaces, with one search over an array of bytes."""
    array = np.frombuffer(text, np.uint8)
    breaks = np.flatnonzero(array == _NEWLINE)
    if len(breaks) != rows - 1 or not text.startswith(b"{") or not text.endswith(b"}"):
        return False
    return bool((array[breaks - 1] == _CLOSE).all() and (array[breaks + 1] == _OPEN).all())


def _surely_one_a_line(text: bytes, rows: int) -> bool:
    found = [line for raw in text.splitlines() if (line := raw.strip())]
    return len(found) == rows and all(line.startswith(b"{") and line.endswith(b"}") for line in found)
