"""Workloads shaped like the paper's four real ones: stock, Rovio, YSB and DEBS."""

from __future__ import annotations

import numpy as np

from penstock.calibration.workloads import WINDOW_MS, Workload, WorkloadSide, arrivals, zipf


def like_stock(scale: float, seed: int = 2) -> Workload:
    """Few rows, skewed keys, and spikes: one tick in fifty brings most of the rows."""
    rng = np.random.default_rng(seed)
    rows = int(70_000 * scale)
    weights = np.where(np.arange(WINDOW_MS) % 50 == 7, 100.0, 1.0)
    arrived = np.round(np.cumsum(weights) / weights.sum() * rows).astype(np.int64)
    left, right = (WorkloadSide(zipf(rng, rows, max(rows // 8, 1), 0.5), arrived) for _ in range(2))
    return Workload("stock-like", left, right, WINDOW_MS)


def like_rovio(scale: float, seed: int = 3) -> Workload:
    """A steady stream in which a key comes hundreds of times on both sides."""
    rng = np.random.default_rng(seed)
    rows = int(600_000 * scale)
    distinct, arrived = max(rows // 300, 1), arrivals(rows, WINDOW_MS)
    left, right = (WorkloadSide(rng.integers(0, distinct, rows), arrived) for _ in range(2))
    return Workload("rovio-like", left, right, WINDOW_MS)


def like_ysb(scale: float, seed: int = 4) -> Workload:
    """A table of 1,000 unique keys, there from the beginning, and many rows that refer to it."""
    rng = np.random.default_rng(seed)
    rows = int(10_000_000 * scale)
    table = WorkloadSide(rng.permutation(1000), np.full(WINDOW_MS, 1000))
    return Workload(
        "ysb-like",
        table,
        WorkloadSide(rng.integers(0, 1000, rows), arrivals(rows, WINDOW_MS)),
        window_ms=WINDOW_MS,
    )


def like_debs(scale: float, seed: int = 5) -> Workload:
    """Posts and comments at rest, some dozens for each user."""
    rng = np.random.default_rng(seed)
    rows = int(1_000_000 * scale)
    left, right = (
        WorkloadSide(rng.integers(0, max(rows // 50, 1), rows), np.array([rows])) for _ in range(2)
    )
    return Workload("debs-like", left, right, 0)


REAL = (like_stock, like_rovio, like_ysb, like_debs)
