"""The paper's figures over the Micro workload: what is varied, and what is held."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from penstock.calibration.calibrate import scaled
from penstock.calibration.workloads import Micro

RATES = (1600, 3200, 6400, 12800, 25600)
SKEWS = (0.0, 0.4, 0.8, 1.2, 1.6)
WINDOWS_MS = (500, 1000, 1500, 2000, 2500)
DUPLICATES = (1, 10, 100)


@dataclass(frozen=True)
class Sweep:
    """A figure: its number, what varies along it, and the workload at each point."""

    number: int
    title: str
    points: tuple[tuple[float, Micro], ...]


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


def grid_in_order(scale: float = 1.0) -> Iterator[tuple[str, Micro]]:
    """Points to judge the tree of pairs in order by: it is trained on none of them."""
    for place, micro in enumerate(_tested_points()):
        name = ", scattered" if micro.scatter else ""
        rates = f"{micro.left_rate} and {micro.right_rate} rows/ms"
        skew = f", skew {micro.key_skew:g}" if micro.key_skew else ""
        yield (
            f"in order: {rates}, {micro.duplicates} of a key{skew}{name}",
            replace(scaled(micro, scale), seed=place),
        )


def _tested_points() -> Sequence[Micro]:
    both = (False, True)
    return (
        *(Micro(n, n, scatter=far) for n in (40, 300, 1600) for far in both),
        *(Micro(800, 800, duplicates=n, scatter=far) for n in (2, 5, 10) for far in both),
        *(Micro(100, 1600, scatter=far) for far in both),
        *(Micro(1600, 100, scatter=far) for far in both),
        *(Micro(200, 200, key_skew=0.6, scatter=far) for far in both),
    )
