"""Objects of other libraries, where Penstock's own are meant, are refused by name, with what to write instead."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as pk

EVENTS = pk.from_arrow(pa.table({"t": [1, 2, 12], "v": [1, 2, 3]}), time="t", name="e")


class SparkColumn:
    """Behaves as a Column of Spark does: any attribute is another Column, and none has a truth value."""

    def __getattr__(self, name: str) -> SparkColumn:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __bool__(self) -> bool:
        raise ValueError("CANNOT_CONVERT_COLUMN_INTO_BOOL")

    def __iter__(self) -> Iterator[object]:
        raise TypeError("NOT_ITERABLE")

    def __call__(self) -> object:
        raise TypeError("NOT_CALLABLE")

    def __ne__(self, other: object) -> SparkColumn:  # type: ignore[override]
        return self

    __hash__ = None  # type: ignore[assignment]


SparkColumn.__module__, SparkColumn.__name__ = "pyspark.sql.classic.column", "Column"

EXPRESSIONS: dict[str, object] = {
    "PySpark Column": SparkColumn(),
    "Polars Expr": pl.col("v") > 1,
    "PyArrow Expression": pc.field("v") > 1,
}
VALUES: dict[str, object] = {
    "pandas Series": pd.Series([True, False, True]),
    "Polars Series": pl.Series([True, False, True]),
    "NumPy ndarray": np.array([True, False, True]),
}
PLACES: dict[str, Callable[[Any], object]] = {
    "filter": EVENTS.filter,
    "select": EVENTS.select,
    "with_columns": lambda given: EVENTS.with_columns(x=given),
    "agg": EVENTS.window(10).agg,
    "agg by name": lambda given: EVENTS.window(10).agg(x=given),
    "an aggregate": pk.sum,
    "where=": lambda given: pk.count(where=given),
    "an operator": lambda given: pk.col("v") + given,
    "when": pk.when,
    "lit": pk.lit,
    "signal": EVENTS.signal,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", EXPRESSIONS)
def test_an_expression_of_another_library_is_named_with_what_to_write(kind: str, place: str) -> None:
    with pytest.raises(pk.ExpressionTypeError, match=rf"a {kind} .* write .*pk\.col\(\.\.\.\)"):
        PLACES[place](EXPRESSIONS[kind])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", VALUES)
def test_values_of_another_library_are_refused_and_not_printed(kind: str, place: str) -> None:
    with pytest.raises(pk.ExpressionTypeError, match=rf"a {kind} .* holds values; name the column") as caught:
        PLACES[place](VALUES[kind])
    assert "True" not in str(caught.value)


@pytest.mark.parametrize("kind", EXPRESSIONS)
def test_names_and_data_are_no_expressions_of_another_library(kind: str) -> None:
    given: Any = EXPRESSIONS[kind]
    for verb in (pk.col, pk.col("v").is_in, EVENTS.distinct, EVENTS.drop, lambda x: EVENTS.window(10, by=x)):
        with pytest.raises(pk.ExpressionTypeError, match=f"a {kind}"):
            verb(given)
    for verb in (EVENTS.collect, lambda x: list(EVENTS.run(x)), lambda x: EVENTS.open().push(x)):
        with pytest.raises((pk.SourceError, pk.BindingError), match=kind.split()[1]):
            verb(given)


def test_and_between_expressions_says_what_to_write() -> None:
    with pytest.raises(pk.ExpressionTypeError, match=r"combine with & \| ~ instead of and"):
        _ = (pk.col("v") > 1) and (pk.col("v") < 3)


def test_a_function_is_no_expression() -> None:
    with pytest.raises(pk.ExpressionTypeError, match="write what it computes as an expression"):
        EVENTS.filter(lambda row: row["v"] > 1)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_missing_library_is_named_with_its_extra(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    stated = rf"needs {library}, which is not installed; pip install 'penstock\[{library}\]'"
    with pytest.raises(pk.EngineError, match=stated):
        getattr(EVENTS, f"to_{library}")()
    with pytest.raises(pk.EngineError, match=stated):
        getattr(EVENTS.signal("v"), f"to_{library}")()


# --- data frames ------------------------------------------------------------------------------------------


def test_a_pandas_frame_is_converted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    conversions = []
    export = pd.DataFrame.__arrow_c_stream__

    def counted(frame: pd.DataFrame, requested_schema: object = None) -> object:
        conversions.append(1)
        return export(frame, requested_schema)

    monkeypatch.setattr(pd.DataFrame, "__arrow_c_stream__", counted)
    events = pk.from_arrow(pd.DataFrame({"t": [1, 2, 12], "v": [1, 2, 3]}), time="t")
    query = events.window(10).agg(total=pk.sum("v"))
    for _ in range(3):
        assert query.collect().column("total").to_pylist() == [3, 3]
    assert len(conversions) == 1


def test_what_happens_to_a_pandas_frame_later_is_not_seen() -> None:
    frame = pd.DataFrame({"t": [1, 2, 12], "v": [1.0, 2.0, 3.0]})
    totals = pk.from_arrow(frame, time="t").window(10).agg(total=pk.sum("v"))
    frame["v"].to_numpy()[:] = 7.0
    assert totals.collect().column("total").to_pylist() == [3.0, 3.0]


def test_a_polars_frame_is_the_same_data() -> None:
    frame = pl.DataFrame({"t": [1, 2, 12], "v": [1, 2, 3], "s": ["a", "b", None]})
    events = pk.from_arrow(frame, time="t")
    frame[0, "v"] = 99
    assert events.select("s", "v").collect().column("v").to_pylist() == [1, 2, 3]
    assert events.collect().column("s").to_pylist() == ["a", "b", None]
