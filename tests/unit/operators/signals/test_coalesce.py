"""Regular values become runs, as plain Python cuts them; interpreted and compiled."""

from __future__ import annotations

import math
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.loop.nodes import F64, I32, Type
from penstock.operators.signals.kernels.coalesce import beginnings, intervals
from tests.unit.algorithms.running import run

ORIGIN, STRIDE = -7, 3
VALUES = st.lists(st.sampled_from([None, 0.0, -0.0, math.nan, -math.nan, 1.0]), max_size=12)
DTYPES = {F64: np.float64, I32: np.int32}


def same(value: float | None) -> object:
    """What makes two neighbours one run: any NaN is NaN, and -0.0 is 0.0."""
    return None if value is None else "nan" if math.isnan(value) else value


def bits(value: float) -> tuple[str, float]:
    return repr(value), math.copysign(1, value)


def stored(values: list[float | None], type: Type) -> dict[str, Any]:
    there = np.array([value is not None for value in values], np.uint8)
    found = {"rows": len(values), "values": np.array([0 if v is None else v for v in values], DTYPES[type])}
    return found if there.all() else found | {"valid": there}


def cut(values: list[float | None]) -> list[tuple[int, int, float]]:
    """The runs that are not null: their first row, the row behind them, their value."""
    rows = groupby(enumerate(values), key=lambda pair: same(pair[1]))
    runs = [list(run) for _, run in rows]
    return [(run[0][0], run[-1][0] + 1, run[0][1]) for run in runs if run[0][1] is not None]


def check_intervals(values: list[float | None], before: float | None, type: Type = F64) -> None:
    room, dtype = len(values) + 2, DTYPES[type]
    memory = {
        "starts": np.zeros(room, np.int64),
        "ends": np.zeros(room, np.int64),
        "out": np.zeros(room, dtype),
    }
    if before is not None:
        memory["starts"][0], memory["out"][0] = ORIGIN - 2 * STRIDE, before
    rows = stored(values, type)
    kernel = intervals(type, "valid" in rows)
    place = {"origin": ORIGIN, "stride": STRIDE, "open": int(before is not None)}
    begun, after = run(kernel, rows | place | memory)
    wanted = cut([before, before, *values] if before is not None else values)
    shift = 2 if before is not None else 0
    assert begun == len(wanted)
    assert after["starts"][:begun].tolist() == [ORIGIN + (lo - shift) * STRIDE for lo, _, _ in wanted]
    assert [bits(float(value)) for value in after["out"][:begun].tolist()] == [
        bits(float(v)) for _, _, v in wanted
    ]
    ended = begun if not values or values[-1] is None else begun - 1
    if values:
        assert after["ends"][:ended].tolist() == [
            ORIGIN + (hi - shift) * STRIDE for _, hi, _ in wanted[:ended]
        ]


@given(VALUES, st.sampled_from([None, 0.0, -0.0, math.nan, 1.0]))
def test_intervals_are_the_runs_that_are_not_null(values: list[float | None], before: float | None) -> None:
    check_intervals(values, before)


@pytest.mark.parametrize("values", [[], [5], [5, 5, 5], [5, None, 5], [None, None], [None, 2, 2, 3, None]])
@pytest.mark.parametrize("before", [None, 5])
def test_intervals_of_integers_go_on_with_the_one_that_is_open(values: list[Any], before: int | None) -> None:
    check_intervals(values, before, I32)


@given(VALUES, st.sampled_from([None, 0.0, -0.0, math.nan, 1.0]), st.booleans())
def test_runs_begin_where_a_value_differs_from_the_one_before(
    values: list[float | None], before: float | None, first: bool
) -> None:
    rows = stored(values, F64)
    nullable = "valid" in rows or (before is None and not first)
    was = {"before": np.array([0.0 if before is None else before]), "first": int(first)}
    if nullable:
        rows.setdefault("valid", np.ones(len(values), np.uint8))
        was["before_valid"] = np.array([before is not None], np.uint8)
    room = {"places": np.zeros(len(values) + 1, np.int64)}
    found, after = run(beginnings(F64, nullable), rows | was | room)
    whole = [before, *values]
    wanted = [i for i in range(len(values)) if same(whole[i]) != same(whole[i + 1]) or (first and i == 0)]
    assert after["places"][:found].tolist() == wanted
