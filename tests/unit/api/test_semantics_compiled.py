"""The tables of docs/semantics.md hold for queries that are compiled and run."""

from __future__ import annotations

import re
from functools import cache

import pyarrow as pa
import pytest

import penstock as pk
from penstock.expr.nodes import Column, substitute
from penstock.types.arrow import from_physical, physical_values
from tests.unit.expr.semantics import Example, examples, same, table

SCALARS = examples("expression | input | result")
AGGREGATED = [*examples("aggregate | values | result"), *examples("aggregate | rows | result")]
WINDOWS = table("window | times | windows with their number of rows")


def stream_of(example: Example) -> pk.Stream:
    arrays = {name: from_physical(values, dtype) for name, (dtype, values) in example.columns.items()}
    rows = len(next(iter(arrays.values())))
    return pk.from_arrow(
        pa.table({"time of row": pa.array([0] * rows, pa.int64()), **arrays}), time="time of row"
    )


VALUES = [case.values[0] for case in SCALARS if case.values[0].error is None]
TOGETHER = 16  # examples in one query: compiling each alone would take a minute


@cache
def computed(group: int) -> pa.Table:
    """Compute several examples in one query, each over columns of its own."""
    columns: dict[str, pa.Array] = {"time of row": pa.array([0], pa.int64())}
    results = {}
    for number, example in enumerate(VALUES[group * TOGETHER : (group + 1) * TOGETHER]):
        own = {name: Column(f"{number} {name}") for name in example.columns}
        for name, (dtype, values) in example.columns.items():
            columns[own[name].name] = from_physical(values, dtype)
        results[f"result {number}"] = pk.Expr(substitute(example.expression.node, own))
    return pk.from_arrow(pa.table(columns), time="time of row").with_columns(**results).collect()


def expect(example: Example, query: pk.Stream) -> None:
    if example.error is not None:
        with pytest.raises(example.error):
            query.collect()
        return
    check(example, query.collect()["r"])


def check(example: Example, column: pa.ChunkedArray) -> None:
    expected, dtype = example.value
    assert column.type == dtype
    (value,) = physical_values(column)
    assert same(value, expected) or value == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("example", SCALARS)
def test_a_compiled_scalar_has_the_value_the_document_says(example: Example) -> None:
    if example.error is not None:
        expect(example, stream_of(example).with_columns(r=example.expression))
        return
    group, number = divmod([value is example for value in VALUES].index(True), TOGETHER)
    check(example, computed(group)[f"result {number}"])


@pytest.mark.parametrize("example", AGGREGATED)
def test_a_compiled_aggregate_has_the_value_the_document_says(example: Example) -> None:
    expect(example, stream_of(example).window(10).agg(r=example.expression))


@pytest.mark.parametrize("example", AGGREGATED[::3])
def test_an_attached_aggregate_has_the_same_value_beside_every_row(example: Example) -> None:
    query = stream_of(example).window(10).with_columns(r=example.expression)
    if example.error is not None:
        with pytest.raises(example.error):
            query.collect()
        return
    expected, _ = example.value
    values = physical_values(query.collect()["r"])
    assert len(values) == len(next(iter(example.columns.values()))[1])
    assert all(same(value, expected) or value == pytest.approx(expected, rel=1e-12) for value in values)


@pytest.mark.parametrize(
    ("window", "times", "expected"), WINDOWS, ids=[" on ".join(row[:2]) for row in WINDOWS]
)
def test_rows_fall_into_the_windows_the_document_says(window: str, times: str, expected: str) -> None:
    data = pa.table({"t": pa.array(list(map(int, times.split())), pa.int64())})
    result = pk.from_arrow(data, time="t").window(eval(window, {"pk": pk})).agg(n=pk.count()).collect()
    found = [tuple(map(int, value)) for value in re.findall(r"\[(-?\d+), (-?\d+)\): (\d+)", expected)]
    assert list(zip(*(column.to_pylist() for column in result.columns), strict=True)) == found
