"""Paths, folders and globs become files; folders named `column=value` become columns."""

from __future__ import annotations

import os
import socket

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.errors import SchemaMismatchError, SourceError
from penstock.sources.dataset import Dataset
from penstock.sources.paths import find, format_of, partition_fields
from penstock.sources.prefetch import read


def lake(root, *names, table=None):
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"t": [number]}) if table is None else table, root / name)
    return root


def names_of(found, root):
    return [value.path.removeprefix(f"{root}/") for value in found]


def test_a_folder_stands_for_all_files_below_it_in_order_of_their_paths(tmp_path):
    lake(tmp_path, "b/2.parquet", "a/z/1.parquet", "c.parquet", "a/b.parquet")
    assert names_of(find(tmp_path), tmp_path) == ["a/b.parquet", "a/z/1.parquet", "b/2.parquet", "c.parquet"]


def test_names_that_begin_with_a_dot_or_an_underscore_are_no_data(tmp_path):
    lake(tmp_path, "1.parquet", "_temporary/0.parquet", ".hidden.parquet")
    (tmp_path / "_SUCCESS").touch()
    assert names_of(find(tmp_path), tmp_path) == ["1.parquet"]


def test_a_glob_that_matches_folders_takes_the_files_in_them(tmp_path):
    lake(tmp_path, "day=1/a.parquet", "day=2/b.parquet", "day=13/c.parquet")
    found = find(f"{tmp_path}/day=1*")
    assert names_of(found, tmp_path) == ["day=1/a.parquet", "day=13/c.parquet"]
    assert [value.partition for value in found] == [(("day", "1"),), (("day", "13"),)]


def test_a_file_named_twice_is_read_once(tmp_path):
    lake(tmp_path, "a.parquet")
    assert len(find([tmp_path / "a.parquet", f"{tmp_path}/*.parquet"])) == 1


def test_folders_before_the_first_wildcard_give_no_columns(tmp_path):
    lake(tmp_path / "day=1", "hour=2/a.parquet")
    assert find(f"{tmp_path}/day=1/hour=*/*.parquet")[0].partition == (("hour", "2"),)
    assert find(tmp_path / "day=1")[0].partition == (("hour", "2"),)


@pytest.mark.parametrize("name", ["empty", "empty/deeper"])
def test_a_folder_without_files_is_an_error(tmp_path, name):
    (tmp_path / name).mkdir(parents=True)
    with pytest.raises(SourceError, match="holds no files"):
        find(tmp_path / "empty")


def test_files_of_two_formats_in_one_folder_are_an_error_that_names_both(tmp_path):
    lake(tmp_path, "a.parquet")
    (tmp_path / "b.csv").write_text("t\n1\n", encoding="utf-8")
    with pytest.raises(SourceError, match=r"a\.parquet.*b\.csv"):
        format_of(find(tmp_path), None)


def test_files_in_other_partition_folders_than_the_first_are_an_error_that_names_one(tmp_path):
    lake(tmp_path, "day=1/a.parquet", "day=1/hour=2/b.parquet")
    with pytest.raises(SourceError, match=r"b\.parquet"):
        find(tmp_path)


def test_one_column_in_two_folders_is_an_error(tmp_path):
    lake(tmp_path, "day=1/day=2/a.parquet")
    with pytest.raises(SourceError, match="two folders"):
        find(tmp_path)


@pytest.mark.parametrize(
    ("values", "dtype", "read"),
    [
        (["1", "20", "-3"], pa.int64(), [1, 20, -3]),
        (["1", "__HIVE_DEFAULT_PARTITION__"], pa.int64(), [1, None]),
        (["007", "8"], pa.string(), ["007", "8"]),
        (["2026-01-01", "2026-12-31"], pa.date32(), [20454, 20818]),
        (["2026-01-01", "x"], pa.string(), ["2026-01-01", "x"]),
        (["a%20b", "c%2Fd"], pa.string(), ["a b", "c/d"]),
        (["a=b"], pa.string(), ["a=b"]),
        ([""], pa.string(), [""]),
        (["9" * 30], pa.string(), ["9" * 30]),
        (["__HIVE_DEFAULT_PARTITION__"], pa.string(), [None]),
    ],
)
def test_values_of_folders_are_integers_dates_or_texts(tmp_path, values, dtype, read):
    for place, value in enumerate(values):
        lake(tmp_path, f"k={value}/{place}.parquet", table=pa.table({"t": [place]}))
    data = Dataset.of(tmp_path)
    assert partition_fields(find(tmp_path)) == [pa.field("k", dtype)]
    assert data.schema == pa.schema({"t": pa.int64(), "k": dtype})
    table = pa.Table.from_batches(data.batches(), schema=data.schema).sort_by("t")
    column = table["k"].cast(pa.int32()) if dtype == pa.date32() else table["k"]
    assert column.to_pylist() == read


def test_a_declared_type_decides_how_folders_are_read(tmp_path):
    lake(tmp_path, "k=7/a.parquet")
    data = Dataset.of(tmp_path, schema=pa.schema({"k": pa.float32(), "t": pa.int64()}))
    assert pa.Table.from_batches(data.batches()).to_pydict() == {"k": [7.0], "t": [0]}


def test_a_value_of_a_folder_that_is_none_of_the_declared_type_names_the_file(tmp_path):
    lake(tmp_path, "k=x/a.parquet")
    with pytest.raises(SchemaMismatchError, match=r"a\.parquet.*'k'"):
        Dataset.of(tmp_path, schema=pa.schema({"k": pa.int64(), "t": pa.int64()}))


def test_a_folder_stands_for_a_column_of_its_name_in_the_file(tmp_path):
    lake(tmp_path, "k=7/a.parquet", table=pa.table({"k": ["in the file"], "t": [1]}))
    assert pa.Table.from_batches(Dataset.of(tmp_path).batches()).to_pydict() == {"k": [7], "t": [1]}


def test_a_query_reads_columns_of_folders_like_any_other(tmp_path):
    for day in (1, 2, 3):
        lake(tmp_path, f"day={day}/a.parquet", table=pa.table({"t": [day, day + 10], "v": [1, 2]}))
    events = pk.scan(tmp_path, time="t")
    result = events.filter(pk.col("day") != 2).window(10, by="day").agg(total=pk.sum("v")).collect()
    assert sorted(zip(result["day"].to_pylist(), result["total"].to_pylist(), strict=True)) == [
        (1, 1),
        (1, 2),
        (3, 1),
        (3, 2),
    ]


def irregular(kind, path):
    if kind == "pipe":
        os.mkfifo(path)
        return None
    held = socket.socket(socket.AF_UNIX)
    held.bind(str(path))
    return held


@pytest.mark.parametrize("kind", ["pipe", "socket"])
@pytest.mark.parametrize("given", ["file", "folder", "glob", "link", "list"])
def test_what_is_no_regular_file_is_refused_without_being_opened(tmp_path, monkeypatch, kind, given):
    monkeypatch.chdir(tmp_path)  # names of sockets must be short
    (tmp_path / "in").mkdir()
    held = irregular(kind, "in/a.csv")
    (tmp_path / "b.csv").symlink_to(tmp_path / "in" / "a.csv")
    paths = {"file": "in/a.csv", "folder": "in", "glob": "in/*.csv", "link": "b.csv", "list": ["in/a.csv"]}[
        given
    ]
    for format in ("csv", None):
        with pytest.raises(SourceError, match=rf"csv' is a {kind}, not a regular file"):
            pk.scan(paths, time="t", format=format, schema={"t": "int64"})
    if given != "list":
        stream = pk.scan_stream(paths, time="t", format="csv", schema={"t": "int64"}, stop_after="0s")
        with pytest.raises(SourceError, match="not a regular file"):
            stream.collect()
        with pytest.raises(SourceError, match="not a regular file"):
            list(stream.run())
    if held is not None:
        held.close()


def test_a_device_is_refused():
    for path in ("/dev/null", "/dev/zero"):
        with pytest.raises(SourceError, match="is a device, not a regular file"):
            pk.scan(path, time="t", format="json")


@pytest.mark.parametrize("suffix", ["csv", "json", "arrow", "parquet"])
def test_a_file_that_became_a_pipe_is_refused(tmp_path, suffix):
    write(tmp_path / f"a.{suffix}", suffix)
    query = pk.scan(tmp_path, time="t", schema={"t": "int64"})
    fragments = next(iter(query.data.values())).dataset().fragments
    (tmp_path / f"a.{suffix}").unlink()
    os.mkfifo(tmp_path / f"a.{suffix}")
    with pytest.raises(SourceError, match="is a pipe, not a regular file"):
        list(read(fragments[0], query.schema))
    with pytest.raises(SourceError, match="is a pipe, not a regular file"):
        query.collect()


def write(path, suffix):
    table = pa.table({"t": [1]})
    if suffix == "parquet":
        pq.write_table(table, path)
    elif suffix == "arrow":
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    else:
        path.write_text("t\n1\n" if suffix == "csv" else '{"t": 1}\n')
