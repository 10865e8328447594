"""Event-time progress of the splits of a stream: the slowest split that is not idle determines the time."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.runtime.stage import END_OF_TIME, START_OF_TIME


@dataclass(slots=True)
class Splits:
    """The latest time of each split, in ticks, and when it was last updated, in microseconds of wall-clock time.

    A split at END_OF_TIME has ended and does not hold back the time.

    >>> splits = Splits()
    >>> splits.hear("a", 50, now=0)
    >>> splits.hear("b", 90, now=7)
    >>> splits.time(now=8, idle_after=None), splits.time(now=10, idle_after=10), splits.time(now=99, idle_after=10)
    (50, 90, 90)
    """

    latest: dict[str, int] = field(default_factory=dict)
    heard: dict[str, int] = field(default_factory=dict)

    def hear(self, split: str, latest: int | None, now: int) -> None:
        """Update a split, and its latest time if known."""
        self.latest[split] = max(
            self.latest.get(split, START_OF_TIME), START_OF_TIME if latest is None else latest
        )
        self.heard[split] = now

    def time(self, now: int, idle_after: int | None) -> int:
        """The latest time of the slowest split that is not idle; if all are idle, that of the last to become idle."""
        going = {split: latest for split, latest in self.latest.items() if latest != END_OF_TIME}
        awake = [latest for split, latest in going.items() if not self._silent(split, now, idle_after)]
        if awake:
            return min(awake)
        last = max((self.heard.get(split, START_OF_TIME) for split in going), default=START_OF_TIME)
        return max(
            (going[split] for split in going if self.heard.get(split, START_OF_TIME) == last),
            default=START_OF_TIME,
        )

    def silent(self, now: int, idle_after: int | None) -> bool:
        """Whether all splits are idle."""
        return all(
            self._silent(split, now, idle_after)
            for split, latest in self.latest.items()
            if latest != END_OF_TIME
        )

    def _silent(self, split: str, now: int, idle_after: int | None) -> bool:
        return idle_after is not None and now - self.heard.get(split, now) >= idle_after
