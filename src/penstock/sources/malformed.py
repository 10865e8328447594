"""Malformed records with their text, reason and location, and the search for them among valid ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from penstock.errors import PenstockError, SourceError

T = TypeVar("T")

DROP = "drop"
ON_BAD = (DROP, "fail", "quarantine")
# The schema of the quarantine. `row` is the raw record, or JSON if it was already decoded to columns.
QUARANTINED = pa.schema(
    {
        "row": pa.binary(),
        "reason": pa.string(),
        "stream": pa.string(),
        "source": pa.string(),
        "offset": pa.int64(),
    }
)
HISTORY = "history"  # the split of rows that existed before the stream was watched
NO_TIME = "it has no time"
WHAT_TO_DO = (
    "correct it, or use on_bad='drop' to count and skip such records, or on_bad='quarantine' to keep them"
)
_LONGEST = 300  # characters of a reason: Arrow quotes the row in it, which is stored anyway
_FEW = 1024  # records that are checked one by one
FAILURES = (pa.ArrowException, PenstockError, ValueError, TypeError, KeyError)


@dataclass(frozen=True, slots=True)
class Bad:
    """A malformed record. `offset` counts rows, lines or messages of the source from 0."""

    row: bytes | None
    reason: str
    source: str
    offset: int


@dataclass(slots=True)
class Malformed:
    """The policy of a file reader for malformed records: raise at the first, or collect them.

    In text, rows without a time are malformed if `time` names the time column.
    """

    on_bad: str = "fail"
    time: str | None = None
    found: list[Bad] = field(default_factory=list)

    def add(self, bad: Sequence[Bad]) -> None:
        """Add malformed records, or raise."""
        if bad and self.on_bad == "fail":
            raise SourceError(f"the file {bad[0].source!r} cannot be read: {bad[0].reason}; {WHAT_TO_DO}")
        self.found.extend(bad)

    def taken(self) -> tuple[Bad, ...]:
        """Return and clear the records found since the last call."""
        found, self.found = tuple(self.found), []
        return found


@dataclass(frozen=True, slots=True)
class Arrived:
    """One delivery of a live source: rows and malformed records.

    `split` names a split with a separate watermark; None means that the rows alone advance time. `out` counts rows dropped
    because their time is outside the stream. For a bounded source, `upto` is the time before which no more rows arrive.
    """

    batch: pa.RecordBatch
    split: str | None = None
    bad: tuple[Bad, ...] = ()
    out: int = 0
    upto: int | None = None


def reason_of(error: Exception) -> str:
    """Return the first line of an error as the reason."""
    text = str(error).partition("\n")[0] or type(error).__name__
    return text[:_LONGEST]


def good_and_bad(
    items: Sequence[T],
    decode: Callable[[Sequence[T]], pa.RecordBatch],
    reason: Callable[[T], str | None] | None = None,
) -> tuple[list[pa.RecordBatch], list[tuple[T, str]]]:
    """Decode all records at once; on failure decode each half, so that one bad record among many costs few attempts.

    Among few records, those that `reason` rejects are dropped first: the check is cheap, and need not find all.

    >>> import pyarrow as pa
    >>> good, bad = good_and_bad(["1", "x", "2"], lambda some: pa.record_batch({"v": [int(s) for s in some]}))
    >>> [batch.num_rows for batch in good], bad[0][0]
    ([1, 1], 'x')
    """
    if not items:
        return [], []
    try:
        return [decode(items)], []
    except FAILURES as error:
        if len(items) == 1:
            reported = None if reason is None else reason(items[0])
            return [], [(items[0], reported or reason_of(error))]
    if reason is not None and len(items) <= _FEW:
        return _checked(items, decode, reason)
    middle = len(items) // 2
    first = good_and_bad(items[:middle], decode, reason)
    second = good_and_bad(items[middle:], decode, reason)
    return first[0] + second[0], first[1] + second[1]


def _checked(
    items: Sequence[T], decode: Callable[[Sequence[T]], pa.RecordBatch], reason: Callable[[T], str | None]
) -> tuple[list[pa.RecordBatch], list[tuple[T, str]]]:
    """Drop the records that are certainly bad, then decode the others."""
    reported = [reason(item) for item in items]
    good, more = good_and_bad(
        [item for item, why in zip(items, reported, strict=True) if why is None], decode
    )
    found = {id(item): why for item, why in more}
    reasons = (
        why if why is not None else found.get(id(item)) for item, why in zip(items, reported, strict=True)
    )
    return good, [(item, why) for item, why in zip(items, reasons, strict=True) if why is not None]


def without_time(
    batch: pa.RecordBatch, time: str, describe: Callable[[int, bytes], Bad]
) -> tuple[pa.RecordBatch, list[Bad]]:
    """Remove the rows without a time. `describe` takes the number of each, and its columns as JSON."""
    if time not in batch.schema.names or batch.column(time).null_count == 0:
        return batch, []
    there = batch.column(time).is_valid()
    missing = [number for number, valid in enumerate(there.to_pylist()) if not valid]
    texts = map(as_text, batch.take(pa.array(missing, pa.int64())).to_pylist())
    return batch.filter(there), [describe(*missed) for missed in zip(missing, texts, strict=True)]


def as_text(row: dict[str, object]) -> bytes:
    """Encode a row as JSON, with values that JSON lacks as text."""
    return json.dumps(row, default=str, ensure_ascii=False).encode("utf-8", "surrogatepass")


def quarantine_table(stream: str, bad: Iterable[Bad]) -> pa.Table:
    """Return a table of malformed records."""
    rows = [
        {
            "row": record.row,
            "reason": record.reason,
            "stream": stream,
            "source": record.source,
            "offset": record.offset,
        }
        for record in bad
    ]
    return pa.Table.from_pylist(rows, QUARANTINED)
