"""The aggregates are those of other libraries, where these agree with each other."""

from __future__ import annotations

import math
import statistics
import warnings
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.expr.aggregates import reduce
from penstock.expr.comparison import order_key

duckdb = pytest.importorskip("duckdb")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

# Steps of 1/8 keep the peers' own rounding small: what is compared is what they compute, not how well.
NUMBERS = st.lists(st.integers(-800, 800).map(lambda value: value / 8), min_size=1, max_size=20)
SPREAD = NUMBERS.filter(lambda values: len(set(values)) > 1)
PAIRS = st.lists(st.tuples(*[st.integers(-9, 9).map(float)] * 2), min_size=2, max_size=20)
HOLEY = st.lists(st.none() | st.sampled_from([-1.5, 0.0, 2.0, math.inf, -math.inf, math.nan]), max_size=9)
Q = st.floats(0, 1)


def over(function, values, **options):
    return reduce(function, [(value,) for value in values], [pa.float64()], tuple(options.items()))


def close(expected):
    return expected if expected is None else pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True)


@cache
def connection():
    return duckdb.connect()


def by_duckdb(expression, *columns):
    """Compute an expression of x and y over rows of floats."""
    names = "xy"[: len(columns)]
    listed = ", ".join(f"unnest($each_{name}) as {name}" for name in names)
    given = {f"each_{name}": [*column] for name, column in zip(names, columns, strict=True)}
    return connection().execute(f"select {expression} from (select {listed})", given).fetchone()[0]


@given(SPREAD, st.sampled_from([0, 1]))
def test_spread_is_that_of_statistics_numpy_pandas_and_polars(values, ddof):
    exact = (statistics.pvariance, statistics.variance)[ddof](values)
    assert over("var", values, ddof=ddof) == close(exact)
    assert over("std", values, ddof=ddof) == close(math.sqrt(exact))
    assert over("var", values, ddof=ddof) == close(np.var(values, ddof=ddof))
    assert over("std", values, ddof=ddof) == close(pd.Series(values).std(ddof=ddof))
    assert over("std", values, ddof=ddof) == close(pl.Series(values).std(ddof=ddof))


@given(SPREAD)
def test_the_shape_of_a_population_is_that_of_polars(values):
    series = pl.Series(values)
    assert over("skew", values) == close(series.skew())
    assert over("kurtosis", values) == close(series.kurtosis())
    assert over("kurtosis", values, fisher=False) == close(series.kurtosis(fisher=False))


@given(SPREAD)
def test_the_shape_of_a_sample_is_that_of_polars_pandas_and_duckdb(values):
    series, frame = pl.Series(values), pd.Series(values)
    skew, kurtosis = over("skew", values, bias=False), over("kurtosis", values, bias=False)
    assert (skew is None) == (len(values) < 3)
    assert (kurtosis is None) == (len(values) < 4)
    assert skew == close(series.skew(bias=False))
    assert kurtosis == close(series.kurtosis(bias=False))
    assert (math.nan if skew is None else skew) == close(frame.skew())
    assert (math.nan if kurtosis is None else kurtosis) == close(frame.kurt())
    assert skew == close(by_duckdb("skewness(x)", values))
    assert kurtosis == close(by_duckdb("kurtosis(x)", values))


@pytest.mark.parametrize("values", [[5.0], [2.0, 2.0, 2.0, 2.0], [1.0, math.nan, 2.0], [1.0, math.inf, 2.0]])
def test_the_shape_of_what_has_none_is_that_of_polars(values):
    """Where DuckDB is null or raises, and pandas leaves NaN out or says 0."""
    series = pl.Series(values)
    for bias in (True, False):
        skew, kurtosis = series.skew(bias=bias), series.kurtosis(bias=bias)
        assert over("skew", values, bias=bias) == close(skew)
        assert over("kurtosis", values, bias=bias) == close(kurtosis)


@given(PAIRS)
def test_two_values_vary_together_as_in_numpy_polars_and_duckdb(pairs):
    xs, ys = zip(*pairs, strict=True)
    floats = [pa.float64(), pa.float64()]
    cov, corr = reduce("cov", pairs, floats), reduce("corr", pairs, floats)
    assert cov == close(np.cov(xs, ys)[0, 1])
    assert cov == close(by_duckdb("covar_samp(x, y)", xs, ys))
    with warnings.catch_warnings(action="ignore"):  # NumPy warns where one of them is constant
        assert corr == close(np.corrcoef(xs, ys)[0, 1])
    assert corr == close(pl.select(pl.corr(pl.Series(xs), pl.Series(ys))).item())
    assert corr == close(by_duckdb("corr(x, y)", xs, ys))


@given(NUMBERS, Q)
def test_quantiles_are_those_of_numpy_pandas_polars_and_duckdb(values, q):
    found = over("quantile", values, q=q)
    assert found == close(np.quantile(values, q))
    assert found == close(pd.Series(values).quantile(q))
    assert found == close(pl.Series(values).quantile(q, interpolation="linear"))
    assert found == close(by_duckdb(f"quantile_cont(x, {q:.20f})", values))
    assert over("median", values) == close(statistics.median(values))


@given(HOLEY)
def test_nulls_nan_and_infinities_are_ordered_as_in_duckdb(values):
    """In medians they are ordered likewise, but DuckDB interpolates between infinities in its own way."""
    column = [*values, None]  # a list of nothing has no type there
    for function in ("min", "max"):
        assert over(function, values) == close(by_duckdb(f"{function}(x::double)", column))
    assert over("count_distinct", values) == by_duckdb("count(distinct x::double)", column)
    known = [value for value in values if value is not None]
    if len(known) % 2:
        assert over("median", values) == close(by_duckdb("median(x::double)", column))


@given(NUMBERS)
def test_the_mode_is_the_smallest_of_those_statistics_finds(values):
    assert over("mode", values) == min(statistics.multimode(values))
    assert over("mode", values) == min(pl.Series(values).mode())
    assert over("mode", values) == pd.Series(values).mode()[0]


@given(st.lists(st.integers(-9, 9).map(float), min_size=1, max_size=12))
def test_products_are_those_of_numpy_and_duckdb(values):
    assert over("product", values) == close(float(np.prod(values)))
    assert over("product", values) == close(by_duckdb("product(x)", values))


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 99)), unique_by=lambda pair: pair[1]))
def test_values_beside_extremes_are_those_of_duckdb_where_nothing_ties(pairs):
    texts = [pa.string(), pa.int64()]
    values, by = [value for value, _ in pairs] + [None], [value for _, value in pairs] + [None]
    assert reduce("min_by", pairs, texts) == by_duckdb("arg_min(x, y)", values, by)
    assert reduce("max_by", pairs, texts) == by_duckdb("arg_max(x, y)", values, by)


@given(st.lists(st.none() | st.booleans()))
def test_truth_is_that_of_sql(values):
    rows = [(value,) for value in values]
    assert reduce("any", rows, [pa.bool_()]) == by_duckdb("bool_or(x::bool)", [*values, None])
    assert reduce("all", rows, [pa.bool_()]) == by_duckdb("bool_and(x::bool)", [*values, None])


@given(HOLEY)
def test_sorting_by_our_key_is_sorting_in_polars(values):
    known = [value for value in values if value is not None]
    ours = sorted(known, key=order_key)
    assert ours == close(pl.Series(known, dtype=pl.Float64).sort().to_list())
