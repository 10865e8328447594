"""What can be seen of a window's rows: the facts that the choice of a join algorithm depends on."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np

SAMPLE = 1 << 14  # rows of a side that are looked at: enough to see that 3 M keys repeat
AT_REST = 1e9  # rows a millisecond that stand for data which are all there


@dataclass(frozen=True)
class Observed:
    """Facts about a window of two sides.

    `rows` of both sides and `smaller` of the smaller one; `rate` and `slower_rate`, rows a millisecond of both and of
    the slower side; `duplicates`, how often the key of a row occurs on its side; `hottest`, the part of the rows
    that have the most frequent key; `spread`, how many times more codes there could be than rows; `threads`.
    """

    rows: float
    smaller: float
    rate: float
    slower_rate: float
    duplicates: float
    hottest: float
    spread: float
    threads: float = 1

    def __getitem__(self, name: str) -> float:
        return float(getattr(self, name))


FEATURES = tuple(each.name for each in fields(Observed))


def observe(left: np.ndarray, right: np.ndarray, window_ms: float = 0.0, threads: int = 1) -> Observed:
    """Look at a sample of both sides; `window_ms` is how long they took to arrive, 0 for data at rest.

    >>> seen = observe(np.arange(1000), np.arange(100) % 10, window_ms=10)
    >>> (seen.rows, seen.smaller, seen.rate, seen.slower_rate, seen.duplicates)
    (1100.0, 100.0, 110.0, 10.0, 10.0)
    """
    sides = [side for side in (left, right) if len(side)]
    rows = [len(left), len(right)]
    looks = [_look(side) for side in sides]
    span = max((most for _, _, _, most in looks), default=0) - min(
        (least for _, _, least, _ in looks), default=0
    )
    milliseconds = window_ms or max(rows) / AT_REST or 1.0
    return Observed(
        float(sum(rows)),
        float(min(rows)),
        sum(rows) / milliseconds,
        min(rows) / milliseconds,
        max((repeats for repeats, _, _, _ in looks), default=1.0),
        max((hottest for _, hottest, _, _ in looks), default=0.0),
        (span + 1) / max(sum(rows), 1),
        float(threads),
    )


def _look(codes: np.ndarray) -> tuple[float, float, int, int]:
    """Estimate how often a row's key occurs, and the part of the most frequent one; give the sample's bounds.

    Of two rows drawn at random, the chance to have one key is the sum of the squared frequencies: what a sample
    of many pairs of rows tells, with no need to count keys.
    """
    sample = np.sort(codes[:: max(len(codes) // SAMPLE, 1)])
    changes = np.flatnonzero(sample[1:] != sample[:-1]) + 1
    counts = np.diff(np.concatenate([[0], changes, [len(sample)]]))
    pairs = len(sample) * (len(sample) - 1)
    alike = float((counts * (counts - 1)).sum()) / pairs if pairs else 0.0
    repeats = max(1.0, 1.0 + alike * (len(codes) - 1))
    return round(repeats, 6), float(counts.max()) / len(sample), int(sample[0]), int(sample[-1])


def scale_of(name: str, value: float) -> float:
    """Features span many orders of magnitude: compare them by their logarithm."""
    return math.log(max(value, 1e-9)) if name != "hottest" else value
