"""Rows as Python programs hold them: dicts, columns and NumPy records become batches, or a clear error."""

from __future__ import annotations

import datetime as dt
from collections import UserDict
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import penstock as pk
from penstock.errors import SchemaMismatchError, SourceError
from penstock.sources.rows import batch_of, inferred, is_rows

SCHEMA = pa.schema(
    {"t": pa.timestamp("us"), "v": pa.int32(), "x": pa.float64(), "s": pa.string(), "l": pa.list_(pa.int64())}
)
ROW = {"t": dt.datetime(2026, 1, 2), "v": 3, "x": 0.5, "s": "a", "l": [1, 2]}

FORMS = {
    "a row": ROW,
    "a row of another kind of mapping": UserDict(ROW),
    "a list of rows": [ROW],
    "columns": {name: [value] for name, value in ROW.items()},
    "tuples": {name: (value,) for name, value in ROW.items()},
    "a further column": {**ROW, "more": object()},
    "ticks": {**ROW, "t": 1767312000000000},
    "numpy scalars": {**ROW, "t": np.datetime64("2026-01-02", "us"), "v": np.int8(3), "x": np.float32(0.5)},
    "arrow columns": {name: pa.array([value], SCHEMA.field(name).type) for name, value in ROW.items()},
    "chunked columns": {
        name: pa.chunked_array([[value]], SCHEMA.field(name).type) for name, value in ROW.items()
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_every_form_are_one_batch(form: str) -> None:
    assert is_rows(FORMS[form])
    batch = batch_of(FORMS[form], SCHEMA, "the rows")
    assert batch.to_pylist() == [ROW]
    assert batch.schema.types == SCHEMA.types


NARROW = pa.schema({"t": pa.int64(), "v": pa.float64()})
COLUMNS: dict[str, Any] = {
    "numpy": {"t": np.array([1, 2]), "v": np.array([0.5, np.nan])},
    "pandas": {"t": pd.Series([1, 2]), "v": pd.Series([0.5, 2.5])},
    "polars": {"t": pl.Series([1, 2]), "v": pl.Series([0.5, 2.5])},
    "a range": {"t": range(1, 3), "v": [0.5, None]},
    "records": np.array([(1, 0.5), (2, 2.5)], dtype=[("t", "i8"), ("v", "f8")]),
    "masked": {"t": [1, 2], "v": np.ma.masked_array([0.5, 9.0], [False, True])},
}


@pytest.mark.parametrize("form", COLUMNS)
def test_columns_of_every_library_are_taken(form: str) -> None:
    batch = batch_of(COLUMNS[form], NARROW, "the rows")
    assert batch["t"].to_pylist() == [1, 2]
    assert batch["v"][0].as_py() == 0.5
    assert (batch["v"].null_count == 1) == (form in ("a range", "masked"))


@pytest.mark.parametrize("make", [np.array, pd.Series])
def test_arrays_that_their_owner_may_change_are_copied(make: Any) -> None:
    values = make([1, 2])
    batch = batch_of({"t": values, "v": [1, 2]}, NARROW, "the rows")
    values[0] = 9
    assert batch["t"].to_pylist() == [1, 2]


def test_a_key_that_some_rows_lack_is_null_there_and_one_that_all_lack_is_an_error() -> None:
    batch = batch_of([{"t": 1}, {"t": 2, "v": 1}], NARROW, "the rows")
    assert batch["v"].to_pylist() == [None, 1.0]
    with pytest.raises(SchemaMismatchError, match=r"the rows has no column 'v'.*it has 'vv': rename"):
        batch_of([{"t": 1, "vv": 1}], NARROW, "the rows")


def test_no_rows_are_an_empty_batch() -> None:
    assert batch_of([], NARROW, "the rows").num_rows == 0
    assert batch_of({"t": [], "v": []}, NARROW, "the rows").num_rows == 0


UTC = dt.UTC
WRONG: list[tuple[str, Any, Any]] = [
    ("int64", 1.0, "float"),
    ("int64", True, "bool"),
    ("int64", np.True_, "bool"),
    ("int64", "1", "str"),
    ("int64", 2**63, "int"),
    ("int8", 128, "int"),
    ("uint8", -1, "int"),
    ("float64", False, "bool"),
    ("float64", "x", "str"),
    ("string", 1, "int"),
    ("string", b"\xff", "bytes"),
    ("bool", 1, "int"),
    ("timestamp[us]", 1.5, "float"),
    ("timestamp[us]", "2026-01-01", "str"),
    ("timestamp[us]", dt.datetime(2026, 1, 1, tzinfo=UTC), "datetime"),
    ("timestamp[us, UTC]", dt.datetime(2026, 1, 1), "datetime"),
    ("timestamp[ns]", dt.datetime(1, 1, 1), "datetime"),
    ("date", 1.5, "float"),
    ("duration[s]", 0.5, "float"),
]


@pytest.mark.parametrize(("kind", "value", "name"), WRONG)
def test_a_value_that_arrow_would_change_or_cannot_hold_is_refused_by_row_and_column(
    kind: str, value: Any, name: str
) -> None:
    schema = pa.schema(
        {"t": pa.int64(), "v": pk.stream("s", {"t": "int64", "v": kind}, time="t").schema.field("v").type}
    )
    with pytest.raises(SchemaMismatchError, match=f"row 1 of the rows has a {name}_? in column 'v'"):
        batch_of([{"t": 1, "v": None}, {"t": 2, "v": value}], schema, "the rows")


def test_an_error_shows_no_value() -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        batch_of([{"t": 1, "v": "the secret"}], NARROW, "the rows")
    assert "secret" not in str(caught.value)


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(SchemaMismatchError, match="'t' has 2 values, 'v' has 1"):
        batch_of({"t": [1, 2], "v": [1]}, NARROW, "the rows")
    with pytest.raises(SchemaMismatchError, match="'t' has 2 values, 'v' has 1"):
        inferred({"t": [1, 2], "v": [1]})


@pytest.mark.parametrize("single", [3, None, np.int8(3), np.array(3)], ids=repr)
def test_a_single_value_beside_columns_is_refused(single: Any) -> None:
    live = pk.stream("e", {"t": "int64", "v": "int8"}, time="t").select("t", "v").open()
    with pytest.raises(SchemaMismatchError, match=r"column 'v' of .* is a single"):
        live.push({"t": [1, 2], "v": single})


def test_a_list_must_hold_rows_alone() -> None:
    with pytest.raises(SourceError, match="number 1 is a int"):
        batch_of([{"t": 1, "v": 1}, 3], NARROW, "the rows")
    with pytest.raises(SourceError, match="number 1 is a int"):
        inferred([{"t": 1}, 3])


def test_types_are_inferred_where_none_are_declared() -> None:
    assert inferred({"t": 1, "s": "a"}).to_pylist() == [{"t": 1, "s": "a"}]
    assert inferred({"t": [1, 2], "v": np.array([0.5, 1.5])}).schema.types == [pa.int64(), pa.float64()]
    assert inferred([{"t": 1}, {"v": 2}]).to_pylist() == [{"t": 1, "v": None}, {"t": None, "v": 2}]
    with pytest.raises(SchemaMismatchError, match=r"column 'v' of the data have no common type.*pk\.stream"):
        inferred([{"t": 1, "v": 2}, {"t": 2, "v": "x"}])


def test_a_stream_is_made_of_rows() -> None:
    for data in ([{"t": 1, "v": 2}, {"t": 2, "v": 3}], {"t": np.array([1, 2]), "v": [2, 3]}):
        query = pk.from_arrow(data, time="t").window(10).agg(s=pk.sum("v"))
        assert query.collect()["s"].to_pylist() == [5]
        assert query.collect()["s"].to_pylist() == [5]


EVENTS = pk.stream("v", {"t": "int64", "v": "int64"}, time="t")


def test_a_mapping_of_stream_names_comes_before_one_of_columns() -> None:
    query = EVENTS.window(10).agg(s=pk.sum("v"))  # the stream has the name of one of its columns
    for given in (
        {"v": {"t": 1, "v": 2}},
        {"t": 1, "v": 2},
        {"v": [{"t": 1, "v": 2}]},
        {"v": {"t": [1], "v": [2]}},
    ):
        assert query.collect(given)["s"].to_pylist() == [2]
        with query.open() as live:
            live.push(given)
            assert live.finish()[0]["s"].to_pylist() == [2]
        assert [batch["s"].to_pylist() for batch in query.run(given)] == [[2]]
    with pytest.raises(pk.SourceError, match="a int is not Arrow data"):
        query.collect({"v": 2})


def test_a_run_takes_an_iterator_of_rows() -> None:
    query = EVENTS.window(10).agg(s=pk.sum("v"))
    assert [b["s"].to_pylist() for b in query.run({"t": t, "v": 1} for t in (1, 2, 12))] == [[2], [1]]
    assert [b["s"].to_pylist() for b in query.run([{"t": 1, "v": 1}, {"t": 12, "v": 1}])] == [[1], [1]]
