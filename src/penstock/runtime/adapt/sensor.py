"""Sensors: what a task costs and keeps, always measured, at the price of two readings of the clock.

The time per row and the share of accepted rows are followed as moving means. Noise is followed too: only a change well
beyond it counts, and only if two tasks in a row show it.
"""

from __future__ import annotations

from dataclasses import dataclass

_WEIGHT = 0.2  # of the newest task
FEWEST_TASKS = 4  # tasks before a mean says anything
_BEYOND_NOISE = 4.0  # mean deviations
_LEAST_CHANGE = 0.25  # of the mean: smaller changes are not worth a profile
_LEAST_SHIFT = 0.1  # of the share of accepted rows
ROWS_OF_SMALL_TASK = 1 << 10  # smaller tasks measure what surrounds kernels


@dataclass
class Sensor:
    """Moving means of nanoseconds per row (`cost`) and of the share of accepted rows (`kept`)."""

    cost: float = 0.0
    kept: float = 0.0
    tasks: int = 0
    _noise: float = 0.0
    _odd: int = 0  # tasks in a row beyond noise

    @property
    def settled(self) -> bool:
        """Whether enough tasks were measured."""
        return self.tasks >= FEWEST_TASKS

    def take(self, rows: int, accepted: int, nanoseconds: int) -> bool:
        """Measure a task; return whether the rows, or what they cost, have changed."""
        cost, kept = nanoseconds / rows, accepted / rows
        if self.settled and self._differs(cost, kept):
            self._odd += 1
            if self._odd < 2:
                return False
            self.cost, self.kept, self.tasks, self._noise, self._odd = cost, kept, 1, 0.0, 0
            return True
        self._follow(cost, kept)
        return False

    def _differs(self, cost: float, kept: float) -> bool:
        limit = max(_BEYOND_NOISE * self._noise, _LEAST_CHANGE * self.cost)
        return abs(cost - self.cost) > limit or abs(kept - self.kept) > _LEAST_SHIFT

    def _follow(self, cost: float, kept: float) -> None:
        weight = 1 / (self.tasks + 1) if self.tasks < FEWEST_TASKS else _WEIGHT
        self._noise += weight * (abs(cost - self.cost) - self._noise) if self.tasks else 0.0
        self.cost += weight * (cost - self.cost)
        self.kept += weight * (kept - self.kept)
        self.tasks, self._odd = self.tasks + 1, 0
