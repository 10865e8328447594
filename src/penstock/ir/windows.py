"""The reference definition of every window domain: which samples lie in which window.

A sample is a pair (time, payload); only times and the order of samples matter.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.types.calendar import calendar_windows
from penstock.types.windows import (
    WINDOW_END,
    WINDOW_START,
    Calendar,
    CarriedWindow,
    Count,
    LookBack,
    Session,
    TimeWindow,
    Unbounded,
    Window,
)

WindowBounds = tuple[int, int]
Timed = tuple[int, Any]
_Key = TypeVar("_Key", bound=Hashable)

Members = list[tuple[WindowBounds, list[Timed]]]


def windows_of(domain: Window, groups: Mapping[_Key, Sequence[Timed]]) -> dict[_Key, Members]:
    """List the non-empty windows of each key with their samples; the samples of each key are in order.

    >>> windows_of(Session(5), {"a": [(1, "x"), (6, "y"), (20, "z")]})
    {'a': [((1, 11), [(1, 'x'), (6, 'y')]), ((20, 25), [(20, 'z')])]}
    """
    match domain:
        case Session(gap=gap):
            return _windows_by_key(groups, lambda rows: _sessions(rows, gap))
        case Count():
            return _windows_by_key(groups, lambda rows: _counted(rows, domain))
        case Unbounded():
            return _whole(groups)
        case _:
            return _windows_by_key(groups, lambda rows: _placed(rows, domain))


def _windows_by_key(
    groups: Mapping[_Key, Sequence[Timed]], cut: Callable[[Sequence[Timed]], Members]
) -> dict[_Key, Members]:
    return {key: cut(rows) for key, rows in groups.items()}


def _placed(rows: Sequence[Timed], domain: Window) -> Members:
    """Assign samples to windows that depend on the sample's time, or on its carried window, alone."""
    found: dict[WindowBounds, list[Timed]] = {}
    for time, row in rows:
        for window in _covering(domain, time, row):
            found.setdefault(window, []).append((time, row))
    return sorted(found.items(), key=lambda item: (item[0][1], item[0][0]))


def _covering(domain: Window, at: int, sample: Any) -> list[WindowBounds]:
    match domain:
        case TimeWindow(size=size, every=every, offset=offset):
            latest = at - (at - offset) % every
            return [(start, start + size) for start in range(latest, at - size, -every)]
        case Calendar():
            return [window for window in calendar_windows(domain, at, at) if window[0] <= at < window[1]]
        case CarriedWindow():
            start, end = sample.row[WINDOW_START], sample.row[WINDOW_END]
            return [] if start is None or end is None else [(start, end)]
        case _:
            raise AssertionError(f"{type(domain).__name__} is not decided sample by sample")


def _sessions(rows: Sequence[Timed], gap: int) -> Members:
    runs: list[list[Timed]] = []
    for row in rows:
        if runs and row[0] <= runs[-1][-1][0] + gap:
            runs[-1].append(row)
        else:
            runs.append([row])
    return [((run[0][0], run[-1][0] + gap), run) for run in runs]


def sessions_of(times: Sequence[int], gap: int) -> list[tuple[int, int]]:
    """List the first and the last time of each session; `times` are sorted.

    >>> sessions_of([0, 9, 30], 10)
    [(0, 9), (30, 30)]
    """
    return [(run[0][0], run[-1][0]) for _, run in _sessions([(time, None) for time in times], gap)]


def placed_windows(domain: TimeWindow | Calendar, time: int) -> list[WindowBounds]:
    """List the windows of a grid or calendar that hold a time.

    >>> sorted(placed_windows(TimeWindow(10, 5), 7))
    [(0, 10), (5, 15)]
    """
    return _covering(domain, time, None)


def _counted(rows: Sequence[Timed], count: Count) -> Members:
    found: Members = []
    for first in range(0, len(rows), count.every):
        members = list(rows[first : first + count.size])
        if len(members) == count.size or count.partial:
            found.append(((members[0][0], members[-1][0] + 1), members))
    return found


def _whole(groups: Mapping[_Key, Sequence[Timed]]) -> dict[_Key, Members]:
    times = [time for rows in groups.values() for time, _ in rows]
    return {key: [((min(times), max(times) + 1), list(rows))] for key, rows in groups.items()}


def behind(span: LookBack, rows: Sequence[Timed], place: int) -> list[Timed]:
    """List the samples in the look-back span of the sample at `place`; `rows` are those of its key, in order."""
    now = rows[place][0] - span.delay
    if span.rows is not None:
        own = span.closed != "left"
        passed = sum(time < now or (own and time == now) for time, _ in rows)
        until = place + own if span.delay == 0 else passed
        return list(rows[max(until - span.rows, 0) : until])
    assert span.size is not None
    oldest, newest = span.closed in ("left", "both"), span.closed in ("right", "both")
    since = now - span.size
    return [
        row
        for row in rows
        if (since < row[0] or (oldest and row[0] == since)) and (row[0] < now or (newest and row[0] == now))
    ]


# --- The reference definition of late rows, for every window domain.
#
# An arrival is (time, key, watermark): the watermark is computed from the rows that arrived before the row.
# Arrivals are given in order of arrival; batch boundaries do not matter.

Arrival = tuple[int, Hashable, int]

ON_TIME, PARTLY_LATE, LATE = "on time", "partly late", "late"


def fates(domain: Window, arrivals: Iterable[Arrival], begin_earlier: bool = True) -> list[str]:
    """Classify each row as on time, partly late or late.

    Without `begin_earlier`, no row behind the watermark extends a session to an earlier start. This applies where
    a later stage reads the rows of the sessions by their own times.
    >>> fates(TimeWindow(10, 5), [(22, "a", 0), (17, "a", 22), (9, "a", 22)])
    ['on time', 'partly late', 'late']
    >>> fates(Session(10), [(0, "a", 0), (9, "a", 0), (5, "a", 9), (-20, "a", 9)])
    ['on time', 'on time', 'on time', 'late']
    """
    judge = _judge(domain, begin_earlier)
    return [judge(*arrival) for arrival in arrivals]


def _judge(domain: Window, begin_earlier: bool) -> Callable[[int, Hashable, int], str]:
    match domain:
        case Session(gap=gap):
            return _Sessions(gap, gap if begin_earlier else 0)
        case TimeWindow() | Calendar():
            return lambda time, key, watermark: _fates_by_place(domain, time, watermark)
        case Unbounded():
            return lambda time, key, watermark: ON_TIME
        case _:
            return lambda time, key, watermark: LATE if time < watermark else ON_TIME


def _fates_by_place(domain: TimeWindow | Calendar, time: int, watermark: int) -> str:
    """Compare the ends of the windows that hold a row with the watermark. A row in no window is not late."""
    emitted = [end <= watermark for _, end in placed_windows(domain, time)]
    if not any(emitted):
        return ON_TIME
    return LATE if all(emitted) else PARTLY_LATE


@dataclass
class _Sessions:
    """Per key: the times of the open sessions, and the end of the last emitted session until it expires.

    A row behind the watermark may precede the session that it joins by at most `before`.
    """

    gap: int
    before: int
    times: dict[Hashable, list[int]] = field(default_factory=dict)
    ended: dict[Hashable, int] = field(default_factory=dict)

    def __call__(self, time: int, key: Hashable, watermark: int) -> str:
        self._emit(key, watermark)
        self._forget(key, watermark)
        if time < watermark and (not self._in_open_session(time, key) or self._in_emitted_session(time, key)):
            return LATE
        self.times.setdefault(key, []).append(time)
        return ON_TIME

    def _open(self, key: Hashable) -> list[tuple[int, int]]:
        """List the first and the last time of each open session."""
        return sessions_of(sorted(self.times.get(key, [])), self.gap)

    def _emit(self, key: Hashable, watermark: int) -> None:
        """Close the sessions that no row can join: one at `last + gap` still joins, so the watermark must be later."""
        for _, last in self._open(key):
            if last + self.gap < watermark:
                self.ended[key] = last + self.gap
                self.times[key] = [time for time in self.times[key] if time > last]

    def _forget(self, key: Hashable, watermark: int) -> None:
        """Drop a session end once every open or future session begins more than two gaps after it."""
        if key in self.ended:
            begins = [first for first, _ in self._open(key)]
            if min([watermark, *begins]) > self.ended[key] + 2 * self.gap:
                del self.ended[key]

    def _in_open_session(self, time: int, key: Hashable) -> bool:
        return any(first - self.before <= time <= last + self.gap for first, last in self._open(key))

    def _in_emitted_session(self, time: int, key: Hashable) -> bool:
        return key in self.ended and time <= self.ended[key]
