"""Drop and count late rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.runtime.metrics import Metrics
from penstock.runtime.stage import TimedBatch


def on_time(
    timed_batch: TimedBatch, metrics: Metrics, late: Callable[[np.ndarray], np.ndarray]
) -> TimedBatch:
    """Keep the rows that are not late; count late and accepted rows, unless they are counted already.

    `late(arrival_watermarks)` returns which rows are late, given the watermark at each row's arrival; it is not called
    if no row can be late.
    """
    behind = None if timed_batch.arrival_watermarks is None else late(timed_batch.arrival_watermarks)
    missed = 0 if behind is None else int(behind.sum())
    if behind is not None and missed:
        timed_batch = timed_batch.without(behind)
    if not timed_batch.counted:
        metrics.late += missed
        metrics.accepted += timed_batch.batch.num_rows
    return timed_batch
