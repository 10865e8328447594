"""Malformed rows are never dropped without a word."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as pk

COLUMNS = {"t": "int64", "v": "int64"}


@pytest.fixture
def damaged(tmp_path: Path) -> str:
    path = tmp_path / "rows.csv"
    path.write_text("t,v\n1,2\n3,x\n5,6\n")
    return str(path)


def collected(stream: pk.Stream) -> None:
    stream.collect()


def run(stream: pk.Stream) -> None:
    list(stream.run())


@pytest.mark.parametrize("way", [collected, run])
def test_malformed_rows_are_warned_of_once(damaged: str, way: Callable[[pk.Stream], None]) -> None:
    with pytest.warns(
        pk.MalformedRowsWarning, match=r"1 malformed rows were dropped.*on_bad='drop'"
    ) as caught:
        way(pk.scan(damaged, time="t", schema=COLUMNS))
    assert len(caught) == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize("way", [collected, run])
def test_no_warning_where_on_bad_is_given(damaged: str, way: Callable[[pk.Stream], None]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        way(pk.scan(damaged, time="t", schema=COLUMNS, on_bad="drop"))


def test_an_open_query_warns_of_rows_without_a_time() -> None:
    rows = pa.record_batch({"t": pa.array([1, None]), "v": pa.array([1, 2])})
    with pk.stream("e", COLUMNS, time="t").window(10).agg(n=pk.count()).open() as live:
        with pytest.warns(pk.MalformedRowsWarning):
            live.push(rows)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            live.push(rows)
