"""`pk.scan` over URIs: the same rows as from local files, by few requests."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.sources.dataset import Dataset
from penstock.sources.paths import find
from penstock.sources.prefetch import read
from penstock.storage.access import Access
from tests.storage.lake import Lake, encoded

ROWS = pa.table({"t": [1, 2, 3, 11, 12], "k": ["a", "b", "a", "b", "a"], "v": [1, 2, 3, 4, 5]})


def counts(stream: pk.Stream) -> dict[str, list[object]]:
    return stream.window(10).agg(n=pk.count(), total=pk.sum("v")).collect().to_pydict()


EXPECTED = {"window_start": [0, 10], "window_end": [10, 20], "n": [3, 2], "total": [6, 9]}


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
@pytest.mark.parametrize("format", ["parquet", "arrow", "csv", "json"])
def test_each_format_is_read_from_a_bucket(s3: Lake, format: str, scheme: str) -> None:
    s3.put_table(f"events/a.{format}", ROWS)
    stream = pk.scan(s3.uri(f"events/a.{format}", scheme), time="t", storage_options=s3.options)
    assert counts(stream) == EXPECTED


def test_compressed_text_is_read_from_a_bucket(s3: Lake) -> None:
    uri = s3.put("a.csv.gz", gzip.compress(encoded("a.csv", ROWS)))
    assert counts(pk.scan(uri, time="t", storage_options=s3.options)) == EXPECTED


@pytest.mark.parametrize("form", ["{}", "file://{}", "file:{}", "file://localhost{}"])
def test_a_uri_of_a_local_file_is_its_path(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "with space"
    folder.mkdir()
    pq.write_table(ROWS, folder / "a.parquet")
    path = str(folder) if form == "{}" else form.format(str(folder).replace(" ", "%20"))
    assert counts(pk.scan(path, time="t")) == EXPECTED
    assert counts(pk.scan(path + "/*.parquet", time="t")) == EXPECTED


KEYS = [
    "events/day=2026-01-01/a.parquet",
    "events/day=2026-01-02/b.parquet",
    "events/day=2026-01-02/_tmp/c.parquet",
    "events/_delta_log/0.parquet",
    "events/day=__HIVE_DEFAULT_PARTITION__/d x+y.parquet",
    "events/day=2026-01-02/.hidden.parquet",
    "events-2/e.parquet",
    "events/day=2026-01-02/deep/f.parquet",
]
PATTERNS = [
    "events",
    "events/",
    "events/*",
    "events/*/*.parquet",
    "events/day=2026-01-0[2-9]/*.parquet",
    "events/day=2026-01-0[!1]",
    "events/**/*.parquet",
    "events/**",
    "events*/*.parquet",
    "events/day=*/?.parquet",
    "*/*/a.parquet",
    "events/day=2026-01-01/a.parquet",
    "events/day=__HIVE_DEFAULT_PARTITION__/d x+y.parquet",
    "**/deep",
]


def test_folders_and_globs_find_the_files_and_folder_values_that_they_find_locally(
    s3: Lake, tmp_path: Path
) -> None:
    for key in KEYS:
        s3.put(key, b"x")
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(b"x")
    s3.put("events/folder_$folder$", b"")
    s3.put("events/", b"")
    for pattern in PATTERNS:
        local = find(f"{tmp_path}/{pattern}", even=False)
        stored = find(s3.uri(pattern), even=False, access=Access.of(s3.options, None))
        assert [(value.path.removeprefix("s3://lake/"), value.partition) for value in stored] == [
            (value.path.removeprefix(f"{tmp_path}/"), value.partition) for value in local
        ], pattern


def test_folders_become_columns(s3: Lake) -> None:
    for day, part in (("2026-01-01", ROWS.slice(0, 2)), ("2026-01-02", ROWS.slice(2))):
        s3.put_table(f"events/day={day}/a.parquet", part)
    stream = pk.scan(s3.uri("events"), time="t", storage_options=s3.options)
    found = stream.window(100, by="day").agg(n=pk.count()).collect().sort_by("day")
    assert [(str(row["day"]), row["n"]) for row in found.to_pylist()] == [
        ("2026-01-01", 2),
        ("2026-01-02", 3),
    ]


def wide_table(rows: int, columns: int) -> pa.Table:
    rng = np.random.default_rng(1)
    values = {f"c{number}": rng.integers(0, 1 << 60, rows) for number in range(columns)}
    return pa.table({"t": np.arange(rows), **values})


@pytest.mark.parametrize(
    "columns", [["c0"], ["c0", "c19", "c38"], ["c3", "c4", "c5"], [f"c{n}" for n in range(0, 40, 3)]]
)
def test_a_scan_makes_at_most_two_requests_per_row_group_and_one_per_footer(
    s3: Lake, columns: list[str]
) -> None:
    rows, groups = 60_000, 4
    table = wide_table(rows, 40)
    uri = s3.put_table(
        "wide.parquet", table, row_group_size=rows // groups, compression="none", use_dictionary=False
    )
    s3.proxy.heal()
    stream = pk.scan(uri, time="t", storage_options=s3.options)
    query = stream.window(1 << 20).agg(**{name: pk.max(name) for name in columns})
    planned = len(s3.proxy.requests)
    found = query.collect()
    footers = [get for get in s3.proxy.gets("wide.parquet") if (get.range or "").startswith("bytes=-")]
    data = [get for get in s3.proxy.gets("wide.parquet") if get not in footers]
    assert found.select(columns).to_pylist() == [{name: max(table[name].to_pylist()) for name in columns}]
    assert len(footers) == 2  # the schema of the first file, when the stream is made, and the plan of the run
    assert len(data) <= 2 * groups
    assert len(s3.proxy.requests) - planned == len(data) + 1


def test_row_groups_that_no_row_passes_are_not_requested(s3: Lake) -> None:
    table = wide_table(10_000, 2)
    uri = s3.put_table("a.parquet", table, row_group_size=1_000)
    stream = pk.scan(uri, time="t", storage_options=s3.options)
    s3.proxy.heal()
    found = stream.filter(pk.col("t") >= 9_000).window(1 << 20).agg(n=pk.count()).collect()
    assert found["n"].to_pylist() == [1_000]
    assert len(s3.proxy.requests) <= 3


@pytest.mark.parametrize("decoder", ["polars", "arrow"])
@pytest.mark.parametrize("compression", ["snappy", "zstd", "none"])
def test_both_decoders_read_fetched_row_groups_as_the_local_file(
    s3: Lake, tmp_path: Path, decoder: str, compression: str
) -> None:
    table = pa.table(
        {
            "t": pa.array(range(5_000), pa.timestamp("us")),
            "s": [None if n % 7 == 0 else f"text {n}" for n in range(5_000)],
            "nested": [{"a": n, "b": [n]} for n in range(5_000)],
            "x": [float("nan") if n % 5 == 0 else n / 3 for n in range(5_000)],
        }
    )
    options = {"row_group_size": 700, "compression": compression}
    uri = s3.put_table("a.parquet", table, **options)
    pq.write_table(table, tmp_path / "a.parquet", **options)
    access = Access.of(s3.options, None)
    there, here = Dataset.of(uri, time="t", access=access), Dataset.of(str(tmp_path / "a.parquet"), time="t")
    for columns in (["t", "x"], ["s"], ["nested", "t"], ["x", "s", "t"]):
        stored, local = (
            [
                batch
                for fragment in data.fragments
                for batch in read(fragment, data.schema, columns, decoder=decoder, access=data.access)
            ]
            for data in (there, here)
        )
        assert pa.Table.from_batches(stored).combine_chunks().cast(
            pa.Table.from_batches(local).schema
        ).equals(pa.Table.from_batches(local).combine_chunks()) or str(
            pa.Table.from_batches(stored).to_pylist()
        ) == str(pa.Table.from_batches(local).to_pylist())


def test_an_empty_file_and_a_missing_one_are_told_apart(s3: Lake) -> None:
    empty = s3.put("empty.parquet", b"")
    with pytest.raises(pk.SourceError, match="does not end as Parquet files do"):
        pk.scan(empty, time="t", storage_options=s3.options)
    with pytest.raises(pk.SourceError, match=r"no file matches 's3://lake/none\.parquet'"):
        pk.scan(s3.uri("none.parquet"), time="t", storage_options=s3.options)
    with pytest.raises(pk.SourceError, match="no such file or bucket"):
        pk.scan("s3://nobody-has-this/none.parquet", time="t", storage_options=s3.options)
    s3.put("empty.csv", b"")
    s3.put_table("full.csv", ROWS)
    assert (
        counts(pk.scan([s3.uri("empty.csv"), s3.uri("full.csv")], time="t", storage_options=s3.options))
        == EXPECTED
    )


def test_a_file_system_of_pyarrow_and_of_fsspec_is_taken(s3: Lake, tmp_path: Path) -> None:
    import fsspec

    pq.write_table(ROWS, tmp_path / "a.parquet")
    for filesystem in (pa.fs.LocalFileSystem(), fsspec.filesystem("file")):
        assert counts(pk.scan(f"{tmp_path}", time="t", filesystem=filesystem)) == EXPECTED
        assert counts(pk.scan(f"{tmp_path}/*.parquet", time="t", filesystem=filesystem)) == EXPECTED
    memory = fsspec.filesystem("memory")
    memory.pipe("/events/day=1/a.parquet", encoded("a.parquet", ROWS))
    assert pk.scan("/events", time="t", filesystem=memory).schema.names == ["t", "k", "v", "day"]
    own = pa.fs.S3FileSystem(
        access_key="a", secret_key="b", endpoint_override=s3.proxy.address, region="us-east-1"
    )
    s3.put_table("a.parquet", ROWS)
    assert counts(pk.scan("lake/a.parquet", time="t", filesystem=own)) == EXPECTED
    assert counts(pk.scan("s3://lake/*.parquet", time="t", filesystem=own)) == EXPECTED


def test_many_files_are_read_in_the_order_of_their_paths(s3: Lake) -> None:
    for number in range(40):
        s3.put_table(f"many/{number:02}.parquet", pa.table({"t": [number], "v": [number]}))
    stream = pk.scan(s3.uri("many/*.parquet"), time="t", storage_options=s3.options)
    assert stream.filter(pk.col("v") >= 0).collect()["v"].to_pylist() == list(range(40))


def test_row_groups_are_fetched_while_others_are_decoded(s3: Lake) -> None:
    """Each request waits for the others: with fewer than eight at a time, the scan would not end."""
    import threading

    table = wide_table(1 << 20, 1)
    uri = s3.put_table("a.parquet", table, row_group_size=1 << 17)
    stream = pk.scan(uri, time="t", storage_options=s3.options)
    barrier, numbers = threading.Barrier(8), itertools.count()

    def wait(request: object, number: int) -> bool:
        if str(getattr(request, "range", "")).startswith("bytes=-") or next(numbers) >= 8:
            return False
        barrier.wait(timeout=30)
        return False

    s3.proxy.faults.refuse = wait
    assert stream.window(1 << 30).agg(n=pk.count(), m=pk.max("c0")).collect()["n"].to_pylist() == [1 << 20]
