"""Statistics of a window's rows, the features by which a join algorithm is chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cache

import numpy as np

SAMPLE = 1 << 14  # sampled rows of a side: enough to detect that 3 M keys repeat
LOOKED_AT, FEWEST = 64, 512  # small sample: one row of this many, and at least this many
FARTHEST, SPARSEST = float(1 << 34), 64.0  # caps: beyond them neither an array of codes nor short codes apply
RATE_AT_REST = 1e9  # rows per millisecond that stand for data present at the start


@dataclass(frozen=True)
class Observed:
    """Statistics of a window of two sides.

    `rows` of both sides and `smaller` of the smaller one; `rate` and `slower_rate`, rows per millisecond of
    both sides and of the slower one; `duplicates`, how often the key of a row occurs on its side; `hottest`,
    the fraction of rows with the most frequent key; `span`, the size of the range of codes, and `spread`, its
    size per row; `threads`.
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


WINDOW_STATISTICS = tuple(field.name for field in fields(Observed))


def observe(
    left: np.ndarray,
    right: np.ndarray,
    window_ms: float = 0.0,
    threads: int = 1,
    rows: tuple[int, int] | None = None,
) -> Observed:
    """Measure a sample of both sides; `window_ms` is how long they took to arrive, 0 for data at rest.

    `rows` gives the full row counts where `left` and `right` are already samples.

    >>> seen = observe(np.arange(1000), np.arange(100) % 10, window_ms=10)
    >>> (seen.rows, seen.smaller, seen.rate, seen.slower_rate, round(seen.duplicates))
    (1100.0, 100.0, 110.0, 10.0, 10)
    """
    counts = rows or (len(left), len(right))
    looks = [_look(side, count) for side, count in zip((left, right), counts, strict=True) if len(side)]
    least, most = (
        min((look.least for look in looks), default=0),
        max((look.most for look in looks), default=0),
    )
    return Observed(
        float(sum(counts)),
        float(min(counts)),
        _rate(sum(counts), window_ms),
        _rate(min(counts), window_ms),
        max((look.repeats for look in looks), default=1.0),
        max((look.hottest for look in looks), default=0.0),
        **_spans(least, most, sum(counts)),
        threads=float(threads),
    )


class WindowStatistics:
    """The same statistics of a window that is about to be joined, computed on demand.

    Duplicates need a sorted sample, which costs as much as joining a small window. `known` holds the statistics
    computed so far, without the rows.

    >>> statistics = WindowStatistics(np.arange(1000), np.arange(100), 0.0, 1)
    >>> (statistics["rows"], "duplicates" in statistics.known, statistics["duplicates"], "duplicates" in statistics.known)
    (1100.0, False, 1.0, True)
    """

    def __init__(self, left: np.ndarray, right: np.ndarray, window_ms: float, threads: int) -> None:
        rows = len(left), len(right)
        self._window = left, right, window_ms, threads
        self.known = {
            "rows": float(sum(rows)),
            "smaller": float(min(rows)),
            "rate": _rate(sum(rows), window_ms),
            "slower_rate": _rate(min(rows), window_ms),
            "threads": float(threads),
        }

    def __getitem__(self, name: str) -> float:
        if name not in self.known:
            self.known |= self._span() if name in {"span", "spread"} else self._rest()
        return self.known[name]

    def _span(self) -> dict[str, float]:
        left, right = (side[:: max(len(side) // FEWEST, 1)] for side in self._window[:2])
        least, most = min(left.min(), right.min()), max(left.max(), right.max())
        return _spans(int(least), int(most), int(self.known["rows"]))

    def _rest(self) -> dict[str, float]:
        left, right, window_ms, threads = self._window
        seen = observe(_few(left), _few(right), window_ms, threads, (len(left), len(right)))
        return {name: seen[name] for name in WINDOW_STATISTICS}


def _spans(least: int, most: int, rows: int) -> dict[str, float]:
    span = most - least + 1
    return {"span": min(float(span), FARTHEST), "spread": min(span / max(rows, 1), SPARSEST)}


def _rate(rows: int, window_ms: float) -> float:
    return rows / window_ms if window_ms else RATE_AT_REST


def _few(codes: np.ndarray) -> np.ndarray:
    """Return a sample whose measurement costs a small fraction of the join."""
    return sampled(codes, min(max(len(codes) // LOOKED_AT, FEWEST), SAMPLE))


def sampled(codes: np.ndarray, most: int) -> np.ndarray:
    """Return a random sample, the same each time. A sample of every n-th row would miss duplicates in adjacent
    rows.

    >>> sampled(np.arange(5), 10)
    array([0, 1, 2, 3, 4])
    >>> len(sampled(np.arange(1000), 10))
    10
    """
    if len(codes) <= most:
        return codes
    drawn: np.ndarray = codes[np.unique((_drawn()[:most] * len(codes)).astype(np.int64))]
    return drawn


@cache
def _drawn() -> np.ndarray:
    return np.random.default_rng(0).random(SAMPLE)


@dataclass(frozen=True)
class _Look:
    repeats: float
    hottest: float
    least: int
    most: int


def _look(codes: np.ndarray, rows: int) -> _Look:
    """Estimate how often a row's key occurs, and the fraction of the most frequent key; return the sample's
    bounds.

    The probability that two random rows have the same key is the sum of the squared frequencies. A sample of
    many pairs of rows estimates it without counting keys.
    """
    sample = np.sort(sampled(codes, SAMPLE))
    changes = np.flatnonzero(sample[1:] != sample[:-1]) + 1
    counts = np.diff(np.concatenate([[0], changes, [len(sample)]]))
    pairs = len(sample) * (len(sample) - 1)
    alike = float((counts * (counts - 1)).sum()) / pairs if pairs else 0.0
    # A key that occurs once in the sample reflects only the sample's size.
    hottest = float(counts.max() - 1) / len(sample)
    return _Look(1.0 + alike * (rows - 1), hottest, int(sample[0]), int(sample[-1]))


def scale_of(name: str, value: float) -> float:
    """Map a feature to its comparison scale: logarithmic, as features span many orders of magnitude, except
    `hottest`.
    """
    return math.log(max(value, 1e-9)) if name != "hottest" else value
