"""Queries too large to be honest are refused before they cost anything."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest

import penstock as pk


def events() -> pk.Stream:
    table = pa.table({"t": pa.array([0, 1], pa.int64()), "v": pa.array([1, 2], pa.int64())})
    return pk.from_arrow(table, time="t")


@pytest.mark.parametrize("size", [10**9, 2**62])
def test_a_slide_that_would_make_billions_of_windows_is_refused_at_once(size: int) -> None:
    with pytest.raises(pk.WindowError):
        events().window(pk.sliding(size, every=1)).agg(n=pk.count())


def test_an_expression_nested_a_thousand_deep_is_answered_or_refused_by_a_typed_error() -> None:
    deep = pk.col("v")
    for _ in range(1_000):
        deep = deep + 1
    with contextlib.suppress(pk.PenstockError):
        assert events().select(y=deep).collect()["y"].to_pylist() == [1_001, 1_002]


def test_a_long_list_of_members_is_answered() -> None:
    found = events().filter(pk.col("v").is_in(list(range(2, 5_000)))).collect()
    assert found["v"].to_pylist() == [2]
