"""Write the files of a stream: small ones first, with which everything gets warm, then those that count.

All of them cover as much time: so small ones close as many windows, and what gives results gets warm too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.on_spark.lake import GROUP_ROWS
from benchmarks.workloads import START_US, STEP_US, YsbKeyed, ysb_keyed


def write_feed(folder: Path, keys: int, sizes: Sequence[int]) -> str:
    """Write a file of each size; each goes on where the last one ended, and was written later."""
    folder.mkdir(parents=True, exist_ok=True)
    span = max(sizes)
    for number, rows in enumerate(sizes):
        table = ysb_keyed(YsbKeyed(rows, keys, seed=1 + number))
        table = table.set_column(0, "ts", _stretched(table["ts"], span // rows, number * span))
        path = folder / f"{number:04}.parquet"
        pq.write_table(table, path, row_group_size=GROUP_ROWS)
        os.utime(path, (number, number))  # both readers take the oldest first
    return str(folder)


def _stretched(times: pa.ChunkedArray, factor: int, before: int) -> pa.ChunkedArray:
    """Put times further apart, and as far behind as so many rows take."""
    start = pa.scalar(START_US, pa.int64())
    since = pc.multiply(pc.subtract(times.cast(pa.int64()), start), pa.scalar(factor, pa.int64()))
    return pc.add(pc.add(since, start), pa.scalar(before * STEP_US, pa.int64())).cast(times.type)
