"""Records that are no rows: what they were, why, and where they lay; and the search for them among good ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from penstock.errors import PenstockError

T = TypeVar("T")

ON_BAD = ("drop", "fail", "quarantine")
# What is kept of a malformed record. `row` is what was read, or JSON where it had been read as columns.
QUARANTINED = pa.schema(
    {
        "row": pa.binary(),
        "reason": pa.string(),
        "stream": pa.string(),
        "source": pa.string(),
        "offset": pa.int64(),
    }
)
HISTORY = "history"  # the split of rows that were there before a stream began to be watched
NO_TIME = "it has no time"
_LONGEST = 300  # characters of a reason: Arrow quotes the row in it, which stands beside it anyway
FAILURES = (pa.ArrowException, PenstockError, ValueError, TypeError, KeyError)


@dataclass(frozen=True, slots=True)
class Bad:
    """A record that is no row. `offset` counts rows, lines or messages of the source from 0."""

    row: bytes | None
    reason: str
    source: str
    offset: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """What a live source gives at a time: rows, and records that are none.

    Splits with a time of their own are named; where there is none, rows alone tell the time. Rows of other times than
    the stream is of are left `out`. Of a source that ends, `upto` is the time before which nothing more will come.
    """

    batch: pa.RecordBatch
    split: str | None = None
    bad: tuple[Bad, ...] = ()
    out: int = 0
    upto: int | None = None


def reason_of(error: Exception) -> str:
    """Say in one line why a record is no row."""
    text = str(error).partition("\n")[0] or type(error).__name__
    return text[:_LONGEST]


def good_and_bad(
    items: Sequence[T], decode: Callable[[Sequence[T]], pa.RecordBatch]
) -> tuple[list[pa.RecordBatch], list[tuple[T, str]]]:
    """Decode all together; where that fails, each half: so one bad record among many costs few tries.

    >>> import pyarrow as pa
    >>> good, bad = good_and_bad(["1", "x", "2"], lambda some: pa.record_batch({"v": [int(s) for s in some]}))
    >>> [batch.num_rows for batch in good], bad[0][0]
    ([1, 1], 'x')
    """
    try:
        return [decode(items)], []
    except FAILURES as error:
        if len(items) <= 1:
            return [], [(item, reason_of(error)) for item in items]
    middle = len(items) // 2
    first, second = good_and_bad(items[:middle], decode), good_and_bad(items[middle:], decode)
    return first[0] + second[0], first[1] + second[1]


def without_time(
    batch: pa.RecordBatch, time: str, describe: Callable[[int, bytes], Bad]
) -> tuple[pa.RecordBatch, list[Bad]]:
    """Take out the rows that have no time; `describe` gets the number of each, and its columns as JSON."""
    if time not in batch.schema.names or batch.column(time).null_count == 0:
        return batch, []
    there = batch.column(time).is_valid()
    missing = [number for number, valid in enumerate(there.to_pylist()) if not valid]
    texts = map(as_text, batch.take(pa.array(missing, pa.int64())).to_pylist())
    return batch.filter(there), [describe(*each) for each in zip(missing, texts, strict=True)]


def as_text(row: dict[str, object]) -> bytes:
    """Write a row as JSON; what JSON does not know, as text."""
    return json.dumps(row, default=str, ensure_ascii=False).encode("utf-8", "surrogatepass")


def quarantine_table(stream: str, bad: Iterable[Bad]) -> pa.Table:
    """Make a table of malformed records."""
    rows = [
        {
            "row": each.row,
            "reason": each.reason,
            "stream": stream,
            "source": each.source,
            "offset": each.offset,
        }
        for each in bad
    ]
    return pa.Table.from_pylist(rows, QUARANTINED)
