"""Iceberg tables are what their metadata says: files, snapshots, columns by id, and rows that are gone."""

from __future__ import annotations

import json
import struct
import zlib
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import manifest as m
from pyiceberg.avro.file import META_SCHEMA, AvroFileHeader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import GreaterThan
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, DoubleType, LongType, NestedField, StringType, TimestampType
from pyroaring import BitMap

import penstock as pk
from penstock.errors import SourceError, UnsupportedError
from penstock.sources.lake.iceberg import CheckedDecoder, check_avro, open_iceberg
from penstock.sources.lake.iceberg import rows_of as rows_of_vector

TABLE = pa.table(
    {"t": pa.array([1, 2, 3, 4], pa.timestamp("us")), "k": ["a", "b", "é", None], "v": [1, 2, 3, 4]}
)


@pytest.fixture
def catalog(tmp_path):
    made = SqlCatalog("test", uri="sqlite:///:memory:", warehouse=f"file://{tmp_path}")
    made.create_namespace("n")
    yield made
    made.close()


def folder_of(table):
    return table.location().removeprefix("file://")


def scan(table, **options):
    return pk.scan(folder_of(table), time="t", format="iceberg", **options)


def rows_of(table, **options):
    return sorted(scan(table, **options).collect()["v"].to_pylist())


def test_a_table_is_read_as_it_was_written(catalog):
    table = catalog.create_table("n.t", TABLE.schema)
    table.append(TABLE)
    assert scan(table).collect().equals(TABLE)
    by_file = pk.scan(table.metadata_location.removeprefix("file://"), time="t", format="iceberg")
    assert by_file.collect().equals(TABLE)


def test_a_table_without_rows_has_a_schema(catalog):
    table = catalog.create_table("n.t", TABLE.schema)
    assert scan(table).collect().equals(TABLE.slice(0, 0))


def test_a_snapshot_is_read_as_it_was(catalog):
    table = catalog.create_table("n.t", TABLE.schema)
    table.append(TABLE)
    first = table.current_snapshot().snapshot_id
    table.append(TABLE.slice(0, 1))
    assert rows_of(table) == [1, 1, 2, 3, 4]
    assert rows_of(table, snapshot=first) == [1, 2, 3, 4]
    with pytest.raises(SourceError, match="no snapshot 7"):
        rows_of(table, snapshot=7)


def test_rows_deleted_by_rewriting_are_gone(catalog):
    table = catalog.create_table("n.t", TABLE.schema)
    table.append(TABLE)
    table.delete(GreaterThan("v", 2))
    assert rows_of(table) == [1, 2]


def test_columns_are_found_by_id_whatever_their_names(catalog):
    table = catalog.create_table("n.t", TABLE.schema)
    table.append(TABLE)
    with table.update_schema() as change:
        change.rename_column("v", "old")
    with table.update_schema() as change:
        change.add_column("v", LongType())  # another column that takes the name
    table.append(
        pa.table({**dict(zip(TABLE.column_names, TABLE.columns, strict=True)), "old": [10, 20, 30, 40]})
    )
    made = scan(table).collect().sort_by("old")
    assert made["old"].to_pylist() == [1, 2, 3, 4, 10, 20, 30, 40]
    assert made["v"].to_pylist() == [None, None, None, None, 1, 2, 3, 4]
    assert scan(table).filter(pk.col("old") > 3).filter(pk.col("v").is_null()).collect()[
        "old"
    ].to_pylist() == [4]


def test_fields_of_structs_are_found_by_id_whatever_their_names(catalog):
    inner = pa.struct({"x": pa.int32(), "y": pa.string()})
    given = pa.schema(
        {"t": pa.timestamp("us"), "s": pa.struct({"a": pa.int64(), "b": pa.string(), "in": inner})}
    )
    rows = [{"t": 1, "s": {"a": 1, "b": "u", "in": {"x": 7, "y": "p"}}}, {"t": 2, "s": None}]
    table = catalog.create_table("n.t", given)
    table.append(pa.Table.from_pylist(rows, given))
    with table.update_schema() as change:
        change.rename_column("s.a", "old").delete_column("s.b").rename_column("s.in.x", "first")
    with table.update_schema() as change:
        change.add_column(("s", "b"), LongType())  # two others that take the names
        change.add_column(("s", "a"), LongType())
    renamed = pa.struct({"first": pa.int32(), "y": pa.string()})
    fields = {"old": pa.int64(), "in": renamed, "b": pa.int64(), "a": pa.int64()}
    wide = pa.schema({"t": pa.timestamp("us"), "s": pa.struct(fields)})
    more = [{"t": 3, "s": {"old": 10, "in": {"first": 70, "y": "q"}, "b": 5, "a": 6}}]
    table.append(pa.Table.from_pylist(more, wide))
    before = {"old": 1, "in": {"first": 7, "y": "p"}, "b": None, "a": None}
    expected = [before, None, more[0]["s"]]
    assert scan(table).collect().sort_by("t")["s"].to_pylist() == expected
    s = pk.col("s").struct
    found = scan(table).select(
        "t", old=s.field("old"), b=s.field("b"), first=s.field("in").struct.field("first")
    )
    assert found.collect().sort_by("t").drop(["t"]).to_pylist() == [
        {"old": 1, "b": None, "first": 7},
        {"old": None, "b": None, "first": None},
        {"old": 10, "b": 5, "first": 70},
    ]
    kept = scan(table).filter(s.field("b") == 5).select("t", a=s.field("a"))
    assert kept.collect()["a"].to_pylist() == [6]
    totals = scan(table).window(pk.unbounded()).agg(n=pk.sum(s.field("a"))).collect()
    assert totals["n"].to_pylist() == [6]


def test_types_that_were_widened_are_read_from_older_files(catalog):
    given = pa.schema({"t": pa.timestamp("us"), "v": pa.int32(), "x": pa.float32(), "d": pa.decimal128(5, 2)})
    rows = [{"t": 1, "v": 1, "x": 0.5, "d": Decimal("1.25")}]
    table = catalog.create_table("n.t", given)
    table.append(pa.Table.from_pylist(rows, given))
    with table.update_schema() as change:
        change.update_column("v", LongType())
        change.update_column("x", DoubleType())
        change.update_column("d", DecimalType(9, 2))
    wide = pa.schema({"t": pa.timestamp("us"), "v": pa.int64(), "x": pa.float64(), "d": pa.decimal128(9, 2)})
    more = [{"t": 2, "v": 2**40, "x": 0.1, "d": Decimal("-1234567.25")}]
    table.append(pa.Table.from_pylist(more, wide))
    assert scan(table).collect().schema.types[1:] == wide.types[1:]
    found = scan(table).collect().sort_by("t")
    assert found.drop(["t"]).to_pylist() == [{name: row[name] for name in "vxd"} for row in rows + more]
    assert scan(table).filter(pk.col("d") == Decimal("1.25")).collect()["v"].to_pylist() == [1]
    totals = scan(table).window(pk.unbounded()).agg(s=pk.sum("d")).collect()
    assert totals["s"].to_pylist() == [Decimal("-1234566.00")]


def test_a_renamed_time_has_its_statistics(catalog):
    table = catalog.create_table("n.t", TABLE.schema)
    table.append(TABLE)
    with table.update_schema() as change:
        change.rename_column("t", "when")
    (fragment,) = open_iceberg(folder_of(table)).dataset("when").fragments
    assert (fragment.time_min, fragment.time_max) == (1, 4)


def test_a_partitioned_table_is_read(catalog):
    schema = Schema(
        NestedField(1, "t", TimestampType()),
        NestedField(2, "k", StringType()),
        NestedField(3, "v", LongType()),
    )
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "k"))
    table = catalog.create_table("n.t", schema, partition_spec=spec)
    table.append(TABLE)
    assert scan(table).collect().sort_by("v").equals(TABLE)
    assert scan(table).filter(pk.col("k") == "b").collect()["v"].to_pylist() == [2]


# --- rows deleted without rewriting, as other engines do: metadata made by hand ------------------------------


class DeleteManifest(m.ManifestWriterV2):
    def content(self):
        return m.ManifestContent.DELETES

    @property
    def _meta(self):
        return {**super()._meta, "content": "deletes"}


def delete_file(table, path, content, equality_ids=None, file_format=m.FileFormat.PARQUET):
    return m.DataFile.from_args(
        content=content,
        file_path=f"file://{path}",
        file_format=file_format,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=Path(path).stat().st_size,
        equality_ids=equality_ids,
    )


def commit_deletes(table, file):
    """Write a snapshot that adds one delete file to what is there."""
    folder, io = Path(folder_of(table)) / "metadata", PyArrowFileIO()
    number, parent = 7_777, table.current_snapshot()
    with DeleteManifest(
        table.spec(), table.schema(), io.new_output(f"file://{folder}/deletes.avro"), number, "null"
    ) as out:
        out.add_entry(
            m.ManifestEntry.from_args(status=m.ManifestEntryStatus.ADDED, snapshot_id=number, data_file=file)
        )
    order = parent.sequence_number + 1
    target = io.new_output(f"file://{folder}/list.avro")
    with m.write_manifest_list(2, target, number, parent.snapshot_id, order, "null") as out:
        out.add_manifests([*parent.manifests(io), out.prepare_manifest(_written(folder, number))])
    _add_snapshot(table, folder, number, order)


def _written(folder, number):
    path = folder / "deletes.avro"
    return m.ManifestFile.from_args(
        manifest_path=f"file://{path}", manifest_length=path.stat().st_size, partition_spec_id=0,
        content=m.ManifestContent.DELETES, sequence_number=m.UNASSIGNED_SEQ, min_sequence_number=m.UNASSIGNED_SEQ,
        added_snapshot_id=number, added_files_count=1, existing_files_count=0, deleted_files_count=0,
        added_rows_count=1, existing_rows_count=0, deleted_rows_count=0, partitions=[],
    )  # fmt: skip


def _add_snapshot(table, folder, number, order):
    metadata = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text(encoding="utf-8"))
    metadata["snapshots"].append(
        {**metadata["snapshots"][-1], "snapshot-id": number, "sequence-number": order, "manifest-list": f"file://{folder}/list.avro"}
    )  # fmt: skip
    metadata["current-snapshot-id"], metadata["last-sequence-number"] = number, order
    metadata["refs"] = {"main": {"snapshot-id": number, "type": "branch"}}
    (folder / "09999-by-hand.metadata.json").write_text(json.dumps(metadata), encoding="utf-8")


def test_rows_that_position_deletes_list_are_gone(catalog, tmp_path):
    table = catalog.create_table("n.t", TABLE.schema)
    table.append(TABLE)
    other = catalog.load_table("n.t")
    other.append(TABLE)
    files = [task.file.file_path for task in other.scan().plan_files()]
    deletes = pa.table({"file_path": [files[0], files[0], files[1]], "pos": pa.array([0, 2, 3], pa.int64())})
    pq.write_table(deletes, tmp_path / "deletes.parquet")
    commit_deletes(
        other, delete_file(other, tmp_path / "deletes.parquet", m.DataFileContent.POSITION_DELETES)
    )
    assert rows_of(other) == [1, 2, 2, 3, 4]
    assert open_iceberg(folder_of(other)).rows == 5


def puffin(file, places):
    """Write a deletion vector as the specification of Puffin files says."""
    bitmap = b"\xd1\xd3\x39\x64" + struct.pack("<qi", 1, 0) + BitMap(places).serialize()
    blob = struct.pack(">i", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap))
    about = {"type": "deletion-vector-v1", "fields": [], "snapshot-id": 1, "sequence-number": 1, "offset": 4, "length": len(blob), "properties": {"referenced-data-file": file, "cardinality": str(len(places))}}  # fmt: skip
    footer = json.dumps({"blobs": [about], "properties": {}}).encode()
    return b"PFA1" + blob + b"PFA1" + footer + struct.pack("<ii", len(footer), 0) + b"PFA1"


def test_rows_that_a_deletion_vector_marks_are_gone(catalog, tmp_path):
    table = catalog.create_table("n.t", TABLE.schema)
    table.append(TABLE)
    (task,) = table.scan().plan_files()
    (tmp_path / "dv.puffin").write_bytes(puffin(task.file.file_path, [1, 3]))
    position = m.DataFileContent.POSITION_DELETES
    commit_deletes(table, delete_file(table, tmp_path / "dv.puffin", position, None, m.FileFormat.PUFFIN))
    assert rows_of(table) == [1, 3]


def vector(places, upper):
    bitmap = b"\xd1\xd3\x39\x64" + struct.pack("<qi", 1, upper) + BitMap(places).serialize()
    return struct.pack(">i", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap))


def test_row_numbers_of_a_vector_may_be_large():
    assert rows_of_vector("a", vector([1, 5], 2**31 - 1)).tolist() == [(2**31 - 1 << 32) + n for n in (1, 5)]


@pytest.mark.parametrize("place", [0, 5, 9, 17, 25, -1])
def test_a_vector_of_which_a_byte_has_changed_is_an_error_that_names_its_file(place):
    damaged = bytearray(vector([1, 5], 0))
    damaged[place] ^= 64
    with pytest.raises(SourceError, match=r"'a'.*vector"):
        rows_of_vector("a", bytes(damaged))


def test_a_vector_that_is_cut_short_is_an_error():
    whole = vector([1, 5], 0)
    for size in range(len(whole)):
        with pytest.raises(SourceError, match="vector"):
            rows_of_vector("a", whole[:size])


def test_deletes_by_equality_are_refused_before_any_row_is_read(catalog, tmp_path):
    table = catalog.create_table("n.t", TABLE.schema)
    table.append(TABLE)
    pq.write_table(pa.table({"v": [3]}), tmp_path / "deletes.parquet")
    file = delete_file(table, tmp_path / "deletes.parquet", m.DataFileContent.EQUALITY_DELETES, [3])
    commit_deletes(table, file)
    with pytest.raises(UnsupportedError, match="equality"):
        scan(table)


def test_a_delete_file_that_is_not_there_is_named(catalog, tmp_path):
    table = catalog.create_table("n.t", TABLE.schema)
    table.append(TABLE)
    pq.write_table(pa.table({"file_path": ["x"], "pos": [3]}), tmp_path / "deletes.parquet")
    commit_deletes(
        table, delete_file(table, tmp_path / "deletes.parquet", m.DataFileContent.POSITION_DELETES)
    )
    (tmp_path / "deletes.parquet").unlink()
    with pytest.raises(SourceError, match=r"deletes\.parquet"):
        scan(table)


def test_columns_of_a_file_without_ids_are_those_that_the_table_maps_to_names(catalog, tmp_path):
    table = catalog.create_table("n.t", TABLE.schema)
    pq.write_table(TABLE.select(["v", "k", "t"]), tmp_path / "foreign.parquet")
    table.add_files([f"file://{tmp_path}/foreign.parquet"])
    with table.update_schema() as change:
        change.rename_column("v", "old")
    assert scan(table).collect()["old"].to_pylist() == TABLE["v"].to_pylist()


def test_a_file_added_without_ids_is_refused_without_a_mapping(catalog, tmp_path):
    table = catalog.create_table("n.t", TABLE.schema)
    pq.write_table(TABLE, tmp_path / "foreign.parquet")
    table.add_files([f"file://{tmp_path}/foreign.parquet"])
    with table.transaction() as change:
        change.remove_properties("schema.name-mapping.default")
    with pytest.raises(UnsupportedError, match=r"foreign\.parquet"):
        scan(table).collect()


@pytest.mark.parametrize("content", [None, "{", "{}"])
def test_what_is_no_table_is_an_error(tmp_path, content):
    (tmp_path / "metadata").mkdir()
    if content is not None:
        (tmp_path / "metadata" / "v1.metadata.json").write_text(content, encoding="utf-8")
    with pytest.raises(SourceError, match="Iceberg table"):
        pk.scan(tmp_path, time="t", format="iceberg")


def test_two_newest_metadata_files_are_an_error_unless_the_hint_names_one(catalog):
    table = catalog.create_table("n.t", TABLE.schema)
    table.append(TABLE)
    folder = Path(folder_of(table)) / "metadata"
    newest = Path(table.metadata_location.removeprefix("file://"))
    (folder / f"{newest.name[:5]}-twin.metadata.json").write_bytes(newest.read_bytes())
    with pytest.raises(SourceError, match="several newest"):
        scan(table)
    (folder / "version-hint.text").write_text(newest.name.removesuffix(".metadata.json"), encoding="utf-8")
    assert rows_of(table) == [1, 2, 3, 4]


def manifests(table):
    return [Path(manifest.manifest_path.removeprefix("file://")) for manifest in table.current_snapshot().manifests(table.io)]  # fmt: skip


def test_a_manifest_with_a_length_beyond_its_end_is_an_error_that_names_it(catalog):
    table = catalog.create_table("n.t", TABLE.schema)
    table.append(TABLE)
    (manifest,) = manifests(table)
    whole = manifest.read_bytes()
    rewritten = uncompressed(whole)
    check_avro("good", rewritten)
    name = next(iter(table.scan().plan_files())).file.file_path.encode()
    length = encoded(len(name))
    assert length + name in rewritten
    with pytest.raises(SourceError, match="damaged"):
        check_avro("bad", rewritten.replace(length + name, encoded(1 << 40) + name))
    manifest.write_bytes(whole[:-20])
    with pytest.raises(SourceError, match=manifest.name):
        scan(table)


def encoded(number):
    """Write a number as Avro does."""
    number, found = number << 1, b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def uncompressed(data):
    """Write the one block of an Avro file without compression."""
    decoder = CheckedDecoder(data)
    header = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
    begin = decoder.tell()
    records, block = decoder.read_int(), decoder.read_bytes()
    plain = header.compression_codec().decompress(block)
    codec = encoded(len(header.meta["avro.codec"])) + header.meta["avro.codec"].encode()
    head = data[:begin].replace(codec, encoded(4) + b"null")
    return head + encoded(records) + encoded(len(plain)) + plain + header.sync


def test_code_that_a_tables_properties_name_is_not_run(catalog, tmp_path, monkeypatch):
    (tmp_path / "planted_code.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(tmp_path)
    table = catalog.create_table("n.t", TABLE.schema)
    table.append(TABLE)
    path = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text(encoding="utf-8"))
    metadata["properties"]["py-io-impl"] = "planted_code.IO"
    path.write_text(json.dumps(metadata), encoding="utf-8")
    assert rows_of(table) == [1, 2, 3, 4]
