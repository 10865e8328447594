"""Rows and tables stand for each other."""

from __future__ import annotations

import datetime

import pyarrow as pa

from penstock.ir.samples import to_rows, to_table

TABLE = pa.table(
    {
        "at": pa.array([1, None, -3], pa.timestamp("ns", "UTC")),
        "day": pa.array([datetime.date(1970, 1, 2), None, datetime.date(1969, 12, 31)], pa.date32()),
        "gap": pa.array([5, 6, None], pa.duration("ms")),
        "word": pa.array(["a", None, "a"]).dictionary_encode(),
        "x": pa.array([0.5, None, -0.0]),
        "many": pa.array([[1, 2], None, []], pa.list_(pa.int8())),
    }
)


def test_times_are_ticks_and_dictionaries_are_decoded() -> None:
    assert to_rows(TABLE)[0] == {"at": 1, "day": 1, "gap": 5, "word": "a", "x": 0.5, "many": [1, 2]}
    assert to_rows(TABLE)[2] == {"at": -3, "day": -1, "gap": None, "word": "a", "x": -0.0, "many": []}


def test_a_table_comes_back_as_it_was() -> None:
    assert to_table(to_rows(TABLE), TABLE.schema).equals(TABLE)


def test_a_table_takes_only_the_columns_of_its_schema() -> None:
    assert to_table([{"a": 1, "b": 2}], pa.schema({"b": pa.int8()})).to_pydict() == {"b": [2]}


def test_chunks_and_empty_tables_are_no_exception() -> None:
    chunked = pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)])
    assert to_rows(chunked) == to_rows(TABLE)
    assert to_rows(TABLE.slice(0, 0)) == []
    assert to_table([], TABLE.schema).num_rows == 0
