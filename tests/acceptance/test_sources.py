"""Data from everywhere: Arrow, Polars, pandas, DuckDB, NumPy-backed frames, and files of four formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import penstock as pk

TABLE = pa.table(
    {
        "ts": pa.array([0, 5, 12, 13], pa.int64()).cast(pa.timestamp("us")),
        "k": ["a", "b", "a", None],
        "v": [1, 2, 4, 8],
        "x": [0.5, None, 2.5, 3.5],
    }
)
EXPECTED = [("a", 1, 0.5), ("b", 2, None), ("a", 4, 2.5), (None, 8, 3.5)]


def answer(stream: Any) -> list[tuple[Any, ...]]:
    result = stream.window(pk.tumbling("10us"), by="k").agg(s=pk.sum("v"), x=pk.max("x")).collect()
    rows = [(row["k"], row["s"], row["x"]) for row in result.to_pylist()]
    return sorted(rows, key=lambda row: row[1])


def test_from_a_pyarrow_table_a_batch_and_a_reader() -> None:
    assert answer(pk.from_arrow(TABLE, time="ts")) == EXPECTED
    assert answer(pk.from_arrow(TABLE.to_batches()[0], time="ts")) == EXPECTED
    assert answer(pk.from_arrow(TABLE.to_reader(), time="ts")) == EXPECTED


def test_from_polars() -> None:
    import polars

    assert answer(pk.from_arrow(polars.from_arrow(TABLE), time="ts")) == EXPECTED


def test_from_polars_with_categoricals() -> None:
    import polars

    frame = polars.from_arrow(TABLE).with_columns(polars.col("k").cast(polars.Categorical))
    assert answer(pk.from_arrow(frame, time="ts")) == EXPECTED


def test_from_pandas() -> None:
    frame = TABLE.to_pandas()
    got = answer(pk.from_arrow(frame, time="ts"))
    assert got == EXPECTED


def test_from_duckdb() -> None:
    import duckdb

    with duckdb.connect() as connection:
        connection.register("events", TABLE)
        assert answer(pk.from_arrow(connection.sql("select * from events"), time="ts")) == EXPECTED


def test_from_a_chunked_table_with_offsets() -> None:
    padded = pa.concat_tables([TABLE.slice(1, 2), TABLE, TABLE.slice(3, 1)]).combine_chunks().slice(2, 4)
    chunks = pa.concat_tables([padded.slice(0, 1), padded.slice(1, 0), padded.slice(1, 3)])
    assert answer(pk.from_arrow(chunks, time="ts")) == EXPECTED


def test_what_is_no_table_is_a_typed_error() -> None:
    with pytest.raises(pk.PenstockError):
        pk.from_arrow(42, time="ts")


def test_parquet_files_by_glob(tmp_path: Path) -> None:
    pq.write_table(TABLE.slice(0, 2), tmp_path / "a.parquet")
    pq.write_table(TABLE.slice(2, 2), tmp_path / "b.parquet", row_group_size=1)
    assert answer(pk.scan(str(tmp_path / "*.parquet"), time="ts")) == EXPECTED
    assert answer(pk.scan(tmp_path / "*.parquet", time="ts")) == EXPECTED


def test_dictionary_encoded_parquet(tmp_path: Path) -> None:
    index = TABLE.column_names.index("k")
    table = TABLE.set_column(index, "k", TABLE["k"].dictionary_encode())
    pq.write_table(table, tmp_path / "a.parquet")
    assert answer(pk.scan(str(tmp_path / "a.parquet"), time="ts")) == EXPECTED


@pytest.mark.parametrize("writer", [pa.ipc.new_file, pa.ipc.new_stream])
def test_arrow_ipc_files(tmp_path: Path, writer: Any) -> None:
    for part, name in ((TABLE.slice(0, 2), "a"), (TABLE.slice(2, 2), "b")):
        with pa.OSFile(str(tmp_path / f"{name}.arrow"), "wb") as sink, writer(sink, TABLE.schema) as out:
            out.write_table(part)
    assert answer(pk.scan(str(tmp_path / "*.arrow"), time="ts", format="arrow")) == EXPECTED


def test_csv_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,k,v,x\n1970-01-01T00:00:00,a,1,0.5\n1970-01-01T00:00:05,b,2,\n")
    (tmp_path / "b.csv").write_text("ts,k,v,x\n1970-01-01T00:00:12,a,4,2.5\n")
    stream = pk.scan(str(tmp_path / "*.csv"), time="ts")
    result = stream.window("10s", by="k").agg(s=pk.sum("v"), x=pk.max("x")).collect()
    assert sorted(result["s"].to_pylist()) == [1, 2, 4]


def test_json_lines(tmp_path: Path) -> None:
    rows = [
        {"t": 0, "k": "a", "v": 1},
        {"t": 5, "k": "b", "v": 2},
        {"t": 12, "k": "a", "v": 4},
        {"t": 13, "v": 8},
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    stream = pk.scan(str(tmp_path / "a.jsonl"), time="t", unit="s")
    result = stream.window("10s", by="k").agg(s=pk.sum("v")).collect()
    assert sorted(result["s"].to_pylist()) == [1, 2, 4, 8]


def test_a_scan_knows_its_schema_without_reading_rows(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    stream = pk.scan(str(tmp_path / "a.parquet"), time="ts")
    assert stream.schema.names == TABLE.schema.names
    with pytest.raises(pk.UnknownColumnError):
        stream.filter(pk.col("nope") == 1)


def test_files_of_a_glob_are_rows_in_the_order_of_their_names(tmp_path: Path) -> None:
    pq.write_table(TABLE.slice(2, 2), tmp_path / "2.parquet")
    pq.write_table(TABLE.slice(0, 2), tmp_path / "1.parquet")
    assert pk.scan(str(tmp_path / "*.parquet"), time="ts").collect()["v"].to_pylist() == [1, 2, 4, 8]


def test_a_declared_stream_is_bound_by_name_by_mapping_or_alone() -> None:
    declared = pk.stream("events", TABLE.schema, time="ts")
    query = declared.window("10us").agg(s=pk.sum("v"))
    for result in (query.collect(events=TABLE), query.collect({"events": TABLE}), query.collect(TABLE)):
        assert result["s"].to_pylist() == [3, 12]


def test_a_bound_stream_can_be_bound_to_other_data() -> None:
    query = pk.from_arrow(TABLE, time="ts", name="events").window("10us").agg(s=pk.sum("v"))
    assert query.collect(events=TABLE.slice(0, 1))["s"].to_pylist() == [1]
    assert query.collect()["s"].to_pylist() == [3, 12]


def test_bound_data_may_have_its_columns_in_another_order_and_more_of_them() -> None:
    query = (
        pk.stream("events", {"ts": "timestamp[us]", "v": "int64"}, time="ts")
        .window("10us")
        .agg(s=pk.sum("v"))
    )
    assert query.collect(TABLE.select(["x", "v", "k", "ts"]))["s"].to_pylist() == [3, 12]


def test_unnamed_streams_are_named_in_plan_order() -> None:
    a, b = pk.from_arrow(TABLE, time="ts"), pk.from_arrow(TABLE, time="ts")
    assert a.union(b).window("1s").agg(n=pk.count()).collect()["n"].to_pylist() == [8]


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "string",
     "date32[day]", "duration[ms]", "timestamp[s]", "timestamp[ns, tz=UTC]"],
)  # fmt: skip
def test_every_type_can_be_declared_stored_and_passed_through(dtype: str) -> None:
    declared = pk.stream("e", {"ts": "timestamp[s]", "x": dtype}, time="ts")
    column = pa.nulls(2, declared.schema.field("x").type)
    table = pa.table({"ts": pa.array([0, 1], pa.timestamp("s")), "x": column})
    assert declared.filter(pk.col("x").is_null()).collect(table).equals(table)


@pytest.mark.parametrize(
    "dtype", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str
)
def test_texts_bound_in_another_form_are_texts(dtype: pa.DataType) -> None:
    query = pk.stream("events", TABLE.schema, time="ts")
    bound = TABLE.set_column(1, "k", TABLE["k"].cast(dtype))
    rows = (
        query.window(pk.tumbling("10us"), by="k").agg(s=pk.sum("v"), x=pk.max("x")).collect(bound).to_pylist()
    )
    assert sorted(((row["k"], row["s"], row["x"]) for row in rows), key=lambda row: row[1]) == EXPECTED


def test_narrow_integers_may_be_bound_where_wide_ones_are_declared() -> None:
    bound = TABLE.set_column(2, "v", TABLE["v"].cast(pa.int16()))
    query = pk.stream("events", TABLE.schema, time="ts").window("10us").agg(s=pk.sum("v"))
    assert query.collect(bound)["s"].to_pylist() == [3, 12]


def test_one_query_takes_data_of_different_forms_in_turn() -> None:
    """What a compiled query has learnt from one table must not mislead it with the next."""
    query = (
        pk.stream("events", TABLE.schema, time="ts")
        .filter(pk.col("k") != "zzz")
        .window("1s")
        .agg(s=pk.sum("v"))
    )
    with_nulls = TABLE.set_column(2, "v", pa.array([1, None, 4, 8]))
    huge = TABLE.set_column(2, "v", pa.array([2**62, 2**62 - 1, 0, 0]))
    coded = TABLE.set_column(1, "k", TABLE["k"].dictionary_encode())
    answers = [
        query.collect(value)["s"].to_pylist()
        for value in (TABLE, with_nulls, huge, coded, TABLE.slice(1), TABLE)
    ]
    assert answers == [[7], [5], [2**63 - 1], [7], [6], [7]]
