"""Cut files into slices whose boundaries need more than a time halo: sessions, count windows and as-of joins.

Files must be in time order. Each task reads a run of adjacent row groups and some row groups before the run.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from penstock.analysis.slice_boundaries import Counts
from penstock.physical.choose_strategy import Halo
from penstock.plan.nodes import Source
from penstock.sources import parquet_footers
from penstock.sources.read_errors import reading
from penstock.spark.slices import CARRIED, NUMBERS, STARTS, Part, Piece, even_parts, time_slices
from penstock.storage.access import Access

# For a key without any right row, a task searches all rows before its slice. With more tasks than this, a shuffle is cheaper.
MOST_LOOKING_BACK = 16


def session_slices(pieces: Sequence[Piece], gap: int, tasks: int) -> tuple[Part, ...] | None:
    """Assign each task the sessions that start in a time range. Returns None unless files are in time order."""
    held = [piece for piece in pieces if piece.fragment.rows]
    starts = [piece.fragment.time_min or 0 for piece in held]
    if any(later < earlier for earlier, later in pairwise(starts)):
        return None
    latest = list(accumulate((piece.fragment.time_max or 0 for piece in held), max))
    begins = _begins(held, tasks)
    befores = [bisect_left(latest, starts[begin] - gap) for begin in begins]
    return _runs(held, begins, befores, [starts[begin] for begin in begins], STARTS)


def count_slices(
    pieces: Sequence[Piece], border: Counts, source: Source, tasks: int
) -> tuple[Part, ...] | None:
    """Assign each task the windows that end in its rows. Returns None if footers do not determine the row numbers."""
    held = [piece for piece in pieces if piece.fragment.rows]
    if not _follow_each_other(held, source):
        return None
    if not (source.time.implied or all_valued(held, source, (source.time.column,))):
        return None
    firsts = [piece.first_row for piece in held]
    begins = _begins(held, tasks)
    wanted = [firsts[begin] - border.past for begin in begins]
    befores = [max(bisect_right(firsts, row) - 1, 0) for row in wanted]
    return _runs(held, begins, befores, [firsts[begin] for begin in begins], NUMBERS)


def carried_slices(pieces: Sequence[Piece], halo: Halo, right: Source, tasks: int) -> tuple[Part, ...] | None:
    """Assign each task a time range with look-back. Returns None unless the right stream is in time order."""
    behind = [piece for piece in pieces if piece.stream == right.name and piece.fragment.rows]
    if tasks > MOST_LOOKING_BACK or not _follow_each_other(behind, right):
        return None
    return tuple(replace(part, by=CARRIED) for part in time_slices(pieces, halo, tasks))


def _begins(pieces: Sequence[Piece], tasks: int) -> list[int]:
    """Return the indices of the pieces at which all runs but the first begin."""
    sizes = [len(part.pieces) for part in even_parts(pieces, tasks)]
    return list(accumulate(sizes))[:-1]


def _runs(
    pieces: Sequence[Piece], begins: Sequence[int], befores: Sequence[int], cuts: Sequence[int], by: str
) -> tuple[Part, ...]:
    edges = zip(
        [0, *befores], [0, *begins], [*begins, len(pieces)], [None, *cuts], [*cuts, None], strict=True
    )
    return tuple(
        Part(tuple(pieces[min(before, begin) : end]), low, high, by, begin - min(before, begin))
        for before, begin, end, low, high in edges
    )


def _follow_each_other(pieces: Sequence[Piece], source: Source) -> bool:
    """Check that pieces do not overlap in row order. With a sequence column, adjacent pieces may not share a time."""
    fragments = [piece.fragment for piece in pieces]
    least = 0 if source.sequence is None else 1
    return not any(fragment.deletes or fragment.renamed for fragment in fragments) and all(
        (later.time_min or 0) - (earlier.time_max or 0) >= least for earlier, later in pairwise(fragments)
    )


def held_slices(
    pieces: Sequence[Piece], halo: Halo, sources: Sequence[Source], tasks: int
) -> tuple[Part, ...] | None:
    """Assign each task a time range with the samples that hold over its bounds. Returns None if such a sample may be null."""
    assert halo.held is not None
    for source in sources:
        names = tuple(name for stream, name in halo.held.valued if stream == source.name)
        mine = [piece for piece in pieces if piece.stream == source.name and piece.fragment.rows]
        if any(piece.fragment.deletes or piece.fragment.renamed for piece in mine):
            return None
        if names and not all_valued(mine, source, names):
            return None
    return time_slices(pieces, halo, tasks)


def all_valued(pieces: Sequence[Piece], source: Source, names: Sequence[str]) -> bool:
    """Check by the footers that some columns are nowhere null. A row without a time has a number but is dropped."""
    groups: dict[tuple[str, Access], set[int]] = {}
    for piece in pieces:
        numbers = range(*(piece.fragment.row_groups or (0, 0)))
        groups.setdefault((piece.fragment.path, piece.access), set()).update(numbers)
    return all(
        reading(path, lambda _: _valued(path, access, numbers, source, names))  # noqa: B023 - the lambda is called immediately
        for (path, access), numbers in groups.items()
    )


def _valued(path: str, access: Access, numbers: set[int], source: Source, names: Sequence[str]) -> bool:
    metadata = parquet_footers.footer(path, access)
    leaves = parquet_footers.leaves(metadata, source.schema, {name: name for name in names})
    found = [parquet_footers.ranges(metadata, number, leaves) for number in numbers]
    ranges = [columns.get(name) for columns in found for name in names]
    return all(one is not None and not one.nulls for one in ranges)
