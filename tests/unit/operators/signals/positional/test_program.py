"""The dense path against the definition: position by position, whatever the cut, in both back ends."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import penstock as pk
from penstock.analysis.positions import why_not
from penstock.errors import OverflowError
from penstock.operators.signals.positional.evaluate import InputSamples
from penstock.plan.schema import schema_of, time_of
from tests.unit.operators.signals.positional.cases import (
    check,
    evaluator,
    interpreted,
    prepared,
    results,
    samples_of,
)

SPECIAL = [math.nan, math.inf, -math.inf, -0.0, 1e30]
FLOATS = st.integers(-40, 40).map(float) | st.sampled_from(SPECIAL)
REDUCTIONS = ("sum", "mean", "count", "min", "max", "std", "var", "skew", "kurtosis", "product")
EXACT = ("sum", "mean", "count", "min", "max")


rms = pk.aggregate(
    (0.0, 0),
    lambda s, x: (s[0] + x * x, s[1] + 1),
    lambda s: (s[0] / s[1]).sqrt(),
    merge=lambda a, b: (a[0] + b[0], a[1] + b[1]),
)


def table(values: list, dtype: pa.DataType | None = None) -> pa.Table:
    return pa.table({"x": pa.array(values, dtype or pa.float64())})


def signal(data: pa.Table, period: int = 1, start: int = 0, **options: object):
    return pk.from_arrow(data, time=pk.every(period, start=start)).signal("x", **options)


@st.composite
def pointwise(draw: st.DrawFn, made, p: int):
    match draw(st.integers(0, 6)):
        case 0:
            return made + 3
        case 1:
            return made.shift(draw(st.integers(-3, 5)) * p)
        case 2:
            return made - made.shift(draw(st.integers(1, 4)) * p)
        case 3:
            return made.where(lambda v: v > 0)
        case 4:
            return made.map(lambda v: pk.when(v > 0).then(v).otherwise(-v))
        case 5:
            return made.where(lambda v: v > 0).or_else(made.shift(p))
        case _:
            return made.or_else(1.0)


@st.composite
def reduced(draw: st.DrawFn, made, p: int):
    name = draw(st.sampled_from(REDUCTIONS))
    size, every = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    span = draw(
        st.sampled_from([made.rolling(size * p), made.per(size * p), made.window(size * p, every=every * p)])
    )
    if draw(st.integers(0, 5)) == 0:
        return span.agg(pk.count(where=pk.col("value") > 0))
    return getattr(span, name)().cast("float64")


@st.composite
def signals(draw: st.DrawFn):
    """A program over one or two inputs, and their samples."""
    p, start = draw(st.sampled_from([(1, 0), (1, 5), (4, 0), (4, 8), (4, -12)]))
    values = st.lists(FLOATS if draw(st.booleans()) else FLOATS | st.none(), min_size=1, max_size=30)
    tables = [table(draw(values))]
    x = made = signal(tables[0], p, start)
    for _ in range(draw(st.integers(1, 3))):
        match draw(st.integers(0, 7)):
            case 0 | 1 | 2:
                made = draw(pointwise(made, p))
            case 3 | 4 | 5:
                made = draw(reduced(made, p))
            case 6:
                made = made - x
            case _ if len(tables) == 1:
                tables.append(table(draw(values)))
                made = made + signal(tables[1], p, start)
            case _:
                made = made.or_else(x)
    match draw(st.integers(0, 8)):
        case 0:
            y = made
            made = pk.feedback(lambda prev: prev * 0.5 - prev[3] * 0.25 + y)
        case 1:
            made = made.resample(
                every=draw(st.integers(1, 9)), method=draw(st.sampled_from(["linear", "last"]))
            )
        case 2:
            made = pk.align(a=made, b=x)
    return made, tables


def fits(made, tables: list[pa.Table]) -> bool:
    program, streams = made.graph.program(made.name)
    inputs = [(schema_of(stream.raw_plan), time_of(stream.raw_plan)) for stream in streams]
    if why_not(program, inputs) is not None:
        return False
    return min(map(len, tables)) >= prepared(made)[1].shortest


@settings(max_examples=40)
@given(signals())
def test_every_position_is_what_the_definition_says(case) -> None:
    made, tables = case
    assume(fits(made, tables))
    check(made, tables)


@settings(max_examples=8)
@given(signals())
def test_the_loop_interpreter_gives_the_same_without_leaving_a_buffer(case) -> None:
    made, tables = case
    assume(fits(made, tables))
    check(made, tables, backend=interpreted)


def bits(found: dict[str, list]) -> dict[str, list[str]]:
    return {name: [repr(value) for value in values] for name, values in found.items()}


def noisy(n: int, seed: int = 3) -> pa.Table:
    rng = np.random.default_rng(seed)
    values = rng.uniform(-50, 50, n)
    values[rng.integers(0, n, 3)] = [math.inf, math.nan, 1e12]
    return table(values.tolist())


LONG = {
    "trend": lambda x: x.rolling(20).mean() > x.rolling(50).mean(),
    "deviation": lambda x: (x - x.shift(1).rolling(240).mean()) / x.shift(1).rolling(240).std(),
    "shape": lambda x: pk.align(a=x.per(100).kurtosis(), b=x.per(100).skew(), c=x.per(50).max()),
    "normal": lambda x: (x - x.per(150).mean()) / x.per(150).std(ddof=0),
    "windows": lambda x: x.window(60, every=40).sum() + x.window(90, every=30).std(),
    "filter": lambda x: (
        pk.feedback(lambda y: y * 0.9 - y[12] * 0.1 + x.where(lambda v: v < 60)).rolling(7).max()
    ),
    "resampled": lambda x: (x - x.shift(3)).resample(every=7),
    "gaps": lambda x: x.where(lambda v: v > 0).rolling(33).std().or_else(x.rolling(5).min()),
    "own": lambda x: x.rolling(40).agg(rms("value")),
}


@pytest.mark.parametrize("name", LONG)
def test_no_cut_and_no_number_of_threads_changes_a_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = noisy(5_000)
    period = 4 if name == "resampled" else 1
    made = LONG[name](signal(data, period)) if period == 1 else signal(data, 4).resample(every=7)
    _, dense = prepared(made)
    samples = samples_of([data])
    whole = bits(results(evaluator(dense), samples))
    assert bits(results(evaluator(dense), samples, [1, 2, 777, 1024, 2048, 3000, 4999])) == whole
    monkeypatch.setattr("penstock.operators.signals.positional.evaluate.LEAST_SLICE", 500)
    for threads in (2, 5):
        assert bits(results(evaluator(dense, threads=threads), samples)) == whole


@pytest.mark.parametrize("name", [name for name in LONG if name not in ("resampled", "filter")])
def test_positions_far_from_any_edge_agree_with_the_definition(name: str) -> None:
    """On a few positions only: the definition takes its time."""
    rng = np.random.default_rng(9)
    data = table(rng.uniform(-50, 50, 700).tolist())
    check(LONG[name](signal(data)), [data], only=40)


def test_a_long_sum_keeps_its_error_within_the_bound_however_long_the_stream() -> None:
    rng = np.random.default_rng(1)
    values = rng.uniform(-1, 1, 60_000) * 10.0 ** rng.integers(-8, 9, 60_000)
    data, size = table(values.tolist()), 1000
    found = results(evaluator(prepared(signal(data).rolling(size).sum())[1]), samples_of([data]))["value"]
    for i in range(0, len(values), 997):
        window = values[max(0, i - size + 1) : i + 1]
        assert abs(found[i] - math.fsum(window)) <= 1e-12 * math.fsum(np.abs(window))


def test_infinities_and_nan_leave_a_window_as_they_entered_it() -> None:
    values = [1.0, math.inf, 2.0, math.nan, -math.inf, 3.0, 4.0, 5.0, 6.0, 7.0] + [1.0] * 300
    data = table(values)
    found = results(evaluator(prepared(signal(data).rolling(3).sum())[1]), samples_of([data]))["value"]
    assert [repr(value) for value in found[:9]] == [
        "1.0",
        "inf",
        "inf",
        "nan",
        "nan",
        "nan",
        "-inf",
        "12.0",
        "15.0",
    ]


def test_a_variance_far_from_zero_keeps_its_digits() -> None:
    rng = np.random.default_rng(2)
    values = 1e6 + rng.uniform(-1, 1, 2_000)
    data = table(values.tolist())
    found = results(evaluator(prepared(signal(data).rolling(64).var())[1]), samples_of([data]))["value"]
    for i in range(64, 2_000, 77):
        assert math.isclose(found[i], np.var(values[i - 63 : i + 1] - 1e6, ddof=1), rel_tol=1e-8)


def test_sums_of_integers_go_on_in_128_bits_where_64_might_not_do() -> None:
    large = 1 << 62
    data = table([large, large - 1, -large, -large, 5, 6, 7], pa.int64())
    made = signal(data).rolling(4).sum()
    found = results(evaluator(prepared(made)[1]), samples_of([data]))["value"]
    assert found[3:7] == [-1, 4 - large * 2 + large, 11 - 2 * large, 18 - large]


def test_a_sum_that_does_not_fit_is_an_error_and_not_a_wrong_number() -> None:
    data = table([1 << 62] * 5, pa.int64())
    with pytest.raises(OverflowError, match="does not fit"):
        results(evaluator(prepared(signal(data).rolling(4).sum())[1]), samples_of([data]))


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda x: x.rolling(4).median(), "median"),
        (lambda x: x.rolling(pk.rows(3)).sum(), "counts samples"),
        (lambda x: x.rolling(6).sum(), "not a multiple of the period"),
        (lambda x: x.shift(3), "not a multiple of the period"),
        (lambda x: x.chop(4), "between others"),
        (lambda x: x.resample(every=5).shift(4), "is computed with"),
        (lambda x: x.per(8).mean().or_else(0.0), "a constant fills in"),
        (lambda x: x.rolling(1 << 20).sum(), "samples long"),
        (lambda x: x.integral(), "between others"),
    ],
)
def test_what_does_not_fit_is_told_with_the_reason(made, reason: str) -> None:
    signal_of = made(signal(table([1.0, 2.0]), 4))
    program, streams = signal_of.graph.program(signal_of.name)
    reported = why_not(
        program, [(schema_of(stream.raw_plan), time_of(stream.raw_plan)) for stream in streams]
    )
    assert reported is not None and reason in reported


def test_an_offset_that_is_no_multiple_of_the_period_has_no_grid() -> None:
    made = signal(table([1.0]), 4, start=3).per(8).mean()
    program, streams = made.graph.program(made.name)
    assert "between two multiples" in (
        why_not(program, [(schema_of(s.raw_plan), time_of(s.raw_plan)) for s in streams]) or ""
    )


def test_a_feedback_goes_on_from_batch_to_batch() -> None:
    """The samples given to a call begin where the halo of its positions does."""
    data = noisy(3_000, seed=8)
    made = pk.feedback(lambda y: y * 0.5 + signal(data)).shift(2)
    _, dense = prepared(made)
    whole = bits(results(evaluator(dense), samples_of([data])))["value"]
    run, found = evaluator(dense), []
    rows = samples_of([data])[0].rows
    lo, end = run.span(3_000)
    for total in (10, 700, 1_500, 3_000):
        hi = run.ready(total) if total < 3_000 else end
        base = max(0, lo - run.program.past)
        (column,) = run.evaluate([InputSamples(rows.slice(base, total - base), base)], lo, hi)
        there = column.valid if column.nulls else np.ones(len(column.values))
        found += [v if ok else None for v, ok in zip(column.values.tolist(), there, strict=True)]
        lo = hi
    assert [repr(value) for value in found] == whole


def test_windows_without_a_value_are_not_counted() -> None:
    """A mean tells by itself that there is none; whoever counts windows asks whether they hold a sample."""
    values = pa.array([1.0, None, None, None, 5.0, 6.0, None, None, None, None, 2.0, None])
    x = pk.from_arrow(pa.table({"v": values}), time=pk.every(1)).signal("v")
    assert x.per(2).mean().collect()["start"].to_pylist() == [0, 4, 10]
    assert x.per(2).mean().per(12).count().collect()["value"].to_pylist() == [3]
    assert x.per(2).mean().to_stream().collect()["start"].to_pylist() == [0, 4, 10]
