"""The same questions in Polars, pandas and SciPy, where they can be asked there. Libraries may be absent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

Run = Callable[[], Any]
Maker = Callable[[Sequence[pa.Table]], Run]


def polars(make: Callable[[Any, Any], Any]) -> Maker:
    """An expression of Polars over the columns `x` (and `y`)."""

    def maker(tables: Sequence[pa.Table]) -> Run:
        import polars as pl  # noqa: PLC0415 - a peer may be absent

        frame = pl.DataFrame(
            {name: pl.from_arrow(t[t.column_names[0]]) for name, t in zip("xy", tables, strict=False)}
        )
        query = make(pl, pl.col("x")).alias("v")

        def run() -> Any:
            # Written out: as a lambda, a linter's fix makes it a bound method, and the query runs before the clock.
            answer = frame.select(query)
            return answer["v"].to_numpy()

        return run

    return maker


def pandas(make: Callable[[Any], Any]) -> Maker:
    """A function of a pandas Series."""

    def maker(tables: Sequence[pa.Table]) -> Run:
        import pandas as pd  # noqa: PLC0415 - as above

        series = pd.Series(tables[0].column(0).to_numpy())
        return lambda: np.asarray(make(series), np.float64)

    return maker


def numpy_resample(tables: Sequence[pa.Table]) -> Run:
    """NumPy's interpolation: neither data frame has one to another period that is as fast."""
    values = tables[0].column(0).to_numpy()
    old = np.arange(len(values)) * 4
    new = np.arange(0, old[-1] + 1, 5)
    return lambda: np.interp(new, old, values)


def scipy_energy(tables: Sequence[pa.Table]) -> Run:
    """The filters of Pan-Tompkins by `lfilter`."""
    from scipy.signal import lfilter  # noqa: PLC0415 - as above

    x = tables[0].column(0).to_numpy()
    low = [1.0, 0, 0, 0, 0, 0, -2.0, 0, 0, 0, 0, 0, 1.0]
    high = np.zeros(33)
    high[[0, 16, 17, 32]] = -1 / 32, 1.0, -1.0, 1 / 32

    def run() -> Any:
        kept = lfilter(high, [1.0, -1.0], lfilter(low, [1.0, -2.0, 1.0], x))
        slope = lfilter(np.array([2.0, 1.0, 0.0, -1.0, -2.0]) / 8, [1.0], kept)
        means = lfilter(np.ones(30), [1.0], slope * slope)
        return means / np.minimum(np.arange(1, len(x) + 1), 30)

    return run


def scipy_vibration(tables: Sequence[pa.Table]) -> Run:
    """Stretches as the rows of a matrix. All three results are made, the first is compared."""
    from scipy.stats import kurtosis  # noqa: PLC0415 - as above

    rows = tables[0].column(0).to_numpy().reshape(-1, 100)

    def run() -> Any:
        rms = np.sqrt((rows * rows).mean(axis=1))
        crest = np.abs(rows).max(axis=1) / rms
        return kurtosis(rows, axis=1, fisher=False), rms, crest

    return lambda: run()[0]


def numpy_views(tables: Sequence[pa.Table]) -> Run:
    """Stretches as the rows of a matrix, their ones counted."""
    rows = tables[0].column(0).to_numpy().reshape(-1, 100)
    return lambda: (rows == 1).sum(axis=1).astype(np.float64)


def pandas_views(tables: Sequence[pa.Table]) -> Run:
    """Ones counted by stretch, whose numbers are there before the clock runs."""
    import pandas as pd  # noqa: PLC0415 - as above

    series = pd.Series(tables[0].column(0).to_numpy())
    stretches = np.arange(len(series)) // 100
    return lambda: np.asarray((series == 1).groupby(stretches).sum(), np.float64)


def _polars_rsi(pl: Any, x: Any) -> Any:
    change = x.diff()
    gains = pl.when(change > 0).then(change).otherwise(0.0).rolling_sum(14, min_samples=1)
    moves = change.abs().rolling_sum(14, min_samples=1)
    return pl.when(moves > 0).then(100 * gains / moves).otherwise(None)


def _polars_stretch(pl: Any) -> Any:
    return pl.int_range(pl.len()) // 10_000


def _polars_fraud(pl: Any, x: Any) -> Any:
    mean, std = x.rolling_mean(240, min_samples=1), x.rolling_std(240, min_samples=2)
    return (x > (mean + 3 * std).shift(1)).cast(pl.Float64)


def _pandas_fraud(x: Any) -> Any:
    before = x.rolling(240, min_periods=1)
    limit = (before.mean() + 3 * before.std()).shift(1)
    return (x > limit).astype(float).where(limit.notna())


PEERS: dict[str, tuple[tuple[str, Maker, float | None], ...]] = {
    "select": (("Polars", polars(lambda pl, x: x + 3), None),),
    "where": (("Polars", polars(lambda pl, x: pl.when(x > 0).then(x)), None),),
    "window-sum": (
        ("Polars", polars(lambda pl, x: x.rolling_sum(1000, min_samples=1)), None),
        ("pandas", pandas(lambda x: x.rolling(1000, min_periods=1).sum()), 3.0),
    ),
    "join": (("Polars", polars(lambda pl, x: x + pl.col("y")), None),),
    "normalise": (
        (
            "Polars",
            polars(lambda pl, x: ((x - x.mean()) / x.std(ddof=0)).over(_polars_stretch(pl))),
            3.0,
        ),
    ),
    "impute": (("Polars", polars(lambda pl, x: x.fill_null(x.mean().over(_polars_stretch(pl)))), 3.0),),
    "resample": (("NumPy", numpy_resample, 3.0),),
    "trend": (
        (
            "Polars",
            polars(
                lambda pl, x: (x.rolling_mean(20, min_samples=1) > x.rolling_mean(50, min_samples=1)).cast(
                    pl.Float64
                )
            ),
            8.0,
        ),
        (
            "pandas",
            pandas(lambda x: x.rolling(20, min_periods=1).mean() > x.rolling(50, min_periods=1).mean()),
            None,
        ),
    ),
    "fraud": (("Polars", polars(_polars_fraud), 3.0), ("pandas", pandas(_pandas_fraud), 3.0)),
    "rsi": (("Polars", polars(_polars_rsi), 8.0),),
    "pan-tompkins": (("SciPy", scipy_energy, 3.0),),
    "vibration": (("SciPy", scipy_vibration, 3.0),),
    # NumPy and Penstock alike wait for memory here: it is shown, and asks for nothing.
    "ysb-reduced": (("pandas", pandas_views, 3.0), ("NumPy", numpy_views, None)),
}
"""For each application, the peers that can answer it, and how many times as fast Penstock must be."""
