"""The sentences on signals of the design, each worked out by hand: samples `time: value`, intervals `start, end, value`."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import penstock as pk

Row = tuple[object, ...]


def _signal(samples: dict[int, float | None], **options: object) -> pk.Signal:
    table = pa.table({"t": list(samples), "v": pa.array(samples.values(), pa.float64())})
    return pk.from_arrow(table, time="t").signal("v", **options)  # type: ignore[arg-type]  # as the case says


def _intervals(signal: pk.Signal) -> list[Row]:
    return [tuple(row.values()) for row in signal.collect().to_pylist()]


STEPS = _signal({0: 1.0, 4: 1.0})
LATER = _signal({2: 1.0, 6: 1.0})
SAME = _signal({0: 5.0, 2: 5.0, 4: 5.0})
COUNTS = [(0, 2, 1), (2, 4, 2), (4, 10, 3), (10, 12, 2), (12, 14, 1)]

SENTENCES: dict[str, tuple[pk.Signal, list[Row]]] = {
    "a sample holds until the next, the last open end is null": (
        _signal({0: 1.0, 4: 2.0}),
        [(0, 4, 1.0), (4, None, 2.0)],
    ),
    "or for so long": (
        _signal({0: 1.0, 2: 2.0, 9: 3.0}, lasting=3),
        [(0, 2, 1.0), (2, 5, 2.0), (9, 12, 3.0)],
    ),
    "a reduction counts what starts in the span, held values are not carried in": (
        _signal({0: 1.0, 100: 2.0}).rolling(10).sum(),
        [(0, 10, 1.0), (100, 110, 2.0)],
    ),
    "unless weighted by time": (
        _signal({0: 1.0, 4: 2.0, 20: 0.0}).per(10).time_mean(),
        [(0, 10, 1.6), (10, 20, 2.0)],
    ),
    "only collect coalesces": (SAME, [(0, None, 5.0)]),
    "equal neighbours are samples": (SAME.rolling(10).count(), COUNTS),
    "of derived signals too": (SAME.map(lambda v: v * 0).rolling(10).count(), COUNTS),
    "samples of derived signals are those of all operands": ((STEPS * LATER).per(100).count(), [(0, 100, 3)]),
    "rolling changes when samples leave": (
        _signal({0: 1.0, 3: 2.0}).rolling(5).sum(),
        [(0, 3, 1.0), (3, 5, 3.0), (5, 8, 2.0)],
    ),
    "a further reduction counts the samples of its input": (
        _signal({0: 1.0, 3: 2.0}).rolling(5).sum().rolling(20).sum(),
        [(0, 3, 1.0), (3, 20, 4.0), (20, 23, 3.0)],
    ),
    "a window holds after it": (
        _signal({0: 1.0, 12: 2.0}).window(10, every=5).sum(),
        [(5, 15, 1.0), (15, 25, 2.0)],
    ),
    "windows lie before zero": (_signal({-7: 1.0}).window(10, every=5).sum(), [(-5, 5, 1.0)]),
    "per holds on itself": (_signal({0: 1.0, 3: 2.0, 25: 4.0}).per(10).sum(), [(0, 10, 3.0), (20, 30, 4.0)]),
    "a null sample is no value": (_signal({0: 1.0, 4: None, 9: 3.0}), [(0, 4, 1.0), (9, None, 3.0)]),
    "what where leaves out is no sample": (
        _signal({0: 1.0, 1: -1.0, 2: 2.0}).where(lambda v: v > 0).per(10).count(),
        [(0, 10, 2)],
    ),
    "a shift moves samples": (_signal({0: 1.0}).shift(15).per(10).sum(), [(10, 20, 1.0)]),
    "gaps longer than max_gap stay": (
        _signal({0: 0.0, 4: 8.0, 20: 4.0}).resample(every=2, max_gap=5),
        [(0, 2, 0.0), (2, 4, 4.0), (4, 6, 8.0), (20, 22, 4.0)],
    ),
    "chopped, what is held counts": (
        _signal({0: 2.0, 10: 4.0}).chop(every=5).rolling(10).sum(),
        [(0, 5, 2.0), (5, 10, 4.0), (10, 15, 6.0), (15, 20, 4.0)],
    ),
    "aligned, one may be null": (
        pk.align(a=_signal({0: 1.0, 5: 2.0}), b=_signal({3: 9.0})),
        [(0, 3, 1.0, None), (3, 5, 1.0, 9.0), (5, None, 2.0, 9.0)],
    ),
}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_signals_are_what_the_design_says(sentence: str) -> None:
    signal, expected = SENTENCES[sentence]
    assert _intervals(signal) == expected


SPANS = pa.table({"t": [0, 3], "until": [5, 8], "v": [1.0, 2.0]})
TWICE = pa.table({"t": [3, 3], "until": [4, 4], "v": [1.0, 2.0]})


@pytest.mark.parametrize(
    ("table", "resolve", "expected"),
    [
        (SPANS, "sum", [(0, 3, 1.0), (3, 5, 3.0), (5, 8, 2.0)]),
        (SPANS, "max", [(0, 3, 1.0), (3, 8, 2.0)]),
        (SPANS, "first", [(0, 5, 1.0), (5, 8, 2.0)]),
        (TWICE, "sum", [(3, 4, 3.0)]),
    ],
)
def test_resolve_says_what_several_values_are(table: pa.Table, resolve: str, expected: list[Row]) -> None:
    spans = pk.from_arrow(table, time="t").signal("v", interval=("t", "until"), resolve=resolve)
    assert _intervals(spans) == expected


def test_reductions_see_every_one_of_overlapping_samples() -> None:
    spans = pk.from_arrow(SPANS, time="t").signal("v", interval=("t", "until"))
    assert _intervals(spans.rolling(10).sum()) == [(0, 3, 1.0), (3, 10, 3.0), (10, 13, 2.0)]
    with pytest.raises(pk.SignalError, match="resolve="):
        (spans + 1).collect()


def _of_events(make: Callable[[pk.Signal], pk.Signal]) -> pk.Signal:
    events = pk.stream("events", {"t": "int64", "k": "string", "v": "float64"}, time="t", lateness=9)
    return make(events.signal("v", by="k"))


RUNNING = {
    "itself": lambda s: s,
    "rolling": lambda s: s.rolling(7).mean(),
    "window": lambda s: s.window(10, every=5).sum(),
    "difference": lambda s: s - s.shift(3),
    "resample": lambda s: s.resample(every=4, method="last", max_gap=10),
    "by duration": lambda s: s.per(10).time_mean(),
}


@pytest.mark.parametrize("name", RUNNING)
def test_batches_of_one_row_out_of_order_give_what_collect_gives(name: str) -> None:
    signal = _of_events(RUNNING[name])
    times = [(7 * i) % 60 for i in range(20)]
    order = sorted(range(len(times)), key=lambda i: times[i] + (i * 5) % 9)  # at most 9 late
    table = pa.table({"t": times, "k": ["ab"[t % 2] for t in times], "v": [float(t % 5) for t in times]})
    arriving = table.take(pa.array(order))
    taken = [row for batch in signal.run(arriving.to_batches(max_chunksize=1)) for row in batch.to_pylist()]
    assert sorted(taken, key=str) == sorted(signal.collect(table).to_pylist(), key=str)


def _not_a_number(*, regular: bool) -> pk.Stream:
    """Samples 0 … 5, NaN of both signs among them."""
    values = pa.array([float("nan"), -float("nan"), 0.0, -0.0, -float("nan"), float("nan")])
    if regular:
        return pk.from_arrow(pa.table({"v": values}), time=pk.every(1), name="s")
    return pk.from_arrow(pa.table({"t": range(6), "v": values}), time="t", name="s")


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("regular", [False, True])
def test_neighbours_that_are_nan_or_zero_are_one_interval_whatever_their_signs(
    *, regular: bool, computed: bool
) -> None:
    signal = _not_a_number(regular=regular).signal("v")
    found = (signal * 1.0 if computed else signal).collect().to_pydict()
    assert found["start"] == [0, 2, 4]
    assert [str(value) for value in found["value"]] == ["nan", "0.0", "nan"]


def test_lists_of_samples_are_values_of_a_signal_too() -> None:
    listed = _signal({0: 1.0, 4: 1.0, 20: 2.0}).rolling(10).list()
    assert _intervals(listed) == [(0, 4, [1.0]), (4, 10, [1.0, 1.0]), (10, 14, [1.0]), (20, 30, [2.0])]


BOTH = pk.from_arrow(
    pa.table({"t": [0, 4, 9], "i": pa.array([1, 5, 3], pa.int32()), "v": [4.0, 2.0, None]}), time="t"
)
MANY_AT_ONCE = pa.table(
    {"t": [0, 2], "e": [4, 6], "i": pa.array([100, 100], pa.int8()), "f": pa.array([0.5, 1.0], pa.float32())}
)


def test_the_least_and_greatest_of_signals_are_signals_where_all_are_defined() -> None:
    i, v = BOTH.signal("i"), BOTH.signal("v")
    assert _intervals(pk.least(i, v, 3)) == [(0, 4, 1.0), (4, 9, 2.0)]
    assert _intervals(pk.greatest(2, i)) == [(0, 4, 2), (4, 9, 5), (9, None, 3)]


def test_a_choice_without_otherwise_is_a_signal_that_is_not_defined_elsewhere() -> None:
    high = pk.when(BOTH.signal("i") > 2).then(BOTH.signal("v"))
    assert _intervals(high) == [(4, 9, 2.0)]
    assert _intervals(high + 1) == [(4, 9, 3.0)]
    assert _intervals(pk.when(BOTH.signal("i") > 2).then(None).otherwise(1.5)) == [(0, 4, 1.5)]


@pytest.mark.parametrize(
    ("column", "resolve", "values"),
    [
        ("i", "sum", [100, 200, 100]),
        ("i", "mean", [100.0]),
        ("f", "sum", [0.5, 1.5, 1.0]),
        ("i", "max", [100]),
    ],
)
def test_sums_of_narrow_values_at_once_are_wide(column: str, resolve: str, values: list[float]) -> None:
    signal = pk.from_arrow(MANY_AT_ONCE, time="t").signal(column, interval=("t", "e"), resolve=resolve)
    assert signal.collect()["value"].to_pylist() == values


def test_several_values_are_resampled_by_their_means() -> None:
    means = BOTH.signal(["i", "v"]).resample(every=5, method="mean")
    assert _intervals(means) == [(0, 5, 3.0, 3.0), (5, 10, 3.0, None)]


@pytest.mark.parametrize("rows", [1, 2])
def test_the_last_rows_are_remembered_over_any_number_of_nulls(rows: int) -> None:
    values = [None if i in (4, 5) else float(i) for i in range(11)]
    table = pa.table({"t": [2 + 3 * i for i in range(11)], "v": pa.array(values)})
    last = pk.from_arrow(table, time="t", name="s").signal("v").rolling(pk.rows(rows)).sum()
    with last.open() as live:
        found = [out for batch in table.to_batches(max_chunksize=1) for out in live.push(s=batch)]
        found += live.finish()
    assert [row for out in found for row in out.to_pylist()] == last.collect().to_pylist()
