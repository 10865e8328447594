"""Cut time into slices of about equal row counts, by the time statistics of row groups.

A task reads the row groups that its slice and halo overlap. Two tasks read a row group on a boundary.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby, pairwise

from penstock.physical.choose_strategy import Halo
from penstock.sources.fragment import Fragment, joined
from penstock.storage.access import LOCAL, Access

JOINED_ROWS = 1 << 20
MOST_AHEAD = 1 << 22  # rows of a task that it holds without looking at its memory
TIMES, STARTS, NUMBERS, CARRIED = "times", "starts", "numbers", "carried"


@dataclass(frozen=True, slots=True)
class Piece:
    """A fragment of a stream's files, the number of its first row in the stream, and how the file is reached.

    The last is no part of what a plan or a partition says: it may hold secrets.
    """

    stream: str
    fragment: Fragment
    first_row: int
    access: Access = LOCAL


@dataclass(frozen=True, slots=True)
class Part:
    """The work of one task: the pieces it reads, and the range of results it emits, from `low` up to `high`, exclusive.

    None means unbounded. `by` defines what the range compares: times of results, starts of sessions, or numbers of the last
    rows of count windows. CARRIED compares times and carries in rows from before the slice. The first `borrowed` pieces
    belong to earlier tasks.
    """

    pieces: tuple[Piece, ...]
    low: int | None = None
    high: int | None = None
    by: str = TIMES
    borrowed: int = 0

    @property
    def rows(self) -> int:
        return sum(piece.fragment.rows or 0 for piece in self.pieces)


def time_known(pieces: Sequence[Piece]) -> bool:
    """Check that every piece with rows has a known time range and row count."""
    return all(
        piece.fragment.time_min is not None
        and piece.fragment.time_max is not None
        and piece.fragment.rows is not None
        for piece in pieces
        if piece.fragment.rows != 0
    )


def span_of(pieces: Sequence[Piece]) -> int:
    """Return the time from the first row of all pieces to the last, in ticks."""
    ends = [
        (piece.fragment.time_min or 0, piece.fragment.time_max or 0)
        for piece in pieces
        if piece.fragment.rows
    ]
    return max((last for _, last in ends), default=0) - min((first for first, _ in ends), default=0)


def time_slices(pieces: Sequence[Piece], halo: Halo, tasks: int) -> tuple[Part, ...]:
    """Assign each task a time slice, cut at starts of row groups or at ends of windows, whichever makes the largest task smaller."""
    cuts, lines = _cuts(pieces, tasks), _timelines(pieces, halo)
    anywhere = _sliced(lines, cuts, halo)
    if halo.step == 1:
        return anywhere
    ends = sorted({cut - (cut - halo.border) % halo.step for cut in cuts})
    first = min((line.first[0] for line in lines if line.first), default=0)
    at_ends = _sliced(
        lines, [end for end in ends if end > first], Halo(halo.past - halo.step + 1, halo.future)
    )
    return min(at_ends, anywhere, key=longest)


def _sliced(lines: Sequence[_Timeline], cuts: Sequence[int], halo: Halo) -> tuple[Part, ...]:
    edges = zip([None, *cuts], [*cuts, None], strict=True)
    return tuple(Part(_touched(lines, low, high, halo), low, high) for low, high in edges)


def longest(parts: Sequence[Part]) -> int:
    """Return the row count of the largest part."""
    return max(part.rows for part in parts)


def in_turn(part: Part) -> bool:
    """Return whether few rows of a part are ahead of its watermark at any time, so that a task holds few.

    The watermark behind a piece is the earliest time of all later pieces of its stream.
    """
    for stream in {piece.stream for piece in part.pieces}:
        pieces = [piece for piece in part.pieces if piece.stream == stream and piece.fragment.rows != 0]
        if not time_known(pieces) or _most_ahead(pieces) > MOST_AHEAD:
            return False
    return True


def _most_ahead(pieces: Sequence[Piece]) -> int:
    """Return the largest number of rows that a later piece may precede."""
    ends = [(piece.fragment.time_max or 0, piece.fragment.rows or 0) for piece in pieces]
    starts = [piece.fragment.time_min or 0 for piece in pieces]
    marks = list(accumulate(reversed(starts), min))[::-1]  # the earliest time from each piece on
    most, ahead = 0, list[tuple[int, int]]()
    for place, end in enumerate(ends):
        ahead = (
            [*ahead, end]
            if place + 1 == len(ends)
            else [(last, rows) for last, rows in [*ahead, end] if last >= marks[place + 1]]
        )
        most = max(most, sum(rows for _, rows in ahead))
    return most


def even_parts(pieces: Sequence[Piece], tasks: int) -> tuple[Part, ...]:
    """Assign each task a run of adjacent pieces with about equal row counts."""
    weights = list(accumulate(piece.fragment.rows or piece.fragment.size or 1 for piece in pieces))
    if not weights:
        return (Part(()),)
    bounds = [bisect_left(weights, weights[-1] * part / tasks) + 1 for part in range(1, tasks)]
    edges = sorted({0, len(pieces), *(min(bound, len(pieces)) for bound in bounds)})
    return tuple(Part(tuple(pieces[lo:hi])) for lo, hi in pairwise(edges))


def read_again(parts: Sequence[Part], pieces: Sequence[Piece]) -> float:
    """Return the ratio of rows read by all tasks to rows stored."""
    return sum(part.rows for part in parts) / max(sum(piece.fragment.rows or 0 for piece in pieces), 1)


def _cuts(pieces: Sequence[Piece], tasks: int) -> list[int]:
    """Choose the start times of slices: starts of row groups, after equal shares of the rows."""
    starts = sorted(
        (piece.fragment.time_min or 0, piece.fragment.rows or 0) for piece in pieces if piece.fragment.rows
    )
    counted = list(accumulate(rows for _, rows in starts))
    if not counted:
        return []
    # A row group begins after the rows of all earlier groups.
    wanted = (counted[-1] * part / tasks for part in range(1, tasks))
    places = (bisect_left(counted, share - 1e-9) + 1 for share in wanted)
    return sorted({starts[place][0] for place in places if place < len(starts)} - {starts[0][0]})


@dataclass(frozen=True, slots=True)
class _Timeline:
    """Non-empty pieces by start time, with their indices, and the running maximum of end times.

    A lake has a hundred thousand row groups and a job thousands of tasks. Binary search avoids comparing each pair.
    `ends` are the sorted end times if the samples nearest to a slice are read, else empty.
    """

    places: tuple[tuple[int, Piece], ...]
    first: tuple[int, ...]
    latest: tuple[int, ...]
    ends: tuple[int, ...] = ()

    def before(self, time: int) -> int | None:
        """Return a time before `time` at or after which the last sample before it lies; None if all rows are to be read."""
        place = bisect_left(self.ends, time)
        return self.ends[place - 1] if place else None

    def behind(self, time: int) -> int | None:
        """Return the time of the first sample of the next row group after `time`; None if there is none."""
        place = bisect_left(self.first, time)
        return self.first[place] if place < len(self.first) else None


def _timelines(pieces: Sequence[Piece], halo: Halo) -> list[_Timeline]:
    """Return one timeline, or one for each stream whose nearest samples are read and one for the others."""
    held = () if halo.held is None else halo.held.streams
    numbered = [(place, piece) for place, piece in enumerate(pieces) if piece.fragment.rows]
    rest = _timeline([pair for pair in numbered if pair[1].stream not in held], False)
    return [rest, *(_timeline([pair for pair in numbered if pair[1].stream == name], True) for name in held)]


def _timeline(pieces: Sequence[tuple[int, Piece]], held: bool) -> _Timeline:
    places = sorted(pieces, key=lambda pair: pair[1].fragment.time_min or 0)
    first = (piece.fragment.time_min or 0 for _, piece in places)
    last = [piece.fragment.time_max or 0 for _, piece in places]
    return _Timeline(
        tuple(places), tuple(first), tuple(accumulate(last, max)), tuple(sorted(last)) if held else ()
    )


def _touched(lines: Sequence[_Timeline], low: int | None, high: int | None, halo: Halo) -> tuple[Piece, ...]:
    """Return the pieces that overlap [low - past, high + future), in their original order.

    Where samples hold over the bounds, the pieces with the nearest samples before and after are among them.
    """
    found: list[tuple[int, Piece]] = []
    for line in lines:
        start = None if low is None else low - halo.past
        stop = None if high is None else high + halo.future
        if line.ends:
            start = None if start is None else line.before(start)
            after = None if stop is None else line.behind(stop)
            stop = None if after is None else after + 1
        begin = 0 if start is None else bisect_left(line.latest, start)
        end = len(line.first) if stop is None else bisect_left(line.first, stop)
        found += [
            (place, piece)
            for place, piece in line.places[begin:end]
            if start is None or (piece.fragment.time_max or 0) >= start
        ]
    return tuple(piece for _, piece in sorted(found, key=lambda pair: pair[0]))


def joined_part(part: Part) -> Part:
    """Merge adjacent row groups, so that a task's description is shorter and it opens files less often."""
    before, own = _joined(part.pieces[: part.borrowed]), _joined(part.pieces[part.borrowed :])
    return replace(part, pieces=(*before, *own), borrowed=len(before))


def _joined(given: Sequence[Piece]) -> list[Piece]:
    made: list[Piece] = []
    for stream, several in groupby(given, key=lambda piece: piece.stream):
        pieces = list(several)
        firsts = {
            (piece.fragment.path, piece.fragment.row_groups and piece.fragment.row_groups[0]): piece.first_row
            for piece in pieces
        }
        for fragment in joined((piece.fragment for piece in pieces), JOINED_ROWS):
            place = fragment.path, fragment.row_groups and fragment.row_groups[0]
            made.append(Piece(stream, fragment, firsts[place], pieces[0].access))
    return made


def as_json(part: Part) -> dict[str, object]:
    """Encode a part as JSON values."""
    pieces = [[piece.stream, piece.fragment.to_json(), piece.first_row] for piece in part.pieces]
    bounds = {"low": part.low, "high": part.high, "by": part.by, "borrowed": part.borrowed}
    return {"pieces": pieces, **bounds}


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The parts of a job's other tasks as JSON texts, decoded on demand."""

    texts: Sequence[str]
    number: int
    accesses: Mapping[str, Access] = field(default_factory=dict)

    def before(self) -> Iterator[Part]:
        """Yield the parts before this one, nearest first."""
        return (from_json(json.loads(text), self.accesses) for text in reversed(self.texts[: self.number]))

    def behind(self) -> Iterator[Part]:
        """Yield the parts after this one, nearest first."""
        return (from_json(json.loads(text), self.accesses) for text in self.texts[self.number + 1 :])


def from_json(given: Mapping[str, object], accesses: Mapping[str, Access] | None = None) -> Part:
    """Decode the output of `as_json`. How the files of a stream are reached comes from elsewhere."""
    known = accesses or {}
    match given:
        case {
            "pieces": list(pieces),
            "low": None | int() as low,
            "high": None | int() as high,
            "by": "times" | "starts" | "numbers" | "carried" as by,
            "borrowed": int(borrowed),
        }:
            made = (
                Piece(str(name), Fragment.from_json(text), int(row), known.get(name, LOCAL))
                for name, text, row in pieces
            )
            return Part(tuple(made), low, high, by, borrowed)
    raise ValueError("this is not what a task was given")
