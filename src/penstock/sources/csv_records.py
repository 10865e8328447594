"""Records of CSV: where each ends, and its fields, as Arrow's reader sees them.

A quote is one only where a field begins; it ends at the next quote that is not doubled. Anywhere else a quote is a
character like any other. A quoted text of several lines must end where its field ends: if it does not, a quote was left
open and swallowed the lines. A line ends with a line feed, a carriage return, or both; empty lines are no records.
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
    """A record of text: its number in the file, the line it begins on, and the reason if it can be no row."""

    number: int
    line: int
    text: bytes
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """CSV with one delimiter, as regular expressions that never go back."""

    delimiter: bytes
    closed: re.Pattern[bytes]  # a text up to the first quote that is not closed
    record: re.Pattern[bytes]
    field: re.Pattern[bytes]

    def complete(self, text: bytes) -> int:
        r"""Count the bytes of the whole records that a text begins with.

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
        """Tell whether every quote is closed."""
        return b'"' not in text or self._closed(text, len(text), self._pairs(text)) == len(text)

    def _closed(self, text: bytes, end: int, quotes: np.ndarray | None) -> int:
        """Find the first quote that is not closed before an end; the end if there is none."""
        if quotes is None:
            found = self.closed.match(text, 0, end)
            return found.end() if found else 0
        before = int(np.searchsorted(quotes, end))
        return int(quotes[before - 1]) if before % 2 else end

    def _pairs(self, text: bytes) -> np.ndarray | None:
        """Give the places of all quotes if they surely open and close in turn: arrays are searched six times as fast."""
        data = np.frombuffer(b"\n" + text + b"\n", np.uint8)
        quotes = np.flatnonzero(data == _QUOTE)
        border = np.zeros(256, np.bool_)
        border[[*self.delimiter, *b'\r\n"']] = True
        opens, closes = quotes[0::2], quotes[1::2]
        if border[data[opens - 1]].all() and border[data[closes + 1]].all():
            return np.asarray(quotes - 1)
        return None

    def records(self, text: bytes, number: int, line: int, columns: int) -> Iterator[Record]:
        """Divide a text into records. After a quote that is not closed, the next line begins a record.

        So it does after the first line of a record that spans several and has another number of fields than columns.
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
        """Give the texts of the fields of a record, without quotes.

        >>> dialect(b",").fields(b'1,"a, b",5" pipe,')
        [b'1', b'a, b', b'5" pipe', b'']
        """
        if b'"' not in record:
            return record.split(self.delimiter)
        return [_plain(found[1]) for found in self.field.finditer(record)]


@lru_cache
def dialect(delimiter: bytes) -> Dialect:
    """Make the expressions of a delimiter."""
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
    """Divide a text into lines; those of nothing are no records."""
    for place, each in enumerate(text.splitlines()):
        if each:
            yield Record(number, line + place, each)
            number += 1


def ends(text: bytes) -> int:
    """Count the ends of lines."""
    # Lines are short: comparing all bytes is faster than searching for each end.
    count = int(np.count_nonzero(np.frombuffer(text, np.uint8) == _NEWLINE))
    return count if b"\r" not in text else count + text.count(b"\r") - text.count(b"\r\n")


def last_end(text: bytes, until: int) -> int:
    """Find where the last whole line ends; 0 if there is none. A carriage return at the end may be half of an end."""
    at = text.rfind(b"\n", 0, until) + 1
    return at or text.rfind(b"\r", 0, min(until, len(text) - 1)) + 1


def _plain(field: bytes) -> bytes:
    found = _QUOTED.fullmatch(field)
    return field if found is None else found[1].replace(b'""', b'"') + found[2]
