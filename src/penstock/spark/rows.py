"""Rows for a task's session: read from files piece by piece, or received from a DataFrame."""

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
from penstock.runtime.stage import END_OF_TIME
from penstock.sources.conform import conformer
from penstock.sources.malformed import Bad, Malformed
from penstock.sources.parquet_footers import Footer
from penstock.sources.prefetch import read
from penstock.spark.slices import Part, Piece
from penstock.spark.streaming.late_and_malformed import write_bad

# Rows are buffered up to this number before a push.
GROUP_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class StreamRows:
    """Rows of a stream. `first_row` is the number of the first row, if rows of the stream are numbered.

    `watermark` is a lower bound on the times of all later rows.
    """

    stream: str
    batches: Sequence[pa.RecordBatch]
    first_row: int | None = None
    watermark: int | None = None


def rows_of_part(compiled: Compiled, part: Part) -> Iterator[StreamRows]:
    """Read the pieces of a task, row group by row group, and skip row groups without a useful row.

    If each stream's pieces are in time order, streams are interleaved: results are emitted early, and few rows are buffered.
    """
    sources = {source.name: source for source in sources_of(compiled.plan)}
    footers: dict[str, dict[str, Footer]] = {}  # per stream, the footer of its current file
    pieces = _in_turns(part.pieces)
    for piece, mark in zip(pieces, _watermarks(pieces), strict=True):
        path = piece.fragment.path
        if path not in footers.get(piece.stream, {}):
            footers[piece.stream] = {path: Footer(path, piece.access)}
        yield from rows_of_piece(compiled, piece, sources[piece.stream], footers[piece.stream][path])
        if mark is not None:
            yield StreamRows(piece.stream, (), None, mark)


def rows_of_piece(
    compiled: Compiled, piece: Piece, source: Source, footer: Footer | None = None
) -> Iterator[StreamRows]:
    """Read one piece in groups of about GROUP_ROWS rows."""
    kept = source.on_bad == "quarantine"
    where = None if kept else compiled.predicates.get(piece.stream)
    columns = _stored(compiled.columns[piece.stream], source)
    bad: list[Bad] = []
    malformed = Malformed(source.on_bad, source.time.column)
    batches = read(
        piece.fragment,
        source.schema,
        columns,
        where,
        footer or Footer(piece.fragment.path, piece.access),
        steps=compiled.coarse_times.get(piece.stream),
        malformed=malformed,
        access=piece.access,
    )
    first = piece.first_row
    for group in grouped(batches, GROUP_ROWS):
        yield StreamRows(piece.stream, group, first)
        first += sum(batch.num_rows for batch in group)
        bad += malformed.taken() if kept else ()
        malformed.found.clear()
    # Every task that reads the file to its end writes the same records under the same name.
    write_bad(source, piece.fragment.to_json(), [*bad, *malformed.taken()], piece.access)


def _stored(columns: Sequence[str], source: Source) -> list[str]:
    return [name for name in columns if name in source.schema.names]


def _in_turns(pieces: Sequence[Piece]) -> Sequence[Piece]:
    """Interleave the pieces of several streams by time, unless that would reorder one of the streams."""
    streams = {piece.stream for piece in pieces}
    if len(streams) == 1 or any(piece.fragment.time_min is None for piece in pieces):
        return pieces
    ordered = sorted(pieces, key=lambda piece: piece.fragment.time_min or 0)
    kept = all(
        [piece for piece in ordered if piece.stream == stream]
        == [piece for piece in pieces if piece.stream == stream]
        for stream in streams
    )
    return ordered if kept else pieces


def _watermarks(pieces: Sequence[Piece]) -> list[int | None]:
    """Return, for each piece, the earliest time of later pieces of the same stream.

    With several streams, a stream that has ended does not hold back the others.
    """
    streams = {piece.stream for piece in pieces}
    if any(piece.fragment.time_min is None for piece in pieces):
        return [None] * len(pieces)
    earliest: dict[str, int | None] = dict.fromkeys(streams, END_OF_TIME if len(streams) > 1 else None)
    marks: list[int | None] = []
    for piece in reversed(pieces):
        later, start = earliest[piece.stream], piece.fragment.time_min
        marks.append(later)
        assert start is not None
        earliest[piece.stream] = start if later is None else min(later, start)
    return marks[::-1]


def rows_of_frame(
    stream: str, source: Source, columns: Sequence[str], batches: Iterable[pa.RecordBatch], ordered: bool
) -> Iterator[StreamRows]:
    """Convert the batches of a DataFrame. If they are in time order, each group carries its last time as watermark."""
    where = f"the DataFrame of stream {stream!r}"
    stored = _stored(columns, source)
    conformed = (conformer(batch.schema, source.schema, stored, where)(batch) for batch in batches)
    for group in grouped(conformed, GROUP_ROWS):
        whole = pa.Table.from_batches(group).combine_chunks().to_batches()
        yield StreamRows(stream, whole, None, _last_time(whole, source) if ordered else None)


def _last_time(batches: Sequence[pa.RecordBatch], source: Source) -> int | None:
    times = batches[-1].column(source.time.column) if batches else None
    if times is None or not len(times) or times.null_count:
        return None
    return int(ticks_of(times)[-1])


def run_through(session: Session, rows: Iterable[StreamRows]) -> Iterator[pa.RecordBatch]:
    """Push rows, and yield results as they become complete."""
    for row in rows:
        if row.first_row is not None:
            session.number_from(row.stream, row.first_row)
        yield from session.push(row.stream, *row.batches)
        if row.watermark is not None:
            yield from session.advance(row.watermark, row.stream)
