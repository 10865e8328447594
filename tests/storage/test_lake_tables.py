"""Delta and Iceberg tables in a bucket: written by their own libraries, read by ours."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

import penstock as pk
from tests.storage.lake import KEY, SECRET, Lake
from tests.storage.proxy import Faults

TABLE = pa.table(
    {
        "t": pa.array([1, 2, 3, 4], pa.timestamp("us", "UTC")),
        "k": ["a b", "c/d", "é%=", None],
        "v": [1, 2, 3, 4],
    }
)


def delta_options(s3: Lake) -> dict[str, str]:
    return {f"aws_{name}": value for name, value in s3.options.items()} | {"allow_http": "true"}


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_delta_table_is_read_with_its_partitions_versions_and_deleted_rows(s3: Lake, scheme: str) -> None:
    uri, options = s3.uri("delta/table", scheme), delta_options(s3)
    write_deltalake(uri, TABLE, partition_by=["k"], storage_options=options)
    DeltaTable(uri, storage_options=options).delete("v > 2")

    def rows(**given: object) -> list[tuple[object, object]]:
        stream = pk.scan(uri, time="t", format="delta", storage_options=s3.options, **given)
        return sorted((row["v"], row["k"]) for row in stream.collect().to_pylist())

    assert rows() == [(1, "a b"), (2, "c/d")]
    assert [value for value, _ in rows(version=0)] == [1, 2, 3, 4]


def test_an_iceberg_table_is_read_with_its_snapshots(s3: Lake) -> None:
    catalog = SqlCatalog(
        "test",
        uri="sqlite:///:memory:",
        warehouse="s3://lake/warehouse",
        **{
            "s3.endpoint": s3.proxy.address,
            "s3.access-key-id": KEY,
            "s3.secret-access-key": SECRET,
            "s3.region": "us-east-1",
        },
    )
    catalog.create_namespace("n")
    plain = TABLE.set_column(0, "t", TABLE["t"].cast(pa.timestamp("us")))
    table = catalog.create_table("n.t", plain.schema)
    table.append(plain)
    first = table.current_snapshot().snapshot_id
    table.append(plain)

    def rows(path: str, **given: object) -> list[object]:
        stream = pk.scan(path, time="t", format="iceberg", storage_options=s3.options, **given)
        return sorted(stream.collect()["v"].to_pylist())

    assert rows(table.metadata_location) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert rows(table.location(), snapshot=first) == [1, 2, 3, 4]
    catalog.close()


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_an_error_about_a_table_in_a_bucket_holds_no_address_and_no_secret(s3: Lake, format: str) -> None:
    s3.proxy.faults = Faults(status=lambda request, number: 403)
    options = {**s3.options, "max_retries": "0"}
    with pytest.raises(pk.PenstockError) as raised:
        pk.scan(s3.uri("table"), time="t", format=format, storage_options=options)
    assert "s3://lake/table" in str(raised.value)
    assert not [value for value in (KEY, SECRET, s3.proxy.address) if value in str(raised.value)]


def test_a_table_in_a_bucket_names_no_file_of_this_machine(s3: Lake) -> None:
    from penstock.sources.lake.table import file_path
    from penstock.storage.access import Access

    access = Access.of(s3.options, None)
    with pytest.raises(pk.UnsupportedError, match="another store than its own"):
        file_path("file:///etc/passwd", s3.uri("table"), access)
    assert file_path("part-0.parquet", s3.uri("table"), access) == "s3://lake/table/part-0.parquet"


def test_a_sink_commits_each_batch_once(s3: Lake) -> None:
    sink = pk.delta_sink(s3.uri("out"), query_id="q", storage_options=s3.options)
    assert SECRET not in repr(sink)
    assert sink.last_batch() is None
    sink._append(TABLE.select(["v"]), 0)
    assert sink.last_batch() == 0
