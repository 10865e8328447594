"""Handle the boundaries of a slice in a task: which results it emits, and how far beyond the slice it reads.

A time slice needs only its halo. A session belongs to the slice it starts in; the task reads the pieces of later
tasks until the last of its sessions has ended. A count window belongs to the slice of its last row. Count windows
begin at multiples of a number of rows, so the rows before the first multiple are skipped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa

from penstock.analysis.slice_boundaries import Counts, Sessions, slice_borders
from penstock.compile import Compiled
from penstock.plan.nodes import Source
from penstock.plan.schema import sources_of, time_of
from penstock.runtime.buffers import flags, ticks_of
from penstock.spark.asof_carry_in import rows_with_carry
from penstock.spark.rows import StreamRows, rows_of_part
from penstock.spark.session_tracking import Chains, key_words
from penstock.spark.slices import CARRIED, NUMBERS, STARTS, Neighbours, Part
from penstock.types.windows import WINDOW_START

Choose = Callable[[pa.RecordBatch], pa.RecordBatch]


# --- rows ---------------------------------------------------------------------------------------------------


def rows_within(compiled: Compiled, part: Part, others: Neighbours) -> Iterator[StreamRows]:
    """Read the rows that a task needs for its results."""
    if part.by == CARRIED:
        return rows_with_carry(compiled, part, others.before())
    border = slice_borders(compiled.program) if part.by in (STARTS, NUMBERS) else None
    if isinstance(border, Sessions):
        return _until_sessions_end(compiled, border, part, others.behind())
    if isinstance(border, Counts):
        return _from_a_window_on(compiled, border, part)
    return rows_of_part(compiled, part)


def _until_sessions_end(
    compiled: Compiled, border: Sessions, part: Part, later: Iterator[Part]
) -> Iterator[StreamRows]:
    """Read a slice, then later parts until every session that started in the slice has ended."""
    (source,) = sources_of(compiled.plan)
    chains = Chains(border.gap, part.low, part.high, border.exact)
    for rows in _with_end(rows_of_part(compiled, part), part):
        _follow(chains, rows, source, border.keys)
        yield rows
    for after in later if part.high is not None else ():
        own = Part(after.pieces[after.borrowed :], high=after.high)
        for rows in _with_end(rows_of_part(compiled, own), own):
            if not chains.open():
                return
            _follow(chains, rows, source, border.keys)
            yield rows


def _with_end(rows: Iterable[StreamRows], part: Part) -> Iterator[StreamRows]:
    """Append a watermark after a part's rows: later parts hold no row before `high`."""
    yield from rows
    if part.high is not None and part.pieces:
        yield StreamRows(part.pieces[0].stream, (), None, part.high)


def _follow(chains: Chains, rows: StreamRows, source: Source, keys: Sequence[str]) -> None:
    for batch in rows.batches:
        times = batch.column(source.time.column)
        there = batch if not times.null_count else batch.filter(times.is_valid())
        words = key_words([there.column(name) for name in keys], there.num_rows)
        chains.add(words, ticks_of(there.column(source.time.column)))
    if rows.watermark is not None:
        chains.advance(rows.watermark)


def _from_a_window_on(compiled: Compiled, border: Counts, part: Part) -> Iterator[StreamRows]:
    """Read a slice, skipping the rows before the first window start."""
    (source,) = sources_of(compiled.plan)
    left = -part.pieces[0].first_row % border.every if part.pieces else 0
    counted = list(accumulate(piece.fragment.rows or 0 for piece in part.pieces))
    head = bisect_right(counted, left) + 1 if left else 0  # pieces are ordered; rows of a piece may not be
    first = [batch for rows in rows_of_part(compiled, Part(part.pieces[:head])) for batch in rows.batches]
    if first and source.time.implied:
        rest = pa.Table.from_batches(first).slice(left).combine_chunks().to_batches()
        yield StreamRows(source.name, rest, part.pieces[0].first_row + left)
    elif first:
        yield StreamRows(source.name, _without_first(first, left, source))
    yield from rows_of_part(compiled, Part(part.pieces[head:]))


def _without_first(batches: Sequence[pa.RecordBatch], left: int, source: Source) -> list[pa.RecordBatch]:
    """Drop the `left` earliest rows."""
    table = pa.Table.from_batches(batches)
    keys = [(name, "ascending") for name in (source.time.column, source.sequence) if name is not None]
    import pyarrow.compute as pc  # noqa: PLC0415 - loads when rows are sorted

    order = pc.sort_indices(table, sort_keys=keys).to_numpy()
    kept = np.ones(table.num_rows, bool)
    kept[order[:left]] = False
    return list(table.filter(flags(kept)).combine_chunks().to_batches())


# --- results ------------------------------------------------------------------------------------------------


def results_in(part: Part | None, compiled: Compiled) -> Choose:
    """Return the function that keeps the results of a task's slice."""
    if part is None or (part.low is None and part.high is None):
        return lambda batch: batch
    if part.by == NUMBERS:
        return _numbered(part, compiled)
    time = time_of(compiled.plan)
    column, shift = (WINDOW_START, 0) if part.by == STARTS else (time.column, time.shift)
    return lambda batch: _between(batch, ticks_of(batch.column(column), shift), part)


def _between(batch: pa.RecordBatch, places: np.ndarray, part: Part) -> pa.RecordBatch:
    inside = np.ones(len(places), bool)
    if part.low is not None:
        inside &= places >= part.low
    if part.high is not None:
        inside &= places < part.high
    return batch if inside.all() else batch.filter(flags(inside))


def _numbered(part: Part, compiled: Compiled) -> Choose:
    """Number count windows in output order, which gives the number of each last row."""
    border = slice_borders(compiled.program)
    assert isinstance(border, Counts)
    first = part.pieces[0].first_row if part.pieces else 0
    given = -(-first // border.every)

    def chosen(batch: pa.RecordBatch) -> pa.RecordBatch:
        nonlocal given
        numbers = np.arange(given, given + batch.num_rows)
        given += batch.num_rows
        return _between(batch, numbers * border.every + border.size - 1, part)

    return chosen
