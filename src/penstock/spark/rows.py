"""Rows on their way into a task's session: read from files piece by piece, or taken from a DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.api.execute import grouped
from penstock.compile import Compiled
from penstock.plan.nodes import Source
from penstock.plan.schema import sources_of
from penstock.runtime.buffers import ticks_of
from penstock.runtime.session import Session
from penstock.sources.ahead import Footer, read
from penstock.sources.conform import conformer
from penstock.spark.slices import Part, Piece

# Rows that wait until they are worth a push.
GROUP_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a stream. `first_row` numbers the first of them, if rows of the stream are numbered.

    `watermark` says that no row before that time comes any more.
    """

    stream: str
    batches: Sequence[pa.RecordBatch]
    first_row: int | None = None
    watermark: int | None = None


def rows_of_part(compiled: Compiled, part: Part) -> Iterator[Rows]:
    """Read the pieces of a task, row group by row group, leaving out groups of which no row is of use."""
    predicates = compiled.predicates
    sources = {source.name: source for source in sources_of(compiled.plan)}
    footers: dict[str, Footer] = {}
    marks = _watermarks(part.pieces)
    for piece, mark in zip(part.pieces, marks, strict=True):
        source = sources[piece.stream]
        where = predicates.get(piece.stream)
        path = piece.fragment.path
        if path not in footers:
            footers = {path: Footer(path)}
        columns = compiled.columns[piece.stream]
        batches = read(piece.fragment, source.schema, _stored(columns, source), where, footers[path])
        first = piece.first_row
        for group in grouped(batches, GROUP_ROWS):
            yield Rows(piece.stream, group, first)
            first += sum(batch.num_rows for batch in group)
        if mark is not None:
            yield Rows(piece.stream, (), None, mark)


def _stored(columns: Sequence[str], source: Source) -> list[str]:
    return [name for name in columns if name in source.schema.names]


def _watermarks(pieces: Sequence[Piece]) -> list[int | None]:
    """Tell after each piece of one stream how early the times of those that follow can be."""
    starts = [each.fragment.time_min for each in pieces]
    if None in starts or len({each.stream for each in pieces}) != 1:
        return [None] * len(pieces)
    marks: list[int | None] = []
    earliest: int | None = None
    for start in reversed(starts):
        marks.append(earliest)
        assert start is not None
        earliest = start if earliest is None else min(earliest, start)
    return marks[::-1]


def rows_of_frame(
    stream: str, source: Source, columns: Sequence[str], batches: Iterable[pa.RecordBatch], ordered: bool
) -> Iterator[Rows]:
    """Take the batches that Spark delivers; where they come in order of time, time moves with them."""
    where = f"the DataFrame of stream {stream!r}"
    stored = _stored(columns, source)
    conformed = (conformer(batch.schema, source.schema, stored, where)(batch) for batch in batches)
    for group in grouped(conformed, GROUP_ROWS):
        whole = pa.Table.from_batches(group).combine_chunks().to_batches()
        yield Rows(stream, whole, None, _last_time(whole, source) if ordered else None)


def _last_time(batches: Sequence[pa.RecordBatch], source: Source) -> int | None:
    times = batches[-1].column(source.time.column) if batches else None
    if times is None or not len(times) or times.null_count:
        return None
    return int(ticks_of(times)[-1])


def run_through(session: Session, rows: Iterable[Rows]) -> Iterator[pa.RecordBatch]:
    """Push rows, giving results as they become complete."""
    for each in rows:
        if each.first_row is not None:
            session.number_from(each.stream, each.first_row)
        yield from session.push(each.stream, *each.batches)
        if each.watermark is not None:
            yield from session.advance(each.watermark, each.stream)
