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
    that have the most frequent key; `span`, how many codes there could be, and `spread`, how many for each row; `threads`.
    """

    rows: float
    smaller: float
    rate: float
    slower_rate: float
    duplicates: float
    hottest: float
    spread: float
    span: float
    threads: float = 1

    def __getitem__(self, name: str) -> float:
        return float(getattr(self, name))


FEATURES = tuple(each.name for each in fields(Observed))


def observe(
    left: np.ndarray,
    right: np.ndarray,
    window_ms: float = 0.0,
    threads: int = 1,
    rows: tuple[int, int] | None = None,
) -> Observed:
    """Look at a sample of both sides; `window_ms` is how long they took to arrive, 0 for data at rest.

    `rows` is given by those who have kept a sample only.

    >>> seen = observe(np.arange(1000), np.arange(100) % 10, window_ms=10)
    >>> (seen.rows, seen.smaller, seen.rate, seen.slower_rate, round(seen.duplicates))
    (1100.0, 100.0, 110.0, 10.0, 10)
    """
    counts = rows or (len(left), len(right))
    looks = [_look(side, count) for side, count in zip((left, right), counts, strict=True) if len(side)]
    least, most = (
        min((each.least for each in looks), default=0),
        max((each.most for each in looks), default=0),
    )
    milliseconds = window_ms or max(max(counts) / AT_REST, 1e-9)
    return Observed(
        float(sum(counts)),
        float(min(counts)),
        sum(counts) / milliseconds,
        min(counts) / milliseconds,
        max((each.repeats for each in looks), default=1.0),
        max((each.hottest for each in looks), default=0.0),
        (most - least + 1) / max(sum(counts), 1),
        float(most - least + 1),
        float(threads),
    )


@dataclass(frozen=True)
class _Look:
    repeats: float
    hottest: float
    least: int
    most: int


def _look(codes: np.ndarray, rows: int) -> _Look:
    """Estimate how often a row's key occurs, and the part of the most frequent one; give the sample's bounds.

    Of two rows drawn at random, the chance to have one key is the sum of the squared frequencies: what a sample
    of many pairs of rows tells, with no need to count keys.
    """
    sample = np.sort(codes[:: max(len(codes) // SAMPLE, 1)])
    changes = np.flatnonzero(sample[1:] != sample[:-1]) + 1
    counts = np.diff(np.concatenate([[0], changes, [len(sample)]]))
    pairs = len(sample) * (len(sample) - 1)
    alike = float((counts * (counts - 1)).sum()) / pairs if pairs else 0.0
    hottest = float(counts.max()) / len(sample)
    return _Look(1.0 + alike * (rows - 1), hottest, int(sample[0]), int(sample[-1]))


def scale_of(name: str, value: float) -> float:
    """Features span many orders of magnitude: compare them by their logarithm."""
    return math.log(max(value, 1e-9)) if name != "hottest" else value
