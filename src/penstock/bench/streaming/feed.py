"""Write the files of a stream: small ones first, with which everything gets warm, then those that count."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.bench.on_spark.lake import GROUP_ROWS
from penstock.bench.workloads import STEP_US, YsbKeyed, ysb_keyed


def write_feed(folder: Path, keys: int, sizes: Sequence[int]) -> str:
    """Write a file of each size; each goes on where the last one ended, and was written later."""
    folder.mkdir(parents=True, exist_ok=True)
    begin = 0
    for number, rows in enumerate(sizes):
        table = ysb_keyed(YsbKeyed(rows, keys, seed=1 + number))
        later = pa.scalar(begin * STEP_US, pa.duration("us"))
        table = table.set_column(0, "ts", pc.add(table["ts"], later))
        path = folder / f"{number:04}.parquet"
        pq.write_table(table, path, row_group_size=GROUP_ROWS)
        os.utime(path, (number, number))  # both readers take the oldest first
        begin += rows
    return str(folder)
