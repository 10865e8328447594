"""Files whose schemas differ: columns that some lack, columns in another order, and types that have been widened."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather, parquet

import penstock as pk
from penstock.errors import SchemaMismatchError
from penstock.sources.conform import harmless, wider_type

WIDENED = [
    (pa.int32(), pa.int64(), [1, -(2**31)], [2**40]),
    (pa.uint16(), pa.int32(), [65535], [-5]),
    (pa.float32(), pa.float64(), [1.5], [0.1]),
    (pa.int32(), pa.float64(), [2**31 - 1], [0.25]),
    (pa.int16(), pa.float32(), [32767], [0.25]),
    (pa.decimal128(5, 2), pa.decimal128(12, 4), [Decimal("1.25")], [Decimal("-99999999.0001")]),
    (pa.int32(), pa.decimal128(12, 2), [7], [Decimal("0.25")]),
    (pa.timestamp("ms"), pa.timestamp("us"), [datetime(2026, 1, 2)], [datetime(2026, 1, 2, 3)]),
]


def written(folder: Path, name: str, table: pa.Table, format: str = "parquet") -> None:
    if format == "parquet":
        parquet.write_table(table, folder / f"{name}.parquet", row_group_size=1)
    else:
        feather.write_feather(table, folder / f"{name}.arrow", compression="uncompressed")


@pytest.mark.parametrize("format", ["parquet", "arrow"])
@pytest.mark.parametrize(("narrow", "wide", "few", "more"), WIDENED, ids=str)
def test_a_narrower_type_is_read_as_the_declared_one(tmp_path, format, narrow, wide, few, more):
    written(tmp_path, "a", pa.table({"t": range(len(few)), "x": pa.array(few, narrow)}), format)
    written(tmp_path, "b", pa.table({"x": pa.array(more, wide), "t": range(len(more))}), format)
    declared = pk.scan(tmp_path, time="t", schema={"t": "int64", "x": wide})
    merged = pk.scan(tmp_path, time="t", merge_schema=True)
    for rows in (declared, merged):
        found = rows.collect()
        assert found.schema.field("x").type == wide
        assert found["x"].to_pylist() == [*few, *more]
    first = pk.col("x") == pk.lit(few[0])
    assert merged.filter(first).collect()["x"].to_pylist() == few[:1]  # statistics are of the narrow type


def test_a_column_that_some_files_lack_is_null_in_their_rows(tmp_path):
    written(tmp_path, "a", pa.table({"t": [1, 2], "k": ["x", "y"]}))
    written(tmp_path, "b", pa.table({"new": [2.5, 3.5], "t": [3, 4], "k": ["x", None]}))
    schema = {"t": "int64", "k": "string", "new": "float64"}
    for rows in (pk.scan(tmp_path, time="t", schema=schema), pk.scan(tmp_path, time="t", merge_schema=True)):
        assert rows.collect().to_pydict() == {
            "t": [1, 2, 3, 4],
            "k": ["x", "y", "x", None],
            "new": [None, None, 2.5, 3.5],
        }
        assert rows.filter(pk.col("new") > 3).collect()["t"].to_pylist() == [4]
        assert rows.filter(pk.col("new").is_null()).select("t").collect()["t"].to_pylist() == [1, 2]
        totals = rows.window(10, by="k").agg(total=pk.sum("new"), n=pk.count()).collect()
        assert sorted(zip(totals["k"].to_pylist(), totals["total"].to_pylist(), totals["n"].to_pylist(), strict=True), key=str) == [
            ("x", 2.5, 2), ("y", None, 1), (None, 3.5, 1),
        ]  # fmt: skip
    assert pk.scan(tmp_path, time="t").collect().column_names == ["t", "k"]  # those of the first file


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_text_may_lack_declared_columns_too(tmp_path, suffix):
    texts = {
        "csv": ("t,v\n1,2\n", "v,new,t\n5,1.25,4\n"),
        "json": ('{"t":1,"v":2}\n', '{"v":5,"new":"1.25","t":4}\n'),
    }
    for name, text in zip("ab", texts[suffix], strict=True):
        (tmp_path / f"{name}.{suffix}").write_text(text)
    rows = pk.scan(tmp_path, time="t", schema={"t": "int64", "v": "int32", "new": "decimal(6, 2)"})
    assert rows.collect().to_pydict() == {"t": [1, 4], "v": [2, 5], "new": [None, Decimal("1.25")]}


def test_a_column_that_no_file_has_is_refused_by_name(tmp_path):
    for name in "ab":
        written(tmp_path, name, pa.table({"t": [1], "price": [2]}))
    with pytest.raises(SchemaMismatchError, match=r"a\.parquet' has no column 'prise'.*'price'"):
        pk.scan(tmp_path, time="t", schema={"t": "int64", "prise": "int64"}).collect()


def test_the_time_column_is_in_every_file(tmp_path):
    written(tmp_path, "a", pa.table({"t": [1], "v": [2]}))
    written(tmp_path, "b", pa.table({"v": [2]}))
    with pytest.raises(SchemaMismatchError, match=r"b\.parquet' has no column 't'"):
        pk.scan(tmp_path, time="t").collect()


@pytest.mark.parametrize(
    ("first", "second", "advice"),
    [
        (pa.int64(), pa.string(), r"cast the data, or correct the declaration$"),
        (
            pa.int32(),
            pa.int64(),
            r"correct the declaration to int64, as scan\(\.\.\., merge_schema=True\) does",
        ),
        (pa.decimal128(5, 2), pa.decimal128(6, 1), r"to decimal128\(7, 2\)"),
        (pa.int64(), pa.float64(), r"correct the declaration$"),
    ],
)
def test_a_type_that_cannot_be_widened_is_refused_with_file_and_column(tmp_path, first, second, advice):
    written(tmp_path, "a", pa.table({"t": [1], "x": pa.nulls(1, first)}))
    written(tmp_path, "b", pa.table({"t": [1], "x": pa.nulls(1, second)}))
    with pytest.raises(SchemaMismatchError, match=rf"column 'x' of the file '.*b\.parquet' is .*{advice}"):
        pk.scan(tmp_path, time="t").collect()


def test_types_that_no_type_holds_are_not_merged(tmp_path):
    written(tmp_path, "a", pa.table({"t": [1], "x": [1]}))
    written(tmp_path, "b", pa.table({"t": [1], "x": ["u"]}))
    with pytest.raises(
        SchemaMismatchError, match=r"column 'x' of the file '.*b\.parquet' is string, but int64 in files"
    ):
        pk.scan(tmp_path, time="t", merge_schema=True)


def test_files_that_arrive_may_lack_columns_and_have_narrower_ones(tmp_path):
    written(tmp_path, "a", pa.table({"t": [1, 2], "v": pa.array([1, 2], pa.int32())}))
    written(tmp_path, "b", pa.table({"new": ["u"], "v": [2**40], "t": [13]}))
    schema = {"t": "int64", "v": "int64", "new": "string"}
    rows = pk.scan_stream(tmp_path, time="t", schema=schema, stop_after="0s", poll="1ms")
    found = pa.Table.from_batches(list(rows.window(10, by="new").agg(total=pk.sum("v")).run()))
    assert found.select(["new", "total"]).to_pylist() == [
        {"new": None, "total": 3},
        {"new": "u", "total": 2**40},
    ]


TYPES = st.sampled_from(
    [
        pa.int8(),
        pa.int32(),
        pa.int64(),
        pa.uint8(),
        pa.uint64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.date32(),
        pa.decimal128(5, 2),
        pa.decimal128(20, 0),
        pa.decimal128(38, 10),
        pa.timestamp("ms"),
        pa.timestamp("ns"),
        pa.bool_(),
    ]
)


@given(first=TYPES, second=TYPES)
@settings(max_examples=200)
def test_the_wider_type_holds_both_and_does_not_depend_on_the_order(first, second):
    both = wider_type(first, second)
    assert both == wider_type(second, first)
    assert both is None or (harmless(first, both) and harmless(second, both))
