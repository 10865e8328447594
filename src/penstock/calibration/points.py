"""The workloads that the decision trees of the joins are trained on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from penstock.calibration.workloads import Micro


def scaled(micro: Micro, scale: float) -> Micro:
    """The same over a shorter window. Rates stay: whether an eager algorithm keeps up depends on them, not on rows."""
    return replace(micro, window_ms=max(int(micro.window_ms * scale), 1))


def calibration(scale: float = 1.0) -> Iterator[tuple[str, Micro]]:
    """Points to learn from: none of them is on a figure, nor drawn with the same seed."""
    for place, micro in enumerate(_calibration_points()):
        yield f"calibration {place + 1}", replace(scaled(micro, scale), seed=1000 + place)


def _calibration_points() -> Sequence[Micro]:
    return (
        *(Micro(rate, rate, window_ms=700) for rate in (60, 900, 2300, 4700, 9000, 17000)),
        # An eager join falls behind somewhere here, and a table outgrows the cache: a hole would be expensive.
        *(Micro(rate, rate, window_ms=700) for rate in (20500, 23500, 27500, 32000, 45000)),
        *(Micro(rate, rate, window_ms=700, scatter=True) for rate in (60, 900, 4700, 15000)),
        *(Micro(1100, rate, window_ms=900) for rate in (2500, 9000, 20000, 32000)),
        *(Micro(5000, 5000, duplicates=n, window_ms=800) for n in (4, 30, 300)),
        *(Micro(9000, 9000, key_skew=z, window_ms=800) for z in (0.6, 1.0, 1.4)),
        *(Micro(2000, 2000, time_skew=z, window_ms=900) for z in (0.7, 1.4)),
        *(Micro(14000, 14000, window_ms=w) for w in (400, 1700)),
        Micro(4000, 4000, duplicates=20, scatter=True, window_ms=600),
        Micro(1300, 15000, scatter=True, window_ms=600),
    )
