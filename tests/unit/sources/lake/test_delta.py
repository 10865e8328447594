"""Delta tables are what their log says: files, partitions, versions, names, and rows that are gone."""

from __future__ import annotations

import json
import struct
import zlib
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

import penstock as pk
from penstock.errors import SourceError, UnsupportedError
from penstock.sources.fragment import Fragment
from penstock.sources.lake.delta import open_delta
from penstock.sources.prefetch import read

TABLE = pa.table(
    {
        "t": pa.array([1, 2, 3, 4], pa.timestamp("us", "UTC")),
        "k": ["a b", "c/d", "é%=", None],
        "v": [1, 2, 3, 4],
    }
)


def rows_of(path, **options):
    stream = pk.scan(str(path), time="t", format="delta", **options)
    return sorted(stream.collect()["v"].to_pylist())


def test_a_table_is_read_as_it_was_written(tmp_path):
    write_deltalake(tmp_path, TABLE)
    made = pk.scan(tmp_path, time="t", format="delta").collect()
    assert made.equals(TABLE)


def test_files_that_the_log_no_longer_lists_are_not_read(tmp_path):
    write_deltalake(tmp_path, TABLE)
    write_deltalake(tmp_path, TABLE.slice(0, 1), mode="overwrite")
    assert len(list(tmp_path.glob("*.parquet"))) == 2
    assert rows_of(tmp_path) == [1]


def test_rows_deleted_by_rewriting_are_gone(tmp_path):
    write_deltalake(tmp_path, TABLE)
    DeltaTable(tmp_path).delete("v > 2")
    assert rows_of(tmp_path) == [1, 2]


def test_a_version_is_read_as_it_was(tmp_path):
    write_deltalake(tmp_path, TABLE)
    write_deltalake(tmp_path, TABLE, mode="append")
    assert rows_of(tmp_path, version=0) == [1, 2, 3, 4]
    assert rows_of(tmp_path, version=1) == rows_of(tmp_path) == [1, 1, 2, 2, 3, 3, 4, 4]
    with pytest.raises(SourceError, match="version 7"):
        rows_of(tmp_path, version=7)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a b", "c/d%", "é=", None]),
        pa.array([1, -2, 3, None], pa.int32()),
        pa.array([date(2026, 1, 1), date(1, 1, 1), date(9999, 1, 1), None]),
        pa.array([1, 2, 10**15, None], pa.timestamp("us", "UTC")),
        pa.array([1, 2, 10**15, None], pa.timestamp("us")),
        pa.array([True, False, True, None]),
        pa.array([0.1, -1e30, 3.0, None]),
        pa.array([Decimal("1.50"), Decimal("2.25"), Decimal("0.00"), None], pa.decimal128(10, 2)),
    ],
    ids=lambda column: str(column.type),
)
def test_partition_values_of_any_type_come_back(tmp_path, column):
    table = TABLE.set_column(1, "k", column)
    write_deltalake(tmp_path, table, partition_by=["k"])
    made = pk.scan(tmp_path, time="t", format="delta").collect().sort_by("v")
    assert made.select(["t", "k", "v"]).equals(table)


def test_columns_added_later_are_null_in_older_files(tmp_path):
    write_deltalake(tmp_path, TABLE)
    wider = TABLE.slice(0, 1).append_column("w", pa.array([[1, 2]]))
    write_deltalake(tmp_path, wider, mode="append", schema_mode="merge")
    made = pk.scan(tmp_path, time="t", format="delta").collect()
    assert sorted(made["w"].to_pylist(), key=str) == [None, None, None, None, [1, 2]]


def test_filters_leave_out_files_by_partition_and_row_groups_by_statistics(tmp_path):
    write_deltalake(tmp_path, TABLE, partition_by=["k"])
    query = pk.scan(tmp_path, time="t", format="delta").filter(pk.col("k") == "c/d")
    assert query.collect()["v"].to_pylist() == [2]
    assert (query.metrics.read, query.metrics.batches) == (4, 1)


def test_fragments_have_times(tmp_path):
    write_deltalake(tmp_path, TABLE)
    (fragment,) = open_delta(str(tmp_path)).dataset("t").fragments
    assert (fragment.time_min, fragment.time_max, fragment.rows) == (1, 4, 4)


def test_a_folder_that_is_no_table_is_an_error(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(SourceError, match="Delta table"):
            rows_of(path)


def test_a_list_of_tables_is_an_error(tmp_path):
    with pytest.raises(SourceError, match="one table"):
        pk.scan([tmp_path], time="t", format="delta")


def test_snapshots_are_not_of_delta(tmp_path):
    write_deltalake(tmp_path, TABLE)
    with pytest.raises(SourceError, match="snapshot"):
        rows_of(tmp_path, snapshot=3)
    with pytest.raises(SourceError, match="version"):
        pk.scan(str(tmp_path / "*.parquet"), time="t", version=3)


# --- tables that other engines write: logs made by hand ---------------------------------------------------

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
FIELDS = [("t", "timestamp"), ("k", "string"), ("v", "long")]


def z85(data):
    padded = data + b"\0" * (-len(data) % 4)
    numbers = struct.unpack(f">{len(padded) // 4}I", padded)
    return "".join(Z85[number // 85**power % 85] for number in numbers for power in (4, 3, 2, 1, 0))


def vector(places):
    """Encode a deletion vector: a magic number, then one bitmap."""
    return struct.pack("<iqi", 1681511377, 1, 0) + BitMap(places).serialize()


def inline(places):
    data = vector(places)
    return {"storageType": "i", "pathOrInlineDv": z85(data), "sizeInBytes": len(data), "cardinality": len(places)}  # fmt: skip


def in_a_file(folder, places):
    data = vector(places)
    name = folder / "deletion_vector_01020304-0506-0708-090a-0b0c0d0e0f10.bin"
    name.write_bytes(b"\1" + struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data)))
    place = z85(bytes(range(1, 17)))
    return {"storageType": "u", "pathOrInlineDv": place, "offset": 1, "sizeInBytes": len(data), "cardinality": len(places)}  # fmt: skip


def write_log(folder, adds, features=(), physical=None, configuration=None, fields=None):
    physical = physical or {}
    fields = fields or [
        {
            "name": name,
            "type": dtype,
            "nullable": True,
            "metadata": {"delta.columnMapping.id": place, "delta.columnMapping.physicalName": physical[name]} if physical else {},
        }
        for place, (name, dtype) in enumerate(FIELDS, 1)
    ]  # fmt: skip
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": list(features), "writerFeatures": list(features)}  # fmt: skip
    metadata = {
        "id": "x",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": configuration or {},
        "createdTime": 0,
    }
    actions = [{"protocol": protocol}, {"metaData": metadata}, *({"add": value} for value in adds)]
    log = folder / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_text(
        "".join(json.dumps(action) + "\n" for action in actions), encoding="utf-8"
    )


def add(path, rows, **more):
    return {
        "path": path.name,
        "partitionValues": {},
        "size": path.stat().st_size,
        "modificationTime": 0,
        "dataChange": True,
        "stats": json.dumps({"numRecords": rows}),
        **more,
    }


def many(rows):
    return pa.table(
        {"t": pa.array(range(rows), pa.timestamp("us", "UTC")), "k": ["x"] * rows, "v": list(range(rows))}
    )


@pytest.mark.parametrize("kind", ["inline", "file"])
def test_rows_that_a_deletion_vector_marks_are_gone(tmp_path, kind):
    path = tmp_path / "a b.parquet"
    pq.write_table(many(20), path, row_group_size=6)
    gone = [0, 5, 6, 7, 8, 9, 10, 11, 19]
    mark = inline(gone) if kind == "inline" else in_a_file(tmp_path, gone)
    name = {"path": "a%20b.parquet"}
    write_log(tmp_path, [{**add(path, 20), **name, "deletionVector": mark}], ["deletionVectors"])
    left = [place for place in range(20) if place not in gone]
    assert rows_of(tmp_path) == left
    fragments = open_delta(str(tmp_path)).dataset("t").fragments
    assert [fragment.rows for fragment in fragments] == [4, 6, 1]
    assert all(Fragment.from_json(fragment.to_json()) == fragment for fragment in fragments)
    query = pk.scan(tmp_path, time="t", format="delta").filter(pk.col("v") >= 13)
    assert query.collect()["v"].to_pylist() == [13, 14, 15, 16, 17, 18]
    assert query.metrics.read == len(left)


@given(st.sets(st.integers(0, 29)), st.integers(1, 31), st.sampled_from(["arrow", "polars"]))
def test_any_rows_can_be_gone(tmp_path_factory, gone, size, decoder):
    folder = tmp_path_factory.mktemp("table")
    pq.write_table(many(30), folder / "a.parquet", row_group_size=size)
    write_log(
        folder, [{**add(folder / "a.parquet", 30), "deletionVector": inline(gone)}], ["deletionVectors"]
    )
    data = open_delta(str(folder)).dataset("t")
    parts = [
        part for fragment in data.fragments for part in read(fragment, data.schema, ["v"], decoder=decoder)
    ]
    left = [place for place in range(30) if place not in gone]
    assert [value for part in parts for value in part["v"].to_pylist()] == left
    assert data.rows == len(left)


def test_a_vector_that_marks_rows_beyond_the_file_is_an_error(tmp_path):
    pq.write_table(many(3), tmp_path / "a.parquet")
    write_log(
        tmp_path, [{**add(tmp_path / "a.parquet", 9), "deletionVector": inline([7])}], ["deletionVectors"]
    )
    with pytest.raises(SourceError):
        rows_of(tmp_path)


def test_columns_are_read_under_the_names_that_the_log_maps_them_to(tmp_path):
    physical = {"t": "col-1", "k": "v", "v": "k"}  # renamed crosswise since the file was written
    table = many(8).rename_columns([physical[name] for name in many(8).column_names])
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    mode = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}
    write_log(tmp_path, [add(tmp_path / "a.parquet", 8)], ["columnMapping"], physical, mode)
    query = pk.scan(tmp_path, time="t", format="delta").filter(pk.col("v") > 5)
    assert query.collect().equals(many(8).slice(6))
    assert open_delta(str(tmp_path)).dataset("t").fragments[0].time_max == 1


@pytest.mark.parametrize("mode", ["name", "id"])
def test_fields_of_structs_are_read_under_the_names_that_the_log_maps_them_to(tmp_path, mode):
    def mapped(number, name, dtype, stored):
        metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": stored}
        return {"name": name, "type": dtype, "nullable": True, "metadata": metadata}

    inside = [
        mapped(3, "x", "integer", "y"),
        mapped(4, "y", "string", "x"),
        mapped(5, "new", "long", "col-5"),
    ]
    fields = [mapped(1, "t", "timestamp", "t"), mapped(2, "s", {"type": "struct", "fields": inside}, "col-2")]
    kind = pa.struct({"x": pa.string(), "y": pa.int32()})
    values = pa.array([{"x": "u", "y": 1}, None, {"x": None, "y": 3}], kind)
    times = pa.array([1, 2, 3], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"t": times, "col-2": values}), tmp_path / "a.parquet", row_group_size=2)
    configuration = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "5"}
    write_log(tmp_path, [add(tmp_path / "a.parquet", 3)], ["columnMapping"], None, configuration, fields)
    rows = pk.scan(tmp_path, time="t", format="delta")
    expected = [{"x": 1, "y": "u", "new": None}, None, {"x": 3, "y": None, "new": None}]
    assert rows.collect()["s"].to_pylist() == expected
    s = pk.col("s").struct
    assert rows.select("t", x=s.field("x")).collect()["x"].to_pylist() == [1, None, 3]
    assert rows.select("t", new=s.field("new")).collect()["new"].to_pylist() == [None] * 3
    assert rows.filter(s.field("y") == "u").select("t", x=s.field("x")).collect()["x"].to_pylist() == [1]


def test_columns_mapped_by_id_are_found_by_their_ids(tmp_path):
    table = many(8)
    ids = {"t": 1, "k": 2, "v": 3}
    schema = pa.schema(  # the names in the file are wrong: only the ids tell
        [pa.field(f"x{place}", table.schema.field(name).type, metadata={b"PARQUET:field_id": str(ids[name]).encode()}) for place, name in enumerate(("v", "t", "k"))]
    )  # fmt: skip
    columns = [table[name].combine_chunks() for name in ("v", "t", "k")]
    pq.write_table(pa.table(columns, schema=schema), tmp_path / "a.parquet", row_group_size=2)
    pq.write_table(table.rename_columns(["p1", "p2", "p3"]), tmp_path / "b.parquet")  # a file without ids
    physical = {"t": "p1", "k": "p2", "v": "p3"}
    mode = {"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "3"}
    write_log(
        tmp_path,
        [add(tmp_path / "a.parquet", 8), add(tmp_path / "b.parquet", 8)],
        ["columnMapping"],
        physical,
        mode,
    )
    found = pk.scan(tmp_path, time="t", format="delta").filter(pk.col("v") > 5).collect()
    assert sorted(found["v"].to_pylist()) == [6, 6, 7, 7]
    assert found["k"].to_pylist() == [*table["k"].to_pylist()[6:], *table["k"].to_pylist()[6:]]


def test_old_timestamps_are_instants_even_beyond_what_nanoseconds_hold(tmp_path):
    table = many(2).set_column(0, "t", pa.array([5, 253_402_300_799_000_000], pa.timestamp("us")))
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    write_log(tmp_path, [add(tmp_path / "a.parquet", 2)])
    made = pk.scan(tmp_path, time="t", format="delta").collect()
    assert made["t"].cast(pa.int64()).to_pylist() == [5, 253_402_300_799_000_000]


def test_a_feature_that_is_not_understood_is_refused_before_any_row_is_read(tmp_path):
    pq.write_table(many(2), tmp_path / "a.parquet")
    write_log(tmp_path, [add(tmp_path / "a.parquet", 2)], ["rowsOfTheFuture"])
    with pytest.raises((UnsupportedError, SourceError), match="rowsOfTheFuture"):
        rows_of(tmp_path)


def test_a_file_of_the_log_that_is_not_there_is_named(tmp_path):
    pq.write_table(many(2), tmp_path / "a.parquet")
    write_log(tmp_path, [add(tmp_path / "a.parquet", 2)])
    Path(tmp_path / "a.parquet").unlink()
    with pytest.raises(SourceError, match=r"a\.parquet"):
        rows_of(tmp_path)


def test_a_damaged_deletion_vector_is_an_error_that_names_the_table(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(many(20), path)
    mark = in_a_file(tmp_path, [0, 5])
    write_log(tmp_path, [{**add(path, 20), "deletionVector": mark}], ["deletionVectors"])
    (vector_file,) = tmp_path.glob("*.bin")
    vector_file.write_bytes(vector_file.read_bytes()[:-3])
    with pytest.raises(SourceError, match="Delta table"):
        rows_of(tmp_path)


def test_a_name_that_no_file_can_have_is_an_error_that_names_the_table(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(many(20), path)
    write_log(tmp_path, [{**add(path, 20), "path": "a%00.parquet"}])
    with pytest.raises(SourceError, match="metadata of the table"):
        rows_of(tmp_path)
