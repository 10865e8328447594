"""Deleted rows that files still contain, as lists of row numbers encoded as text."""

from __future__ import annotations

import binascii
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import SourceError

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
            "the deleted rows of a fragment cannot be read back: they were not written by this version"
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
