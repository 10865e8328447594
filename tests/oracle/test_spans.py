"""Durations that are divided and scaled, and dates that they move: as Python's integers and floats have it."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.types.arrow import from_physical, physical_values

A_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
TICKS = st.none() | st.integers(-(2**50), 2**50) | st.integers(-3, 3).map(lambda n: n * 86_400)
NUMBERS = st.none() | st.integers(-9, 9)
FLOATS = st.none() | st.sampled_from([0.0, -0.0, 0.5]) | st.floats(0.001, 1000) | st.floats(-1000, -0.001)
DAYS = st.none() | st.integers(-100_000, 100_000)
ROWS = st.lists(st.tuples(TICKS, NUMBERS, FLOATS, DAYS), min_size=1, max_size=20)
SPAN, WHOLE, REAL, DAY = (pk.col(name) for name in ("span", "whole", "real", "day"))


@given(st.sampled_from(list(A_DAY)), ROWS)
def test_they_are_what_python_computes(unit: str, rows: list[tuple[int, int, float, int]]) -> None:
    types = {"span": pa.duration(unit), "whole": pa.int64(), "real": pa.float64(), "day": pa.date32()}
    columns = zip(*rows, strict=True)
    arrays = {
        name: from_physical(column, dtype)
        for (name, dtype), column in zip(types.items(), columns, strict=True)
    }
    stream = pk.from_arrow(pa.table({"t": range(len(rows)), **arrays}), time="t")
    found = stream.select(
        divided=SPAN / WHOLE, scaled=SPAN * REAL, shared=SPAN / REAL, later=DAY + SPAN, earlier=DAY - SPAN
    ).collect()
    wanted = [computed(*row, A_DAY[unit]) for row in rows]
    for place, name in enumerate(("divided", "scaled", "shared", "later", "earlier")):
        assert physical_values(found[name]) == [row[place] for row in wanted], name


def computed(span: int | None, whole: int | None, real: float | None, day: int | None, length: int) -> list:
    return [
        None if span is None or not whole else span // whole,
        None if span is None or real is None else int(span * real),
        None if span is None or not real else int(span / real),
        None if span is None or day is None else day + span // length,
        None if span is None or day is None else day + -span // length,
    ]
