"""The paper's figures over the Micro workload: what is varied, and what is held."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from penstock.bench.iawj.workloads import RATES, Micro

SKEWS = (0.0, 0.4, 0.8, 1.2, 1.6)
WINDOWS_MS = (500, 1000, 1500, 2000, 2500)
DUPLICATES = (1, 10, 100)


@dataclass(frozen=True)
class Sweep:
    """A figure: its number, what varies along it, and the workload at each point."""

    number: int
    title: str
    points: tuple[tuple[float, Micro], ...]


def scaled(micro: Micro, scale: float) -> Micro:
    """The same over a shorter window. Rates stay: whether an eager algorithm keeps up depends on them, not on rows."""
    return replace(micro, window_ms=max(int(micro.window_ms * scale), 1))


def sweeps(scale: float = 1.0) -> list[Sweep]:
    """Figures 9 to 14."""
    made = [
        Sweep(9, "arrival rate of both (rows/ms)", tuple((rate, Micro(rate, rate)) for rate in RATES)),
        Sweep(10, "arrival rate of the right, left 1600", tuple((rate, Micro(1600, rate)) for rate in RATES)),
        Sweep(11, "duplicates, rate 6400", tuple((n, Micro(6400, 6400, duplicates=n)) for n in DUPLICATES)),
        Sweep(12, "skew of arrival, rate 1600", tuple((z, Micro(1600, 1600, time_skew=z)) for z in SKEWS)),
        Sweep(13, "skew of keys, rate 12800", tuple((z, Micro(12800, 12800, key_skew=z)) for z in SKEWS)),
        Sweep(
            14, "window (ms), rate 12800", tuple((w, Micro(12800, 12800, window_ms=w)) for w in WINDOWS_MS)
        ),
    ]
    return [
        replace(sweep, points=tuple((at, scaled(micro, scale)) for at, micro in sweep.points))
        for sweep in made
    ]


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
