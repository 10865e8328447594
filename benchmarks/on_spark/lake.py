"""Write the benchmark's lake: ysb-keyed as Parquet files, in order of time, a file at a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.workloads import STEP_US, YsbKeyed, ysb_keyed

FILE_ROWS = 5_000_000
GROUP_ROWS = 500_000


def write_lake(folder: Path, spec: YsbKeyed, file_rows: int = FILE_ROWS) -> str:
    """Write as many files as the rows need; each is drawn anew, and goes on where the last one ended."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, begin in enumerate(range(0, spec.rows, file_rows)):
        rows = min(file_rows, spec.rows - begin)
        table = ysb_keyed(replace(spec, rows=rows, seed=spec.seed + number))
        later = pa.scalar(begin * STEP_US, pa.duration("us"))
        table = table.set_column(0, "ts", pc.add(table["ts"], later))
        pq.write_table(table, folder / f"{number:04}.parquet", row_group_size=GROUP_ROWS)
    return str(folder)
