"""Files of every format are found, checked and read in order of path and row."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.errors import SchemaMismatchError, SourceError
from penstock.sources.dataset import open_files
from penstock.sources.paths import FoundFile, format_of

TABLE = pa.table(
    {"t": pa.array([1, 2, 3], pa.int64()), "s": ["x", 'quo"te\nline', None], "f": [0.5, None, 2.0]}
)


def write_ipc(path, table, opener=pa.ipc.new_file):
    with opener(path, table.schema) as writer:
        writer.write_table(table)


def write_json(path, table):
    path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()), encoding="utf-8")


WRITERS = {
    "parquet": lambda path, table: pq.write_table(table, path),
    "arrow": lambda path, table: write_ipc(str(path), table),
    "csv": lambda path, table: pacsv.write_csv(table, path),
    "json": write_json,
}


def all_of(files, columns=None):
    return pa.Table.from_batches(files.batches(columns))


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_file_is_read_back_as_it_was_written(tmp_path, suffix):
    WRITERS[suffix](tmp_path / f"a.{suffix}", TABLE)
    files = open_files(tmp_path / f"a.{suffix}")
    assert files.schema == TABLE.schema
    assert all_of(files).to_pydict() == TABLE.to_pydict()
    assert all_of(files, ["f", "t"]).to_pydict() == TABLE.select(["f", "t"]).to_pydict()
    assert sum(batch.num_rows for batch in files.batches([])) == 3


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_glob_takes_files_in_order_of_their_paths(tmp_path, suffix):
    for number in (3, 1, 2):
        WRITERS[suffix](tmp_path / f"part-{number}.{suffix}", pa.table({"t": [number]}))
    assert all_of(open_files(f"{tmp_path}/part-*.{suffix}"))["t"].to_pylist() == [1, 2, 3]
    assert all_of(open_files(tmp_path))["t"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("suffix", WRITERS)
def test_another_order_of_columns_and_more_of_them_do_no_harm(tmp_path, suffix):
    WRITERS[suffix](tmp_path / f"a.{suffix}", TABLE)
    WRITERS[suffix](
        tmp_path / f"b.{suffix}", TABLE.select(["f", "s", "t"]).append_column("more", pa.array([1, 2, 3]))
    )
    assert all_of(open_files(f"{tmp_path}/*.{suffix}"))["t"].to_pylist() == [1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_column_that_all_files_lack_names_the_first_before_any_row_is_read(tmp_path, suffix):
    for name in "ab":
        WRITERS[suffix](tmp_path / f"{name}.{suffix}", TABLE.select(["t", "f"]))
    files = open_files(f"{tmp_path}/*.{suffix}", schema=TABLE.schema)
    with pytest.raises(SchemaMismatchError, match=rf"a\.{suffix}' has no column 's'"):
        files.batches(["t"])


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_column_of_another_type_names_the_file(tmp_path, suffix):
    WRITERS[suffix](tmp_path / f"a.{suffix}", pa.table({"t": [1]}))
    WRITERS[suffix](tmp_path / f"b.{suffix}", pa.table({"t": ["one"]}))
    with pytest.raises(SchemaMismatchError, match=rf"'t' of the file .*b\.{suffix}"):
        open_files(f"{tmp_path}/*.{suffix}").batches(["t"])


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_an_unreadable_file_is_named(tmp_path, suffix):
    (tmp_path / f"bad.{suffix}").write_bytes(b"this is no such file at all")
    with pytest.raises(SourceError, match=rf"bad\.{suffix}"):
        open_files(f"{tmp_path}/*.{suffix}")


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_text_that_breaks_off_is_named(tmp_path, suffix):
    WRITERS[suffix](tmp_path / f"a.{suffix}", pa.table({"t": [1, 2]}))
    with (tmp_path / f"a.{suffix}").open("a", encoding="utf-8") as file:
        file.write("3,4,5\n" if suffix == "csv" else '{"t": 3')
    with pytest.raises(SourceError, match=rf"a\.{suffix}"):
        all_of(open_files(tmp_path / f"a.{suffix}"))


def test_a_truncated_parquet_file_is_an_error_not_a_short_answer(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"t": list(range(10_000))}), path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(SourceError, match=r"a\.parquet"):
        open_files(path)


@pytest.mark.parametrize("paths", ["none-*.parquet", "missing.parquet", []])
def test_no_file_at_all_is_an_error(tmp_path, paths):
    given = paths if isinstance(paths, list) else str(tmp_path / paths)
    with pytest.raises(SourceError):
        open_files(given)


def test_a_dictionary_stays_a_dictionary(tmp_path):
    table = pa.table({"d": pa.array(["x", "y", "x"]).dictionary_encode()})
    pq.write_table(table, tmp_path / "a.parquet")
    write_ipc(str(tmp_path / "a.arrow"), table)
    for suffix in ("parquet", "arrow"):
        files = open_files(tmp_path / f"a.{suffix}")
        assert pa.types.is_dictionary(files.schema.field("d").type)
        assert pa.types.is_dictionary(all_of(files).schema.field("d").type)


def test_an_ipc_stream_is_read_like_an_ipc_file(tmp_path):
    write_ipc(str(tmp_path / "a.arrow"), TABLE, pa.ipc.new_stream)
    assert all_of(open_files(tmp_path / "a.arrow")).to_pydict() == TABLE.to_pydict()


def test_declared_types_decide_how_text_is_read(tmp_path):
    (tmp_path / "a.csv").write_text("t,v\n2026-01-01T00:00:00,007\n", encoding="utf-8")
    (tmp_path / "a.jsonl").write_text('{"t": "2026-01-01T00:00:00", "v": "007"}\n', encoding="utf-8")
    schema = pa.schema({"t": pa.timestamp("us"), "v": pa.string()})
    for name in ("a.csv", "a.jsonl"):
        assert all_of(open_files(tmp_path / name, schema=schema)).schema == schema
        assert all_of(open_files(tmp_path / name, schema=schema))["v"].to_pylist() == ["007"]


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize(("kind", "words"), [("time32[ms]", "i4"), ("time64[us]", "i8")])
def test_a_time_beyond_its_day_is_refused_with_the_file_named(tmp_path, suffix, kind, words):
    values = pa.py_buffer(np.array([0, 2_000_000_000 if words == "i4" else 2 * 86_400_000_000], words))
    column = pa.Array.from_buffers(pa.type_for_alias(kind), 2, [None, values])
    WRITERS[suffix](tmp_path / f"a.{suffix}", pa.table({"t": [1, 2], "at": column}))
    with pytest.raises(SourceError, match=rf"a\.{suffix}.*cannot be read"):
        all_of(open_files(tmp_path / f"a.{suffix}"))


def test_parquet_tells_its_number_of_rows_and_text_does_not(tmp_path):
    for suffix in ("parquet", "csv"):
        WRITERS[suffix](tmp_path / f"a.{suffix}", TABLE)
    assert open_files(tmp_path / "a.parquet").rows == 3
    assert open_files(tmp_path / "a.csv").rows is None


@pytest.mark.parametrize(
    ("path", "given", "expected"),
    [
        ("a.parquet", None, "parquet"),
        ("a.csv.gz", None, "csv"),
        ("a.ndjson", None, "json"),
        ("a.feather", None, "arrow"),
        ("a", "csv", "csv"),
        ("a.csv", "json", "json"),
    ],
)
def test_the_format_follows_the_name_unless_it_is_given(path, given, expected):
    assert format_of([FoundFile(path)], given) == expected


@pytest.mark.parametrize(
    ("path", "given", "error"),
    [
        ("a", None, SourceError),
        ("a.xyz", None, SourceError),
        ("a", "xls", SourceError),
    ],
)
def test_a_format_that_cannot_be_told_or_read_is_refused(path, given, error):
    with pytest.raises(error):
        format_of([FoundFile(path)], given)


def test_a_path_with_glob_characters_of_its_own_is_found(tmp_path):
    path = tmp_path / "day[1].csv"
    WRITERS["csv"](path, pa.table({"t": [1]}))
    assert all_of(open_files(path))["t"].to_pylist() == [1]


@pytest.mark.parametrize("inside", [False, True], ids=["a column", "inside of a column"])
def test_a_name_of_a_column_that_is_no_utf8_is_an_error_that_names_the_file(tmp_path, inside):
    path = tmp_path / "a.arrow"
    column = pa.array([{"wxyz": 1}]) if inside else pa.array([1])
    data = pa.table({"t": [1], "s" if inside else "wxyz": column})
    with pa.ipc.new_file(path, data.schema) as writer:
        writer.write_table(data)
    path.write_bytes(path.read_bytes().replace(b"wxyz", b"wx\xff\xff"))
    with pytest.raises(SchemaMismatchError, match=r"a\.arrow.*not valid UTF-8"):
        pk.scan(path, time="t")


@pytest.mark.parametrize("suffix", ["parquet", "json"])
def test_a_text_that_is_no_utf8_is_an_error_that_names_the_file(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    if suffix == "parquet":
        data = pa.table({"t": [1, 2], "k": ["é", "wxyz"]})
        pq.write_table(data, path, compression="none", use_dictionary=False, write_statistics=False)
    else:
        path.write_text('{"t": 1, "k": "é"}\n{"t": 2, "k": "wxyz"}\n', encoding="utf-8")
    assert pk.scan(path, time="t").collect()["k"].to_pylist() == ["é", "wxyz"]
    path.write_bytes(path.read_bytes().replace(b"wxyz", b"wx\xff\xff"))
    with pytest.raises(SourceError, match=rf"a\.{suffix}"):
        pk.scan(path, time="t", on_bad="fail").collect()


def test_a_decimal_of_too_many_digits_is_an_error_that_names_the_file(tmp_path):
    path = tmp_path / "a.parquet"
    price = pa.array([1234], pa.int64()).cast(pa.decimal128(38, 0)).cast(pa.decimal128(4, 0))
    data = pa.table({"t": [1], "d": price})
    pq.write_table(data, path, compression="none", use_dictionary=False, write_statistics=False)
    stored = (1234).to_bytes(2, "big")
    assert path.read_bytes().count(stored) == 1
    path.write_bytes(path.read_bytes().replace(stored, b"\x7f\xff"))
    with pytest.raises(SourceError, match=r"a\.parquet"):
        pk.scan(path, time="t").collect()
