"""A histogram of latencies in fixed memory, with a relative error of at most 1/16."""

from __future__ import annotations

from array import array
from math import frexp

_STEPS = 16  # buckets to each power of two
_FINEST = -30  # 2 ** -30 s, about a nanosecond, ends the first buckets; the last ones begin at 2 ** 17 s
_BUCKETS = (18 - _FINEST) * _STEPS


class Latency:
    """Latencies of results, in seconds: from the arrival of the rows that completed a result to the result.

    Rows arrive when their push begins, also those that wait in the queue of a background run. If several pushes were
    gathered into one task, the oldest counts. Each task with results counts once.

    >>> latency = Latency()
    >>> for _ in range(99):
    ...     latency.add(0.001)
    >>> latency.add(0.5)
    >>> latency.count, round(latency.p50, 4), round(latency.p99, 4), latency.most
    (100, 0.001, 0.001, 0.5)
    """

    __slots__ = ("_buckets", "count", "most", "total")

    def __init__(self) -> None:
        self._buckets = array("q", bytes(8 * _BUCKETS))
        self.count, self.total, self.most = 0, 0.0, 0.0

    def add(self, seconds: float) -> None:
        """Count one latency."""
        fraction, exponent = frexp(max(seconds, 2.0**_FINEST))
        place = (exponent - 1 - _FINEST) * _STEPS + int((fraction * 2 - 1) * _STEPS)
        self._buckets[min(max(place, 0), _BUCKETS - 1)] += 1
        self.count += 1
        self.total += seconds
        self.most = max(self.most, seconds)

    def quantile(self, share: float) -> float:
        """The latency that this share of the results did not exceed; 0 without results."""
        left = share * self.count
        for place, many in enumerate(self._buckets):
            left -= many
            if many and left <= 0:
                exponent, step = divmod(place, _STEPS)
                return (
                    self.most
                    if place == _BUCKETS - 1
                    else min(2.0 ** (exponent + _FINEST) * (1 + (step + 1) / _STEPS), self.most)
                )
        return self.most

    @property
    def p50(self) -> float:
        """The median."""
        return self.quantile(0.5)

    @property
    def p95(self) -> float:
        """The 95th percentile."""
        return self.quantile(0.95)

    @property
    def p99(self) -> float:
        """The 99th percentile."""
        return self.quantile(0.99)

    def __repr__(self) -> str:
        if not self.count:
            return "Latency(count=0)"
        figures = (f"{name}={getattr(self, name) * 1e3:.3g} ms" for name in ("p50", "p95", "p99", "most"))
        return f"Latency(count={self.count}, {', '.join(figures)})"
