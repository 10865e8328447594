"""Sensors: what a task costs and keeps, always measured, at the price of a few readings of the clock and of counters.

Each sensor follows a moving mean of its readings, and their noise. Only a change well beyond noise counts, and only if
two readings in a row show it. Readings are per row, so tasks of any size compare.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

_WEIGHT = 0.2  # of the newest task
FEWEST_TASKS = 4  # tasks before a mean says anything
_BEYOND_NOISE = 4.0  # mean deviations
ROWS_OF_SMALL_TASK = 1 << 10  # smaller tasks measure what surrounds kernels

COST, KEPT = "ns", "kept"


class Limit(NamedTuple):
    """The least change that is worth a profile: a share of the mean, and a number."""

    relative: float
    absolute: float


# Hardware counters and probes double before they count: caches are shared with other programs.
LIMITS: dict[str, Limit] = {
    COST: Limit(0.25, 0.0),
    KEPT: Limit(0.0, 0.1),
    "probe length": Limit(1.0, 1.0),
    "merge ns": Limit(1.0, 1.0),
    "branch misses": Limit(1.0, 0.05),
    "cache misses": Limit(1.0, 0.05),
}


@dataclass(slots=True)
class Reading:
    """The moving mean of one sensor, and its noise: the mean deviation."""

    mean: float = 0.0
    noise: float = 0.0
    tasks: int = 0
    odd: int = 0  # values in a row beyond noise

    def is_odd(self, value: float, limit: Limit | None) -> int:
        """Follow a value, or count it as odd; return how many in a row are. Without a limit none is."""
        if limit is None or not self.differs(value, limit):
            self.follow(value)
            self.odd = 0
        else:
            self.odd += 1
        return self.odd

    def differs(self, value: float, limit: Limit) -> bool:
        """Whether a value lies beyond noise, by more than the limit."""
        least = max(_BEYOND_NOISE * self.noise, limit.relative * abs(self.mean), limit.absolute)
        return self.tasks >= FEWEST_TASKS and abs(value - self.mean) > least

    def follow(self, value: float) -> None:
        """Move the mean towards a value."""
        weight = 1 / (self.tasks + 1) if self.tasks < FEWEST_TASKS else _WEIGHT
        self.noise += weight * (abs(value - self.mean) - self.noise) if self.tasks else 0.0
        self.mean += weight * (value - self.mean)
        self.tasks += 1


@dataclass
class Sensor:
    """The readings of one operator, by name; `tasks` were measured since the last change."""

    tasks: int = 0
    readings: dict[str, Reading] = field(default_factory=dict)

    @property
    def cost(self) -> float:
        """The mean of nanoseconds per row."""
        return self.mean(COST)

    @property
    def kept(self) -> float:
        """The mean share of accepted rows."""
        return self.mean(KEPT)

    def mean(self, name: str) -> float:
        """The mean of one sensor; 0 without a reading."""
        found = self.readings.get(name)
        return 0.0 if found is None else found.mean

    @property
    def settled(self) -> bool:
        """Whether enough tasks were measured."""
        return self.tasks >= FEWEST_TASKS

    def take(
        self, rows: int, accepted: int, nanoseconds: int, others: Mapping[str, float] | None = None
    ) -> bool:
        """Measure a task, with the `others` sensors per row; return whether the rows, or what they cost, have changed."""
        values = {COST: nanoseconds / rows, KEPT: accepted / rows, **(others or {})}
        odd = [self._reading(name).is_odd(value, LIMITS.get(name)) for name, value in values.items()]
        if max(odd) < 2:
            self.tasks += max(odd) == 0
            return False
        self.tasks, self.readings = 1, {}
        for name, value in values.items():
            self._reading(name).follow(value)
        return True

    def _reading(self, name: str) -> Reading:
        return self.readings.setdefault(name, Reading())

    def note(self, name: str, value: float) -> None:
        """Follow a sensor that is read now and then, not with each task."""
        self._reading(name).follow(value)

    def show(self) -> str:
        """Render the means.

        >>> sensor = Sensor()
        >>> sensor.take(1_000, 250, 2_000, {"occupancy": 0.5})
        False
        >>> sensor.show()
        '2.00 ns per row, 25 % of the rows kept, occupancy 0.50'
        """
        if not self.readings:
            return "no task was measured yet"
        rest = [
            f"{name} {reading.mean:.3g}" if reading.mean < 0.01 else f"{name} {reading.mean:.2f}"
            for name, reading in self.readings.items()
            if name not in (COST, KEPT)
        ]
        return ", ".join([f"{self.cost:.2f} ns per row", f"{100 * self.kept:.0f} % of the rows kept", *rest])
