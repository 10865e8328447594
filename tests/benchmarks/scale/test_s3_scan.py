"""The benchmark of scans over a bucket: its server, and how many requests and bytes a scan takes. No times."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import penstock as pk
from benchmarks.scale.s3_scan import Network, Shape, bound, served, serving, write


@pytest.mark.parametrize(
    ("shape", "most"),
    [
        (Shape("one file", 1, 6, 1 << 17), 6),
        (Shape("few columns", 1, 4, 1 << 17, 12, 3), 8),
        (Shape("small row groups", 1, 64, 1 << 12), 2),
        (Shape("many files", 20, 1, 100), 20),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_scan_takes_at_most_two_requests_a_row_group_and_no_byte_twice(
    shape: Shape, most: int, tmp_path: Path
) -> None:
    write(tmp_path, shape)
    rows = shape.files * shape.groups * shape.rows
    with serving(tmp_path, Network(0.0, math.inf)) as options:
        stream = pk.scan("s3://lake/*.parquet", time="t", storage_options=options)
        served(options)
        found = stream.window(1 << 50).agg(n=pk.count(), m=pk.max("c0"), o=pk.max("c1")).collect()
        answers = served(options)
    assert found["n"].to_pylist() == [rows]
    data = [size for _, _, size in answers if size > 1 << 16]
    assert len(data) <= most
    assert len(answers) <= 1 + shape.files + most
    assert sum(data) <= rows * 8 * shape.columns + 4096 * shape.files * shape.groups


def test_the_bound_is_that_of_latency_and_rates() -> None:
    shape, network = Shape("one", 1, 16, 1 << 17), Network(0.5, 1e6)
    assert bound(shape, network, 16, 32_000_000) == 0.5 * (1 + 1 + 1) + 2.0
