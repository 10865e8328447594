"""Signals over stored times are cut in time, or by key, among threads; where they are cut cannot be seen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.operators.signals import accesses

SIGNALS: dict[str, Callable[[pk.Signal], pk.Signal]] = {
    "join": lambda x: x + x.shift(7),
    "trend": lambda x: x.rolling(20).mean() > x.rolling(50).mean(),
    "of a difference": lambda x: (
        (x - x.shift(7)).abs().rolling(20).sum() - (x - x.shift(7)).rolling(20).sum()
    ),
    "window": lambda x: x.window(30, every=7).sum(),
    "per": lambda x: x - x.per(40).mean(),
    "rows": lambda x: x.rolling(pk.rows(5)).min(),
    "linear": lambda x: x.resample(every=3),
    "chop": lambda x: x.chop(4).rolling(20).count(),
    "weighted": lambda x: x.rolling(9).integral(),
}


@pytest.mark.parametrize("name", SIGNALS)
def test_threads_walk_stretches_of_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accesses, "POINTS_PER_THREAD", 4)
    rng = np.random.default_rng(5)
    table = pa.table({"t": np.cumsum(rng.integers(1, 6, 300)) - 200, "v": rng.normal(size=300)})
    signal = SIGNALS[name](pk.from_arrow(table, time="t").signal("v"))
    alone = signal.collect(engine=pk.Engine(threads=1))
    among_threads = signal.collect(engine=pk.Engine(threads=3))
    assert among_threads.drop(["value"]).equals(alone.drop(["value"]))
    assert np.allclose(among_threads["value"].to_numpy(), alone["value"].to_numpy(), rtol=0, atol=1e-12)
    assert alone.num_rows > 10


@pytest.mark.parametrize("name", SIGNALS)
def test_threads_share_keys(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accesses, "POINTS_PER_THREAD", 4)
    rng = np.random.default_rng(6)
    times, keys = np.cumsum(rng.integers(0, 3, 600)), rng.integers(0, 5, 600)
    table = pa.table({"t": times, "k": keys, "v": rng.integers(-9, 9, 600).astype(np.float64)})
    signal = SIGNALS[name](pk.from_arrow(table, time="t").signal("v", by="k"))
    alone = signal.collect(engine=pk.Engine(threads=1))
    assert signal.collect(engine=pk.Engine(threads=3)).equals(alone)
    assert alone.num_rows > 10
