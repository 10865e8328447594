"""Integer sums at the limits: exact in every window, an error exactly where the final value does not fit."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from tests.oracle.brute import starts
from tests.oracle.effort import effort

LIMITS = {
    pa.int64(): (-(2**63), 2**63 - 1),
    pa.uint64(): (0, 2**64 - 1),
    pa.int32(): (-(2**31), 2**31 - 1),
    pa.uint8(): (0, 255),
    pa.duration("us"): (-(2**63), 2**63 - 1),
}


@dataclass(frozen=True)
class Sums:
    dtype: pa.DataType
    times: list[int]
    keys: list[int]
    values: list[int | None]
    size: int
    every: int

    @property
    def table(self) -> pa.Table:
        plain = pa.uint64() if self.dtype == pa.uint64() else pa.int64()
        values = pa.array(self.values, plain).cast(self.dtype)
        return pa.table({"t": self.times, "k": self.keys, "v": values})

    def expected(self) -> dict[tuple[int, int], int | None] | None:
        """Add in Python; None if a sum does not fit."""
        found: dict[tuple[int, int], list[int]] = {}
        for t, key, value in zip(self.times, self.keys, self.values, strict=True):
            for start in starts(t, self.size, self.every, 0):
                found.setdefault((start, key), []).extend([] if value is None else [value])
        sums = {key: sum(values) if values else None for key, values in found.items()}
        low, high = (0, 2**64) if pa.types.is_unsigned_integer(self.dtype) else (-(2**63), 2**63)
        fits = all(total is None or low <= total < high for total in sums.values())
        return sums if fits else None


@st.composite
def cases(draw: st.DrawFn) -> Sums:
    dtype = draw(st.sampled_from([pa.int64(), pa.int64(), *LIMITS]))
    low, high = LIMITS[dtype]
    near = st.sampled_from([low, low + 1, high, high - 1, high // 2, low // 2, high // 3, 0, 1, max(low, -1)])
    rows = draw(st.integers(1, 12))
    value = near if draw(st.booleans()) else near | st.none()
    size = draw(st.integers(1, 6))
    return Sums(
        dtype,
        draw(st.lists(st.integers(0, 8), min_size=rows, max_size=rows)),
        draw(st.lists(st.integers(0, draw(st.sampled_from([0, 2]))), min_size=rows, max_size=rows)),
        draw(st.lists(value, min_size=rows, max_size=rows)),
        size,
        draw(st.just(size) | st.integers(1, size)),
    )


def answer(case: Sums, engine: pk.Engine) -> dict[tuple[int, int], int | None]:
    made = (
        pk.from_arrow(case.table, time="t")
        .window(pk.sliding(case.size, case.every), by="k")
        .agg(s=pk.sum("v"))
    )
    result = made.collect(engine=engine)
    totals = result["s"].cast(pa.int64()) if pa.types.is_duration(case.dtype) else result["s"]
    keys = zip(result["window_start"].to_pylist(), result["k"].to_pylist(), strict=True)
    return dict(zip(keys, totals.to_pylist(), strict=True))


@pytest.mark.parametrize(
    "engine",
    [
        pk.Engine(),
        pk.Engine(adaptive=False),
        pk.Engine(threads=3, task_bytes=16),
        pk.Engine(backend="interpret"),
    ],
    ids=["adaptive", "not adaptive", "threads", "loop interpreter"],
)
@effort(60)
@given(case=cases())
def test_sums_are_exact_or_refused(case: Sums, engine: pk.Engine) -> None:
    expected = case.expected()
    if expected is None:
        with pytest.raises(pk.OverflowError):
            answer(case, engine)
    else:
        assert answer(case, engine) == expected
