"""What one measurement asks, what it found, and both as JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.live.feed import Feed
from benchmarks.live.pushing import PUSH

THROUGHPUT, LATENCY, WAYS = "throughput", "latency", "ways"


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement: a query over a feed, in buffers of so many rows.

    `rate` is the rate of an open loop in rows a second; 0 pushes in a closed loop.
    """

    query: str
    feed: Feed
    buffer: int
    threads: int = 1
    way: str = PUSH
    rate: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Point:
        return Point(**{**values, "feed": Feed(**values["feed"])})


@dataclass(frozen=True, slots=True)
class Found:
    """What a measurement found: seconds by the clock and of processors, for so many rows counted.

    `agrees` compares all results with `collect`. `latency` has seconds from the intended send time by
    quantile ("p50", "p95", "p99", "max"); `completed` counts the results that it is taken from.
    """

    rows: int
    seconds: float
    cpu_seconds: float
    agrees: bool | None = None
    latency: Mapping[str, float] = field(default_factory=dict)
    completed: int = 0
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def speed(self) -> float | None:
        """Rows a second."""
        return self.rows / self.seconds if self.seconds and not self.error else None
