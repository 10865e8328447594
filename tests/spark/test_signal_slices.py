"""Signals whose values depend on a bounded time are cut in slices of time, with the answer of one task."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.physical.choose_strategy import Halo, possible
from tests.oracle.effort import effort
from tests.spark.agree import assert_same
from tests.spark.local import every_strategy

VALUES = st.none() | st.integers(-3, 3)
ROW = st.tuples(st.integers(-20, 60), st.sampled_from(["a", "b", None]), VALUES)


def _samples(draw: st.DrawFn, folder: Path, name: str, ordered: bool, least: int = 0) -> pk.Stream:
    rows = draw(st.lists(ROW, min_size=least, max_size=40))
    rows = sorted(rows, key=lambda row: row[0]) if ordered else rows
    columns = [[row[place] for row in rows] for place in range(3)]
    types = (pa.int64(), pa.string(), pa.int64())
    table = pa.table(
        {key: pa.array(column, dtype) for key, column, dtype in zip("tkv", columns, types, strict=True)}
    )
    pq.write_table(table, folder / f"{name}.parquet", row_group_size=draw(st.integers(1, 3 if least else 9)))
    return pk.scan(str(folder / f"{name}.parquet"), time="t", name=name)


def _reduced(draw: st.DrawFn, signal: pk.Signal) -> pk.Signal:
    size, step = draw(st.integers(1, 12)), draw(st.integers(1, 5))
    span = draw(st.sampled_from([signal.rolling(size), signal.window(size, every=step), signal.per(size)]))
    return getattr(span, draw(st.sampled_from(["sum", "max", "count"])))()


def _signal(draw: st.DrawFn, signals: list[pk.Signal], depth: int) -> pk.Signal:
    given_ = draw(st.sampled_from(signals))
    if depth == 0:
        return given_
    inner = _signal(draw, signals, depth - 1)
    match draw(
        st.sampled_from(
            ["reduce", "reduce", "subtract", "shift", "where", "filled", "chop", "resample", "weighted"]
        )
    ):
        case "filled":
            return inner.or_else(0)
        case "chop":
            return inner.chop(every=draw(st.integers(1, 5)))
        case "resample":
            method, gap = draw(st.sampled_from(["last", "linear"])), draw(st.none() | st.integers(1, 9))
            return given_.resample(every=draw(st.integers(1, 5)), method=method, max_gap=gap)
        case "weighted":
            return inner.window(draw(st.integers(1, 12)), every=draw(st.integers(1, 5))).time_mean()
        case "reduce":
            return _reduced(draw, inner)
        case "subtract":
            return inner - _reduced(draw, given_)
        case "shift":
            return inner.shift(draw(st.integers(-4, 7)))
        case _:
            return inner.where(lambda value: value > 0)


@effort(60)
@given(data=st.data())
def test_generated_signals_have_one_answer_in_every_strategy(data: st.DataObject) -> None:
    draw, keyed, ordered = data.draw, data.draw(st.booleans()), data.draw(st.booleans())
    with tempfile.TemporaryDirectory() as folder:
        streams = [
            _samples(draw, Path(folder), name, ordered) for name in ("one", "two")[: draw(st.integers(1, 2))]
        ]
        options: dict[str, object] = {"by": "k"} if keyed else {}
        lasting = draw(st.none() | st.integers(1, 6))
        held = options | ({} if lasting is None else {"lasting": lasting})
        signals = [stream.signal("v", resolve="max", **held) for stream in streams]
        query = _signal(draw, signals, draw(st.integers(1, 3))).to_stream("made")
        expected = query.collect()
        for strategy, found in every_strategy(query, draw(st.integers(1, 4))).items():
            assert_same(expected, found, strategy)


@effort(60)
@given(data=st.data())
def test_signals_that_hold_over_the_bounds_of_slices(data: st.DataObject) -> None:
    """Signals without keys need the nearest samples beside a slice; of regular time too."""
    draw = data.draw
    with tempfile.TemporaryDirectory() as folder:
        streams = [
            _regular(draw, Path(folder))
            if draw(st.booleans())
            else _samples(draw, Path(folder), "one", True, 20)
        ]
        if draw(st.booleans()):
            streams.append(_samples(draw, Path(folder), "two", draw(st.booleans()), 10))
        signals = [stream.signal("v", resolve="max") for stream in streams]
        made = _signal(draw, signals, draw(st.integers(0, 3)))
        query = made.to_stream("made")
        expected = query.collect()
        for strategy, found in every_strategy(query, draw(st.integers(2, 8))).items():
            assert_same(expected, found, strategy)


def _regular(draw: st.DrawFn, folder: Path) -> pk.Stream:
    values = draw(st.lists(VALUES, min_size=20, max_size=40))
    path = folder / "regular.parquet"
    pq.write_table(
        pa.table({"v": pa.array(values, pa.int64())}), path, row_group_size=draw(st.integers(1, 3))
    )
    return pk.scan(str(path), time=pk.every(draw(st.integers(1, 3))), name="regular")


STREAM = pk.stream("s", {"t": "int64", "k": "string", "v": "int64"}, time="t")
PRICE = STREAM.signal("v", by="k")


@pytest.mark.parametrize(
    ("signal", "finite"),
    [
        (PRICE.rolling(20).mean() - PRICE.rolling(50).mean(), True),
        (PRICE.per(10).max(), True),
        (PRICE.window(10, every=2).sum(), True),
        (STREAM.signal("v", lasting=5) * 2, True),
        (PRICE.rolling(20).mean().shift(5), True),
        (PRICE - PRICE.shift(1), False),
        (PRICE.rolling(20).mean().or_else(0.0), False),
        (PRICE.rolling(pk.rows(3)).mean(), False),
        (PRICE.rolling(20).time_mean(), False),
    ],
)
def test_signals_of_a_bounded_reach_are_cut_in_slices(signal: pk.Signal, finite: bool) -> None:
    found = possible(signal.to_stream("made").compiled().program).slices
    assert isinstance(found, Halo) == finite, found
