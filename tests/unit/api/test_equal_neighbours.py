"""Neighbours of equal values are one interval, with the value at its start: -0.0 is 0.0, and NaN is NaN."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from math import copysign, isnan, nan
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk

VALUES = [0.0, -0.0, 0.0, 1.0, -0.0, 0.0, nan, -nan, None, -0.0, 0.0, 0.0, -0.0, 2.0]
Told = tuple[int, int | None, str]


def reported(value: float) -> str:
    """A value with its sign, which comparing would not see."""
    return ("-" if copysign(1.0, value) < 0 else "+") + repr(abs(value))


def wanted() -> list[Told]:
    runs = [list(run) for _, run in groupby(enumerate(VALUES), key=_same)]
    ends = [run[0][0] for run in runs[1:]]
    return [
        (run[0][0], end, reported(run[0][1]))
        for run, end in zip(runs, [*ends, None], strict=True)
        if run[0][1] is not None
    ]


def _same(pair: tuple[int, float | None]) -> Any:
    return "nan" if pair[1] is not None and isnan(pair[1]) else pair[1]


def sparse(dtype: pa.DataType) -> tuple[pk.Stream, pa.Table]:
    table = pa.table({"t": pa.array(range(len(VALUES)), pa.int64()), "v": pa.array(VALUES, dtype)})
    return pk.stream("s", table.schema, time="t"), table


def regular(dtype: pa.DataType) -> tuple[pk.Stream, pa.Table]:
    table = pa.table({"v": pa.array(VALUES, dtype)})
    return pk.stream("s", table.schema, time=pk.every(1)), table


def intervals(batches: Iterator[pa.RecordBatch] | list[pa.RecordBatch]) -> list[Told]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    return sorted((row["start"], row["end"], reported(row["value"])) for row in rows)


@pytest.mark.parametrize("made", [sparse, regular])
@pytest.mark.parametrize("dtype", [pa.float64(), pa.float32()], ids=str)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [1, 2, 5, 100])
def test_zeros_are_one_interval_that_begins_with_the_first_of_them(
    made: Any, dtype: pa.DataType, threads: int, rows: int
) -> None:
    stream, table = made(dtype)
    signal, engine = stream.signal("v"), pk.Engine(threads=threads)
    assert intervals(signal.collect(table, engine=engine).to_batches()) == wanted()
    assert intervals(signal.run(table.to_batches(max_chunksize=rows), engine=engine)) == wanted()


@pytest.mark.parametrize("time", ["t", pk.every(1)])
def test_of_several_values_any_that_differs_ends_the_interval(time: Any) -> None:
    columns = {"a": [0.0, -0.0, -0.0, 0.0], "b": [1.0, 1.0, 2.0, 2.0]}
    table = pa.table(columns if time != "t" else {"t": [0, 1, 2, 3], **columns})
    found = pk.from_arrow(table, time=time).signal(["a", "b"]).collect().to_pylist()
    assert [(row["start"], reported(row["a"]), row["b"]) for row in found] == [
        (0, "+0.0", 1.0),
        (2, "-0.0", 2.0),
    ]


def test_zeros_inside_lists_are_equal_too() -> None:
    table = pa.table({"t": [0, 1, 2], "v": [0.0, -0.0, 1.0]})
    lists = pk.from_arrow(table, time="t").signal("v").rolling(1).agg(pk.list("value"))
    assert [row["start"] for row in lists.collect().to_pylist()] == [0, 2]
