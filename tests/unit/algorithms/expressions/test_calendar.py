"""Parts of dates in kernels are those of Python's datetime, before and after 1970."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.algorithms.expressions.calendar import CALENDAR_PARTS
from penstock.loop.abi import numbered
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, Kernel
from tests.unit.algorithms.running import run

EPOCH = datetime(1970, 1, 1)
MICROSECOND = timedelta(microseconds=1)
PER_TICK = {"us": 1, "ms": 1_000, "s": 1_000_000, "day": 86_400_000_000}  # in microseconds
TYPES = [pa.timestamp("us"), pa.timestamp("ms"), pa.timestamp("s"), pa.date32()]
CALENDAR = {
    "year": lambda time: time.year,
    "month": lambda time: time.month,
    "day": lambda time: time.day,
    "hour": lambda time: time.hour,
    "minute": lambda time: time.minute,
    "second": lambda time: time.second,
    "millisecond": lambda time: time.microsecond // 1000,
    "microsecond": lambda time: time.microsecond,
    "nanosecond": lambda time: time.microsecond * 1000,
    "weekday": lambda time: time.isoweekday(),
    "ordinal_day": lambda time: time.timetuple().tm_yday,
    "week": lambda time: time.isocalendar().week,
    "quarter": lambda time: (time.month + 2) // 3,
    "date": lambda time: (time - EPOCH).days,
}
TIMES = st.datetimes(datetime(1, 1, 8), datetime(9999, 12, 24))  # a week away from what Python can say
TURNS = [
    datetime(year, month, day, hour, minute, second, fraction)
    for year in (1, 1600, 1899, 1900, 1969, 1970, 2000, 2019, 2020, 2100, 9998)
    for month, day in ((1, 8), (2, 28), (3, 1), (12, 31))
    for hour, minute, second, fraction in ((0, 0, 0, 0), (23, 59, 59, 999_999))
]


@cache
def parts(dtype: pa.DataType) -> Kernel:
    k = KernelBuilder("parts")
    n, given_ = k.scalar("n"), k.buffer("given", I64)
    out = [k.buffer("out", I64) for _ in CALENDAR]
    with k.for_(0, n, "row") as row:
        ticks = k.var("ticks", given_[row])
        for buffer, name in zip(out, CALENDAR, strict=True):
            k.store(buffer, row, CALENDAR_PARTS[name](k, ticks, dtype).to(I64))
    k.ret(n)
    return k.build()


def computed(dtype: pa.DataType, ticks: list[int]) -> dict[str, list[int]]:
    names = {name: numbered("out", place) for place, name in enumerate(CALENDAR)}
    memory: dict[str, Any] = {"n": len(ticks), "given": np.array(ticks, np.int64)}
    memory |= {parameter: np.zeros(len(ticks), np.int64) for parameter in names.values()}
    after = run(parts(dtype), memory)[1]
    return {name: after[parameter].tolist() for name, parameter in names.items()}


def check(dtype: pa.DataType, times: list[datetime]) -> None:
    length = PER_TICK["day" if pa.types.is_date32(dtype) else dtype.unit]
    ticks = [(time - EPOCH) // MICROSECOND // length for time in times]
    whole = [EPOCH + tick * length * MICROSECOND for tick in ticks]
    expected = {name: [part(time) for time in whole] for name, part in CALENDAR.items()}
    assert computed(dtype, ticks) == expected


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_turns_of_years_months_and_days_are_where_the_calendar_has_them(dtype: pa.DataType) -> None:
    check(dtype, TURNS)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@settings(max_examples=15, deadline=None)
@given(times=st.lists(TIMES, min_size=1, max_size=10))
def test_any_time_has_the_parts_python_gives_it(dtype: pa.DataType, times: list[datetime]) -> None:
    check(dtype, times)


@settings(max_examples=15, deadline=None)
@given(ticks=st.lists(st.integers(-(1 << 62), (1 << 62)), min_size=1, max_size=10))
def test_nanoseconds_agree_with_microseconds_but_for_their_last_digits(ticks: list[int]) -> None:
    fine, coarse = (
        computed(pa.timestamp("ns"), ticks),
        computed(pa.timestamp("us"), [tick // 1000 for tick in ticks]),
    )
    assert fine.pop("nanosecond") == [tick % 10**9 for tick in ticks]
    coarse.pop("nanosecond")
    assert fine == coarse


def test_every_part_is_compared() -> None:
    assert set(CALENDAR) == set(CALENDAR_PARTS) - {"epoch_ticks"}
