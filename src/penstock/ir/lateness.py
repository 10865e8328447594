"""The reference definition of late rows, for every window domain.

An arrival is (time, key, watermark): the watermark is computed from the rows that arrived before the row.
Arrivals are given in order of arrival; batch boundaries do not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from penstock.ir.windows import placed_windows, sessions_of
from penstock.types.windows import Calendar, Session, TimeWindow, Unbounded, Window

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
            return lambda time, key, watermark: _placed(domain, time, watermark)
        case Unbounded():
            return lambda time, key, watermark: ON_TIME
        case _:
            return lambda time, key, watermark: LATE if time < watermark else ON_TIME


def _placed(domain: TimeWindow | Calendar, time: int, watermark: int) -> str:
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
