"""Interpret joins by comparing every pair of samples: the reference semantics of joins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from penstock.expr.evaluate import evaluator
from penstock.ir.nodes import Asof, Join, Joined, Object, RollingJoin, pair_scope, rolling_types
from penstock.ir.samples import Rank, Row, Sample, ordering, record, reduced_over, time_at
from penstock.ir.windows import WindowBounds, windows_of
from penstock.types.windows import (
    JOIN_TIME,
    LEFT_ROW_KINDS,
    WINDOW_END,
    WINDOW_START,
    InWindow,
    Keys,
    Lookup,
    TimeWindow,
    Within,
    left_column,
    right_column,
)


@dataclass(frozen=True)
class JoinSide:
    """One input of a join."""

    object: Object
    samples: list[Sample]

    @cached_property
    def timed(self) -> list[TimedSample]:
        """The samples in order of time."""
        time = self.object.time
        found = [(at, sample) for sample in self.samples if (at := time_at(sample.row, time)) is not None]
        found.sort(key=lambda entry: (entry[0], entry[1].rank))
        return [TimedSample(place, at, sample) for place, (at, sample) in enumerate(found)]


@dataclass(frozen=True)
class TimedSample:
    """A sample, its time, and its position among the timed samples of its side."""

    place: int
    time: int
    sample: Sample


@dataclass(frozen=True)
class JoinResult:
    """One result: one or two samples, and its sort key among the results."""

    order: Rank
    left: TimedSample | None
    right: TimedSample | None
    window: WindowBounds | None = None


def joined(this: Object, body: Joined, left: JoinSide, right: JoinSide) -> list[Sample]:
    """Return the samples of a join, in order."""
    match body:
        case Join(pairing=Lookup(table=table)):
            return _looked_up(this, body, left, right, table)
        case Join():
            return _results(this, body, left, right, _found(this, body, left, right))
        case Asof():
            rows = [JoinResult((row.place,), row, _nearest(body, row, right)) for row in left.timed]
            return _results(this, body, left, right, rows)
        case RollingJoin():
            return _rolling(body, left, right)


# --- matching samples -------------------------------------------------------------------------------


def _key(row: Row, names: Iterable[str]) -> Rank | None:
    """Return a key that compares equal for equal values; None if a value is null, because null equals nothing."""
    values = [row[name] for name in names]
    return None if any(value is None for value in values) else tuple(ordering(value) for value in values)


def _matching(this: Object, body: Join, left: JoinSide, right: JoinSide) -> Callable[[Row, Row], bool]:
    """Return a predicate: two samples have equal keys and satisfy the join condition."""
    first, second = [one for one, _ in body.on], [other for _, other in body.on]
    scope = pair_scope(this.time, left.object.schema, right.object.schema)
    holds = None if body.where is None else evaluator(body.where, scope)

    def match(one: Row, other: Row) -> bool:
        key = _key(one, first)
        if key is None or key != _key(other, second):
            return False
        return holds is None or holds(_sided(one, other), ()) is True

    return match


def _sided(left: Row, right: Row) -> Row:
    return {
        **{left_column(name): value for name, value in left.items()},
        **{right_column(name): value for name, value in right.items()},
    }


def _found(this: Object, body: Join, left: JoinSide, right: JoinSide) -> list[JoinResult]:
    match = _matching(this, body, left, right)
    if isinstance(body.pairing, InWindow):
        equality = list(_in_windows(body, body.pairing, left, right))
    else:
        assert isinstance(body.pairing, Within)
        equality = [_Equality(None, left.timed, right.timed)]
    met = [key.matched(match, body.pairing) for key in equality]
    if body.how in LEFT_ROW_KINDS:
        return _chosen(body, met)
    pairs = [_pair(body, window, one, other) for window, _, _, pairs in met for one, other in pairs]
    return sorted(pairs + list(_alone(body, met)), key=lambda pair: pair.order)


@dataclass(frozen=True)
class _Equality:
    """The left and right samples of one window, or of the whole stream."""

    window: WindowBounds | None
    left: list[TimedSample]
    right: list[TimedSample]

    def matched(self, match: Callable[[Row, Row], bool], pairing: object) -> _Met:
        pairs = [
            (one, other)
            for one in self.left
            for other in self.right
            if _near(pairing, one.time, other.time) and match(one.sample.row, other.sample.row)
        ]
        return self.window, self.left, self.right, pairs


_Met = tuple[WindowBounds | None, list[TimedSample], list[TimedSample], list[tuple[TimedSample, TimedSample]]]


def _near(pairing: object, left: int, right: int) -> bool:
    return not isinstance(pairing, Within) or pairing.lo <= right - left <= pairing.hi


def _in_windows(body: Join, pairing: InWindow, left: JoinSide, right: JoinSide) -> Iterator[_Equality]:
    """List windows with their samples of both sides; sessions are per key."""
    if pairing.left != pairing.right:
        yield from _with_common_ends(pairing, left, right)
        return
    groups: dict[Rank, list[tuple[int, _Tagged]]] = {}
    for side, row, names in _both(left, right, body.on):
        key = tuple(ordering(row.sample.row[name]) for name in names)
        groups.setdefault(key, []).append((row.time, _Tagged(side, row, row.sample.row)))
    for rows in groups.values():
        rows.sort(key=lambda entry: entry[0])
    for members in windows_of(pairing.left, groups).values():
        for window, rows in members:
            yield _Equality(
                window, *([tagged.timed for _, tagged in rows if tagged.side == side] for side in (0, 1))
            )


@dataclass(frozen=True)
class _Tagged:
    """A sample and its side; `row` supplies the bounds of a carried window."""

    side: int
    timed: TimedSample
    row: Row


def _both(left: JoinSide, right: JoinSide, on: Keys) -> Iterator[tuple[int, TimedSample, list[str]]]:
    for row in left.timed:
        yield 0, row, [one for one, _ in on]
    for row in right.timed:
        yield 1, row, [other for _, other in on]


def _with_common_ends(pairing: InWindow, left: JoinSide, right: JoinSide) -> Iterator[_Equality]:
    """Pair windows of different grids that end at the same time; the result takes the earlier start."""
    one, other = pairing.left, pairing.right
    assert isinstance(one, TimeWindow) and isinstance(other, TimeWindow)
    ends: dict[int, tuple[list[TimedSample], list[TimedSample]]] = {}
    for side, (domain, timed) in enumerate(((one, left.timed), (other, right.timed))):
        for window, rows in windows_of(domain, {(): [(row.time, row) for row in timed]})[()]:
            ends.setdefault(window[1], ([], []))[side].extend(row for _, row in rows)
    for end, (first, second) in ends.items():
        if all((end - grid.offset - grid.size) % grid.every == 0 for grid in (one, other)):
            yield _Equality((end - max(one.size, other.size), end), first, second)


# --- results and their order ------------------------------------------------------------------------


def _pair(body: Join, window: WindowBounds | None, one: TimedSample, other: TimedSample) -> JoinResult:
    if window is not None:
        return JoinResult((window[1], window[0], 0, one.place, other.place), one, other, window)
    if other.time >= one.time:
        return JoinResult((other.time, 1, other.place, one.place), one, other)
    return JoinResult((one.time, 0, one.place, other.place), one, other)


def _alone(body: Join, met: Iterable[_Met]) -> Iterator[JoinResult]:
    """List the unmatched samples, once per window without a match."""
    for window, left, right, pairs in met:
        partners = {id(row) for pair in pairs for row in pair}
        for side, rows in ((0, left), (1, right)):
            if body.how in ("full", ("left", "right")[side]):
                yield from (_single(body, window, side, row) for row in rows if id(row) not in partners)


def _single(body: Join, window: WindowBounds | None, side: int, row: TimedSample) -> JoinResult:
    left, right = (row, None) if side == 0 else (None, row)
    if window is not None:
        return JoinResult((window[1], window[0], side, row.place, 0), left, right, window)
    assert isinstance(body.pairing, Within)
    wait = max(body.pairing.hi, 0) if side == 0 else max(-body.pairing.lo, 0)
    return JoinResult((row.time + wait, 2 + side, row.place, 0), left, right)


def _chosen(body: Join, met: list[_Met]) -> list[JoinResult]:
    """Return the left samples with a match anywhere (semi), or those in a window without any match (anti).

    A sample is emitted when the last window that holds it is complete.
    """
    last: dict[int, tuple[WindowBounds, TimedSample]] = {}
    for window, left, _, _ in met:
        for row in left:
            ends = (window or (0, 0))[::-1]
            last[row.place] = max(last.get(row.place, (ends, row)), (ends, row), key=lambda known: known[0])
    partnered = {one.place for _, _, _, pairs in met for one, _ in pairs}
    found = [
        JoinResult((*ends, place), row, None)
        for place, (ends, row) in last.items()
        if (place in partnered) == (body.how == "semi")
    ]
    return sorted(found, key=lambda found: found.order)


def _results(
    this: Object, body: Join | Asof, left: JoinSide, right: JoinSide, found: Iterable[JoinResult]
) -> list[Sample]:
    fields = record(body.fields, pair_scope(this.time, left.object.schema, right.object.schema))
    rows = (fields(_row(body.on, left.object, right.object, pair)) for pair in found)
    return [Sample(row, ((), place)) for place, row in enumerate(rows)]


def _row(on: Keys, left: Object, right: Object, found: JoinResult) -> Row:
    """Combine a pair into one row: a missing side is null, but a missing left side takes the right side's keys."""
    one = found.left.sample.row if found.left else dict.fromkeys(left.schema.names)
    other = found.right.sample.row if found.right else dict.fromkeys(right.schema.names)
    if found.left is None:
        one = one | {mine: other[its] for mine, its in on}
    times = [row.time for row in (found.left, found.right) if row is not None]
    start, end = found.window or (None, None)
    own = {WINDOW_START: start, WINDOW_END: end, JOIN_TIME: max(times)}
    return own | _sided(one, other)


# --- lookup, as-of and rolling joins ----------------------------------------------------------------


def _looked_up(this: Object, body: Join, left: JoinSide, right: JoinSide, table: int) -> list[Sample]:
    """Match each sample of the stream, in order of arrival, against all rows of the table."""
    match = _matching(this, body, left, right)
    fields = record(body.fields, pair_scope(this.time, left.object.schema, right.object.schema))
    stream, rows = (left, right) if table else (right, left)
    made = []
    for sample in stream.samples:
        ways = [(sample, row) if table else (row, sample) for row in rows.samples]
        pairs: list[tuple[Any, Any]] = [pair for pair in ways if match(pair[0].row, pair[1].row)]
        if body.how in LEFT_ROW_KINDS:
            pairs = [(sample, None)] if bool(pairs) == (body.how == "semi") else []
        elif not pairs and body.how != "inner":
            pairs = [(sample, None) if table else (None, sample)]
        for place, (one, other) in enumerate(pairs):
            found = JoinResult((), _timed(one), _timed(other))
            made.append(
                Sample(fields(_row(body.on, left.object, right.object, found)), (*sample.rank, place))
            )
    return made


def _timed(sample: Sample | None) -> TimedSample | None:
    return None if sample is None else TimedSample(0, 0, sample)


def _nearest(body: Asof, one: TimedSample, right: JoinSide) -> TimedSample | None:
    """Return the right sample nearest in time; of several, the last in order."""
    key = _key(one.sample.row, [name for name, _ in body.on])
    best: TimedSample | None = None
    for row in right.timed:
        apart = row.time - one.time
        if key is None or key != _key(row.sample.row, [name for _, name in body.on]):
            continue
        if not _allowed(body, apart):
            continue
        if best is None or abs(apart) <= abs(best.time - one.time):
            best = row
    return best


def _allowed(body: Asof, apart: int) -> bool:
    far = body.tolerance is not None and abs(apart) > body.tolerance
    wrong_way = (apart > 0 and body.direction == "backward") or (apart < 0 and body.direction == "forward")
    return not far and not wrong_way and (apart != 0 or body.exact)


def _rolling(body: RollingJoin, left: JoinSide, right: JoinSide) -> list[Sample]:
    schema = right.object.schema
    fields = record(body.fields, left.object.schema, rolling_types(body, right.object))
    first, second = [one for one, _ in body.on], [other for _, other in body.on]
    made = []
    for one in left.timed:
        key = _key(one.sample.row, first)
        around = [
            row.sample
            for row in right.timed
            if body.within.lo <= row.time - one.time <= body.within.hi
            and key is not None
            and key == _key(row.sample.row, second)
        ]
        reduced = reduced_over(body.reductions, [around], schema)
        made.append(Sample(fields(one.sample.row, reduced), ((), one.place)))
    return made
