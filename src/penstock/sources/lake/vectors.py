"""Deletion vectors of Iceberg: length · magic · bitmaps of row numbers by their upper 32 bits · checksum.

pyiceberg also reads them, but ignores the checksum, and creates an empty bitmap for each number of upper bits up to the
largest: two thousand million in a damaged vector.
"""

from __future__ import annotations

import zlib

import numpy as np
from pyroaring import BitMap

from penstock.errors import SourceError
from penstock.sources.row_deletes import Numbers

_MAGIC = b"\xd1\xd3\x39\x64"
_WORD = 4
_UPPER = 32  # bits
_MOST_UPPER = 1 << 31


def rows_of(where: str, data: bytes) -> Numbers:
    """Read the row numbers of a vector in the file `where`."""
    try:
        return _rows(_checked(data))
    except (ValueError, IndexError):
        raise SourceError(f"the file {where!r} cannot be read: a deletion vector in it is damaged") from None


def _checked(data: bytes) -> bytes:
    """Return the bitmaps after verifying the checksum."""
    end = _WORD + int.from_bytes(data[:_WORD], "big")
    body, checksum = data[_WORD:end], data[end : end + _WORD]
    same = len(checksum) == _WORD and zlib.crc32(body) == int.from_bytes(checksum, "big")
    if not same or not body.startswith(_MAGIC):
        raise ValueError("not what was written")
    return body[len(_MAGIC) :]


def _rows(bitmaps: bytes) -> Numbers:
    count, rest = int.from_bytes(bitmaps[:8], "little"), bitmaps[8:]
    found = [np.zeros(0, np.int64)]
    last = -1
    for _ in range(count):
        upper = int.from_bytes(rest[:_WORD], "little")
        if not last < upper < _MOST_UPPER:
            raise ValueError("row numbers that are not in order, or too large")
        bitmap = BitMap.deserialize(rest[_WORD:])
        rest, last = rest[_WORD + len(bitmap.serialize()) :], upper
        found.append(np.asarray(bitmap, np.int64) + (upper << _UPPER))
    return np.concatenate(found)
