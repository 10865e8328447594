"""Regular time that no column stores: `pk.every`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk

TABLE = pa.table({"mv": [1.0, 2.0, 3.0, 4.0, 5.0]})


def test_rows_are_a_period_apart_from_the_epoch_on() -> None:
    result = pk.from_arrow(TABLE, time=pk.every("4ms")).window("8ms").agg(s=pk.sum("mv")).collect()
    assert result["window_start"].cast(pa.int64()).to_pylist() == [0, 8_000, 16_000]
    assert result["s"].to_pylist() == [3.0, 7.0, 5.0]


def test_a_start_moves_all_rows() -> None:
    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    ecg = pk.from_arrow(TABLE, time=pk.every("1s", start=start))
    result = ecg.window("1m").agg(n=pk.count()).collect()
    assert result["window_start"].to_pylist() == [start]
    assert result["n"].to_pylist() == [5]


def test_bare_ticks() -> None:
    result = pk.from_arrow(TABLE, time=pk.every(10)).window(20).agg(s=pk.sum("mv")).collect()
    assert result.select(["window_start", "s"]).to_pylist() == [
        {"window_start": 0, "s": 3.0},
        {"window_start": 20, "s": 7.0},
        {"window_start": 40, "s": 5.0},
    ]


def test_ticks_of_numpy_are_ticks_and_truth_is_none() -> None:
    query = (
        pk.from_arrow(TABLE, time=pk.every(np.int64(10), np.int64(3)), name="ecg")
        .window(20)
        .agg(s=pk.sum("mv"))
    )
    assert query.collect()["s"].to_pylist() == [3.0, 7.0, 5.0]
    with query.open() as live:
        live.push(TABLE)
        assert live.advance(np.int64(60))[0]["s"].to_pylist() == [5.0]
    with pytest.raises(pk.DurationError):
        pk.every(True)


def test_the_time_can_be_seen_and_filtered_by() -> None:
    ecg = pk.from_arrow(TABLE, time=pk.every(10))
    assert ecg.collect().to_pydict() == {"time": [0, 10, 20, 30, 40], "mv": [1.0, 2.0, 3.0, 4.0, 5.0]}
    assert ecg.filter(pk.col("time") >= 30).collect()["mv"].to_pylist() == [4.0, 5.0]


def test_a_filter_does_not_move_the_rows_it_keeps() -> None:
    kept = pk.from_arrow(TABLE, time=pk.every(10)).filter(pk.col("mv") > 3)
    assert kept.window(20).agg(s=pk.sum("mv")).collect()["window_start"].to_pylist() == [20, 40]


@pytest.mark.parametrize("cut", [0, 1, 2, 4])
def test_the_count_of_rows_goes_on_over_batches_and_chunks(cut: int) -> None:
    parts = [TABLE.slice(0, cut), TABLE.slice(cut)]
    declared = pk.stream("ecg", TABLE.schema, time=pk.every(10)).window(20).agg(s=pk.sum("mv"))
    batches = [batch for part in parts for batch in part.combine_chunks().to_batches()]
    got = [value for batch in declared.run(batches) for value in batch["s"].to_pylist()]
    assert got == [3.0, 7.0, 5.0]
    chunked = pa.concat_tables(parts)
    assert declared.collect(chunked)["s"].to_pylist() == [3.0, 7.0, 5.0]


def test_many_threads_number_the_rows_alike() -> None:
    table = pa.table({"v": list(range(10_000))})
    made = pk.from_arrow(table, time=pk.every(1)).window(100).agg(s=pk.sum("v"))
    tiny = made.collect(engine=pk.Engine(threads=3, task_bytes=128))
    assert tiny["s"].to_pylist() == [sum(range(i, i + 100)) for i in range(0, 10_000, 100)]


SPANS: dict[str, Callable[[pk.Signal, int], pk.Signal]] = {
    "per": lambda s, size: s.per(size).max(),
    "window": lambda s, size: s.window(size).sum(),
    "overlapping": lambda s, size: s.window(2 * size, every=size).count(),
    "beside itself": lambda s, size: s - s.per(size).min(),
}


@pytest.mark.parametrize("name", SPANS)
@pytest.mark.parametrize("start", [0, 1, -3])
@pytest.mark.parametrize(("period", "size"), [(1, 1), (1, 3), (2, 2), (2, 6), (4, 8)])
def test_windows_of_regular_samples_lie_and_end_where_those_of_stored_times_do(
    name: str, start: int, period: int, size: int
) -> None:
    for rows in (1, 2, 5, 9):
        stored = pa.table({"t": [start + i * period for i in range(rows)], "v": [1.0] * rows})
        regular = pk.from_arrow(stored.select(["v"]), time=pk.every(period, start=start))
        wanted = SPANS[name](pk.from_arrow(stored, time="t").signal("v"), size).collect()
        assert SPANS[name](regular.signal("v"), size).collect().to_pylist() == wanted.to_pylist(), rows


READINGS = pa.table({"text": ["1", "off", "3", None, "5"]})
READ = pk.col("text").cast("int64")


def _of_the_first() -> pk.Stream:
    return pk.from_arrow(READINGS, time=pk.every(10), name="r").filter(pk.col("time") < 5)


def _of_numbers() -> pk.Stream:
    return pk.from_arrow(READINGS, time=pk.every(10), name="r").filter(pk.col("text") != "off")


@pytest.mark.parametrize(
    ("query", "column", "values"),
    [
        (_of_numbers().select(y=READ), "y", [1, 3, 5]),
        (_of_numbers().filter(READ > 1), "text", ["3", "5"]),
        (_of_numbers().window(20).agg(y=pk.median(READ)), "y", [1.0, 3.0, 5.0]),
        (_of_numbers().window(pk.rows(2)).agg(y=pk.sum(READ)), "y", [4]),
        (_of_the_first().select(y=READ), "y", [1]),
        (_of_the_first().window(20).agg(y=pk.sum(READ)), "y", [1]),
    ],
)
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_a_cast_behind_a_filter_is_not_asked_of_rows_that_are_left_out(
    query: pk.Stream, column: str, values: list[object], rows: int
) -> None:
    assert query.collect()[column].to_pylist() == values
    parts = READINGS.to_batches(max_chunksize=rows)
    assert [value for batch in query.run(parts) for value in batch[column].to_pylist()] == values


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_the_time_is_written_and_put_on_a_calendar_like_any_other(rows: int) -> None:
    """Kernels count the time themselves, but what Arrow computes needs it as a column."""
    ecg = pk.from_arrow(TABLE, time=pk.every("10d"), name="ecg")
    month, when = pk.col("time").dt.truncate("1mo"), pk.col("time").dt.strftime("%d.%m.")
    for query, column, values in (
        (ecg.select(at=when), "at", ["01.01.", "11.01.", "21.01.", "31.01.", "10.02."]),
        (ecg.filter(month > dt.datetime(1970, 1, 15)), "mv", [5.0]),
        (ecg.window("60d", by=when.str.slice(3).alias("m")).agg(n=pk.count()), "n", [4, 1]),
        (ecg.window("60d").agg(last=pk.max(when)), "last", ["31.01."]),
    ):
        assert sorted(query.collect()[column].to_pylist()) == sorted(values)
        found = [
            v for batch in query.run(TABLE.to_batches(max_chunksize=rows)) for v in batch[column].to_pylist()
        ]
        assert sorted(found) == sorted(values)


def test_times_beyond_64_bits_are_an_error_and_do_not_wrap() -> None:
    late = pk.from_arrow(TABLE.slice(0, 3), time=pk.every(1, start=2**63 - 3))
    assert late.collect()["time"].to_pylist() == [2**63 - 3, 2**63 - 2, 2**63 - 1]
    beyond = pk.from_arrow(TABLE, time=pk.every(1, start=2**63 - 3))
    for query in (beyond, beyond.select(at=pk.col("time")), beyond.filter(pk.col("time") > 0)):
        with pytest.raises(pk.OverflowError, match="start them earlier"):
            query.collect()
