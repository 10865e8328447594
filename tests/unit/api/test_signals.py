"""Signals as users meet them: keys, times, streams of different rates, errors, and runs that go on."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import penstock as pk

TRADES = pa.table(
    {
        "ts": pa.array([0, 3, 10, 12, 14], pa.timestamp("s", "UTC")),
        "symbol": pa.array(["x", "x", "y", "x", "y"]).dictionary_encode(),
        "price": [2.0, 4.0, 7.0, 3.0, 9.0],
        "size": [1, 2, 3, 4, 5],
    }
)


def trades() -> pk.Stream:
    return pk.from_arrow(TRADES, time="ts", name="trades")


def rows(signal: pk.Signal, **options: Any) -> list[dict[str, Any]]:
    return signal.collect(**options).to_pylist()


def test_keys_of_dictionaries_and_times_with_zones_keep_their_types() -> None:
    made = trades().signal("price", by="symbol").collect()
    assert made.schema.field("start").type == pa.timestamp("s", "UTC")
    assert made.schema.field("symbol").type == TRADES.schema.field("symbol").type
    assert made["symbol"].to_pylist() == ["x", "x", "y", "x", "y"]


def test_durations_are_texts_and_timedeltas() -> None:
    price = trades().signal("price")
    assert price.shift("3s").collect() == price.shift(timedelta(seconds=3)).collect()


def test_several_values_are_chosen_by_name_or_mapped_together() -> None:
    both = trades().signal(["price", "size"], by="symbol")
    assert both.collect().schema.names == ["start", "end", "symbol", "price", "size"]
    volume = both.map(lambda price, size: price * size)
    assert volume.collect()["value"].to_pylist() == [2.0, 8.0, 21.0, 12.0, 45.0]
    assert both["size"].collect()["value"].to_pylist() == [1, 2, 3, 4, 5]


def test_reductions_reduce_each_of_several_values() -> None:
    both = trades().signal(["price", "size"], by="symbol")
    wanted = both.rolling("5s").agg(price=pk.mean("price"), size=pk.mean("size"))
    assert both.rolling("5s").mean().collect() == wanted.collect()
    assert both.per("10s").max().collect().schema.names == ["start", "end", "symbol", "price", "size"]
    one = both["price"].window("10s", every="5s").quantile(0.25).collect()
    assert (
        both.window("10s", every="5s").quantile(0.25).collect()["price"].to_pylist()
        == one["value"].to_pylist()
    )
    aligned = pk.align(now=both["price"], before=both["price"].shift("3s")).per("5s").count()
    assert aligned.collect()["before"].to_pylist() == [1, 1, 2, 1]


def test_several_values_are_kept_where_another_signal_is_true() -> None:
    both = trades().signal(["price", "size"], by="symbol")
    assert both.where(both["price"] > 3).collect() == both.where(lambda price, size: price > 3).collect()


def test_streams_of_different_rates_meet_in_time() -> None:
    fast = pk.from_arrow(pa.table({"t": range(0, 12, 1), "v": range(12)}), time="t", name="fast").signal("v")
    slow = pk.from_arrow(pa.table({"t": [5, 9], "v": [100, 200]}), time="t", name="slow").signal("v")
    assert [(row["start"], row["value"]) for row in rows(fast + slow)] == [
        (5, 105), (6, 106), (7, 107), (8, 108), (9, 209), (10, 210), (11, 211),
    ]  # fmt: skip


def test_regular_time_is_a_clock_like_any_other() -> None:
    ecg = pk.from_arrow(pa.table({"mv": [1.0, 2.0, 4.0, 4.0]}), time=pk.every("4ms")).signal("mv")
    found = rows(ecg.rolling("8ms").mean())
    assert [row["value"] for row in found] == [1.0, 1.5, 3.0, 4.0]
    assert found[-1]["end"] - found[0]["start"] == timedelta(milliseconds=20)


def test_a_custom_aggregate_reduces_samples() -> None:
    spread = pk.aggregate(
        init=(float("inf"), float("-inf")),
        add=lambda s, x: (pk.least(s[0], x), pk.greatest(s[1], x)),
        result=lambda s: s[1] - s[0],
        merge=lambda a, b: (pk.least(a[0], b[0]), pk.greatest(a[1], b[1])),
    )
    assert [row["value"] for row in rows(trades().signal("price").per("10s").agg(spread))] == [2.0, 6.0]


def test_rolling_over_samples_is_that_of_pandas() -> None:
    rng = np.random.default_rng(3)
    times = np.cumsum(rng.integers(1, 5, 500))
    values = rng.normal(size=500)
    x = pk.from_arrow(pa.table({"t": times, "v": values}), time="t", unit="s").signal("v")
    wanted = pd.Series(values, pd.to_datetime(times, unit="s")).rolling("20s").mean().to_numpy()
    found = rows(pk.align(x=x, mean=x.rolling("20s").mean()))
    at_samples = {row["start"]: row["mean"] for row in found}
    assert [at_samples[t] for t in times.tolist()] == pytest.approx(wanted.tolist())


def test_intervals_go_on_as_a_stream() -> None:
    above = trades().signal("price", by="symbol").to_stream("level")
    busy = above.filter(pk.col("level") > 3).window("10s").agg(n=pk.count())
    assert busy.collect()["n"].to_pylist() == [1, 2]


def test_overlapping_intervals_count_each_and_have_no_single_value() -> None:
    rents = pa.table({"t": [0, 2, 4], "until": [5, 6, 9], "n": [1, 1, 1]})
    stream = pk.from_arrow(rents, time="t", name="rents")
    loose = stream.signal("n", interval=("t", "until"))
    assert [row["value"] for row in rows(loose.per(10).sum())] == [3]
    with pytest.raises(pk.SignalError, match="overlap"):
        loose.collect()
    together = stream.signal("n", interval=("t", "until"), resolve="sum")
    assert [(row["start"], row["end"], row["value"]) for row in rows(together)] == [
        (0, 2, 1), (2, 4, 2), (4, 5, 3), (5, 6, 2), (6, 9, 1),
    ]  # fmt: skip


def test_a_run_is_taken_up_again_where_it_was_saved(tmp_path: Path) -> None:
    price = trades().signal("price", by="symbol")
    smooth = pk.feedback(lambda prev: prev * 0.5 + price + prev.shift("4s"))
    query = smooth - price.rolling("10s").mean()
    whole = sorted(map(str, rows(query)))
    batches = TRADES.to_batches(max_chunksize=1)
    for cut in range(len(batches)):
        found: list[pa.RecordBatch] = []
        with query.open() as live:
            for batch in batches[:cut]:
                found += live.push(batch)
            live.save(tmp_path / f"state {cut}")
        with query.open(state=tmp_path / f"state {cut}") as live:
            for batch in batches[cut:]:
                found += live.push(batch)
            found += live.finish()
        assert sorted(str(row) for batch in found for row in batch.to_pylist()) == whole


@pytest.mark.parametrize("filtered", [False, True])
def test_a_run_keeps_only_what_its_spans_need(filtered: bool, tmp_path: Path) -> None:
    stream = pk.stream("s", {"t": "int64", "v": "float64"}, time="t")
    value = stream.signal("v")
    query = pk.feedback(lambda prev: prev * 0.5 + value) if filtered else value.rolling(50).mean()
    with query.open() as live:
        for begin in range(0, 5_000, 100):
            times = np.arange(begin, begin + 100)
            live.push(pa.record_batch({"t": times, "v": times * 1.0}))
        live.save(tmp_path / "state")
    saved = [tmp_path / "state"] if (tmp_path / "state").is_file() else (tmp_path / "state").rglob("*")
    assert sum(path.stat().st_size for path in saved if path.is_file()) < 20_000  # all rows would be 80,000


def test_late_rows_are_counted_and_leave_the_rest_alone() -> None:
    stream = pk.stream("s", {"t": "int64", "v": "int64"}, time="t")
    query = stream.signal("v")
    with query.open() as live:
        found = live.push(pa.record_batch({"t": [0, 10], "v": [1, 2]}))
        found += live.push(pa.record_batch({"t": [5], "v": [9]}))
        found += live.finish()
        assert live.metrics.late == 1
    assert [row["value"] for batch in found for row in batch.to_pylist()] == [1, 2]


def test_explain_says_what_was_fused_and_what_is_kept() -> None:
    price = trades().signal("price", by="symbol")
    text = str((price.rolling("10s").mean() > price.rolling("50s").mean()).explain())
    assert "one loop that jumps from change to change" in text
    assert text.count("⊕(mean") == 2
    assert "memory: the samples of" in text


def test_a_key_called_value_leaves_the_value_another_name() -> None:
    table = pa.table({"t": [1], "value": ["a"], "x": [2.0]})
    stream = pk.from_arrow(table, time="t")
    with pytest.raises(pk.SchemaMismatchError, match="in a list"):
        stream.signal("x", by="value")
    found = stream.signal([pk.col("x").alias("level")], by="value").collect()
    assert found.to_pylist() == [{"start": 1, "end": None, "value": "a", "level": 2.0}]


def test_another_reading_of_a_signal_fails_where_it_is_written() -> None:
    price = trades().signal("price", by="symbol")
    with pytest.raises(pk.SignalError, match="key by key"):
        price + trades().signal("price")
    with pytest.raises(pk.ExpressionTypeError, match="truth value"):
        bool(price > 1)
    with pytest.raises(pk.UnknownColumnError, match="nobody"):
        trades().signal("nobody")
    with pytest.raises(pk.DurationError):
        price.rolling(10)


def test_a_stream_of_a_signal_has_a_row_for_each_sample():
    table = pa.table({"t": [0, 1, 2, 12], "v": [10.0, 10.0, 10.0, 11.0]})
    level = pk.from_arrow(table, time="t").signal("v")
    assert level.collect()["start"].to_pylist() == [0, 12]
    assert level.to_stream().collect()["start"].to_pylist() == [0, 1, 2, 12]
    assert level.to_stream("x").window(10).agg(n=pk.count()).collect()["n"].to_pylist() == [3, 1]
    assert level.chop(5).to_stream().collect()["start"].to_pylist() == [0, 1, 2, 5, 10, 12]


def test_regular_samples_are_rows_of_their_stream_too():
    level = pk.from_arrow(pa.table({"v": [1.0, 1.0, None, 1.0]}), time=pk.every(2)).signal("v")
    rows = level.rolling(4).sum().to_stream().collect()
    assert rows["start"].to_pylist() == [0, 2, 4, 6]
    assert level.to_stream().collect()["start"].to_pylist() == [0, 2, 6]


def test_of_the_last_samples_those_that_are_not_there_are_none():
    table = pa.table({"t": [0, 1], "v": [1.0, 0.0]})
    last = pk.from_arrow(table, time="t").signal("v").where(lambda v: v > 0).rolling(pk.rows(1)).sum()
    assert last.collect().to_pylist() == [{"start": 0, "end": None, "value": 1.0}]


def test_several_aggregates_make_several_values():
    table = pa.table({"t": [0, 1, 12], "v": [1.0, 5.0, 2.0]})
    made = pk.from_arrow(table, time="t").signal("v").per(10).agg(most=pk.max("value"), n=pk.count())
    assert made.collect().select(["most", "n"]).to_pylist() == [{"most": 5.0, "n": 2}, {"most": 2.0, "n": 1}]
    assert (made["most"] / made["n"]).collect()["value"].to_pylist() == [2.5, 2.0]


def test_one_column_tells_until_when():
    table = pa.table({"s": [0, 6], "e": [5, 8], "v": [1, 2]})
    found = pk.from_arrow(table, time="s").signal("v", interval="e").collect()
    assert found.to_pydict() == {"start": [0, 6], "end": [5, 8], "value": [1, 2]}


@pytest.mark.parametrize("name", ["start", "end", "k"])
def test_values_may_not_be_called_as_keys_are(name):
    table = pa.table({"t": [0], "k": [1], "v": [1.0]})
    level = pk.from_arrow(table, time="t").signal("v", by="k")
    for make in (
        lambda: level.per(10).agg(**{name: pk.max("value")}),
        lambda: pk.align(**{name: level, "b": level}),
    ):
        with pytest.raises(pk.PenstockError, match=f"a value named '{name}'"):
            make()


def test_a_function_of_all_values_finds_them_by_name():
    table = pa.table({"t": [0], "the bid": [4.0], "ask": [5.0]})
    both = pk.from_arrow(table, time="t").signal(["the bid", "ask"])
    assert both.map(lambda q: q.ask - q["the bid"]).collect()["value"].to_pylist() == [1.0]
    assert both.where(lambda q: q.ask > 5).collect().num_rows == 0
    with pytest.raises(pk.PenstockError, match="no value 'mid'; it has 'the bid', 'ask'"):
        both.map(lambda q: q.mid)


def test_rows_of_several_values_keep_their_names() -> None:
    table = pa.table({"t": [0, 4], "bid": [1, 2], "ask": [3, 5]})
    quote = pk.from_arrow(table, time="t").signal(["bid", "ask"])
    assert quote.to_stream("quotes").collect().column_names == ["start", "end", "bid", "ask"]


@pytest.mark.parametrize(
    "dtype", [pa.list_(pa.int64()), pa.null(), pa.month_day_nano_interval(), pa.uuid()], ids=str
)
def test_values_that_cannot_be_compared_are_no_signal(dtype: pa.DataType) -> None:
    events = pk.stream("events", {"t": "int64", "v": dtype}, time="t")
    with pytest.raises(pk.ExpressionTypeError, match="cannot have the value"):
        events.signal("v")


def test_a_signal_knows_what_its_last_run_counted() -> None:
    mean = trades().signal("price", by="symbol").rolling("5s").mean()
    assert mean.metrics is None
    mean.collect()
    assert mean.metrics is not None
    assert (mean.metrics.read, mean.metrics.accepted, mean.metrics.balanced) == (5, 5, True)
    list(mean.run(TRADES.slice(0, 2).to_batches()))
    assert mean.metrics.read == 2
    chosen = pk.when(trades().signal("price") > 3).then(1)
    chosen.collect()
    assert chosen.metrics is not None
    assert chosen.metrics.emitted == 2


def test_a_last_sample_that_ends_is_cut_where_spans_are():
    table = pa.table({"t": [3], "v": [1.0]})
    level = pk.from_arrow(table, time="t").signal("v", lasting=25)
    assert level.per(10).integral().collect()["value"].to_pylist() == [7.0, 10.0, 8.0]
    assert level.window(10, every=10).integral().collect()["value"].to_pylist() == [7.0, 10.0, 8.0]
    assert level.chop(10).to_stream().collect()["start"].to_pylist() == [3, 10, 20]
    assert level.resample(every=10, method="last").to_stream().collect()["start"].to_pylist() == [10, 20]
