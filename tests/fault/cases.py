"""What drivers are given, what must come out, and the comparison: nothing lost, nothing twice."""

from __future__ import annotations

from pathlib import Path

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as pk
from tests.fault.driver import views
from tests.spark.agree import assert_same
from tests.spark.streaming.feed import Feed

FILES = 12  # a batch each: what lives longer can be killed more often
ROWS = 200
LATE = -1_000_000_000  # long before all others: late from the second file on
TIMELESS = 3  # rows of each file that have no time


def rows(seed: int, files: int) -> list[pa.Table]:
    """Events of ten keys, a second's lateness among them; the last file closes all windows."""
    random = np.random.default_rng(seed)
    tables = []
    for number in range(files):
        times = number * 20_000_000 + np.sort(random.integers(0, 20_000_000, ROWS))
        times[random.random(ROWS) < 0.2] -= 500_000
        tables.append(times)
    tables.append(np.array([10**10]))
    return [
        pa.table(
            {
                "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
                "k": random.integers(0, 10, len(times)),
                "v": random.integers(0, 100, len(times)),
            }
        )
        for times in tables
    ]


def with_trouble(table: pa.Table, number: int) -> pa.Table:
    """Add rows without a time and, but in the first file, one that is late."""
    times = [None] * TIMELESS + ([] if number == 0 else [LATE])
    more = {
        "ts": pa.array(times, pa.int64()).cast(table.schema.field("ts").type),
        "k": pa.array([0] * len(times), pa.int64()),
        "v": pa.array([number] * len(times), pa.int64()),
    }
    return pa.concat_tables([table, pa.table(more, schema=table.schema)])


def filled(folder: Path, seed: int, files: int = FILES) -> pa.Table:
    """Put all files there; give the answer."""
    feed, tables = Feed(folder), rows(seed, files)
    for number, table in enumerate(tables):
        feed.put(number, with_trouble(table, number))
    declared = pk.stream("events", tables[0].schema, time="ts")
    return views(declared).collect(pa.concat_tables(tables[:-1]))


def check(folder: Path, expected: pa.Table, files: int, after: str) -> None:
    """Compare the table, the late rows and the quarantine with what must be there."""
    found = deltalake.DeltaTable(str(folder / "table")).to_pyarrow_table()
    schema = expected.schema
    table = pa.Table.from_arrays(
        [found[name].cast(schema.field(name).type) for name in schema.names], schema=schema
    )
    assert_same(expected, table, after)
    late = sorted(pq.read_table(folder / "late")["v"].to_pylist())
    assert late == list(range(1, files + 1)), f"{after}: late rows are {late}"
    bad = pq.read_table(folder / "bad")["row"].to_pylist()
    assert len(bad) == TIMELESS * (files + 1), f"{after}: {len(bad)} malformed rows"
