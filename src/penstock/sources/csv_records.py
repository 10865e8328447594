"""Split CSV into records and fields, with the rules of Arrow's reader.

A quote counts only at the start of a field; it ends at the next quote that is not doubled. Anywhere else a quote is an
ordinary character. A quoted text of several lines must end at the end of its field; otherwise a quote was left
open and swallowed the lines. A line ends with a line feed, a carriage return, or both; empty lines are not records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

UNCLOSED = "a quote is not closed"
_LINE = re.compile(rb"([^\r\n]*+)(\r\n|\n|\r|\Z)")
_QUOTED = re.compile(rb'"((?:[^"]|"")*+)"(.*)', re.DOTALL)
_QUOTE, _NEWLINE = b'"\n'


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


@lru_cache
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
    count = int(np.count_nonzero(np.frombuffer(text, np.uint8) == _NEWLINE))
    return count if b"\r" not in text else count + text.count(b"\r") - text.count(b"\r\n")


def last_end(text: bytes, until: int) -> int:
    """Return the end of the last complete line; 0 if there is none. A final carriage return may be half of a line end."""
    at = text.rfind(b"\n", 0, until) + 1
    return at or text.rfind(b"\r", 0, min(until, len(text) - 1)) + 1


def _plain(field: bytes) -> bytes:
    found = _QUOTED.fullmatch(field)
    return field if found is None else found[1].replace(b'""', b'"') + found[2]
