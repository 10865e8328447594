"""Intervals of many keys are merged where that is cheaper than sorting; nobody can tell."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.operators.signals import intervals
from penstock.operators.signals.intervals import Interleaver

ROWS, KEYS = 3_000, 20


def rows(keys: pa.Array, steps: list[int], seed: int = 7) -> pa.Table:
    rng = np.random.default_rng(seed)
    values = pa.array(rng.integers(0, 4, ROWS).astype(float), mask=rng.random(ROWS) < 0.1)
    chosen = keys.take(pa.array(rng.integers(0, len(keys), ROWS)))
    return pa.table({"t": np.cumsum(rng.choice(steps, ROWS)) - 400, "k": chosen, "v": values})


KINDS = {
    "numbers": pa.array(range(KEYS)),
    "texts": pa.array([f"key {index}" for index in range(KEYS)]),
    "a null": pa.array([None, *range(KEYS)], pa.int16()),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [[0, 1], [1, 3], [1, 1 << 40]])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("several", [False, True])
def test_merging_is_sorting(
    kind: str, steps: list[int], threads: int, several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    signal = pk.from_arrow(rows(KINDS[kind], steps), time="t").signal("v", by="k")
    asked = pk.align(a=signal, b=signal.shift(5) > 1) if several else signal + signal.rolling(50).mean()
    engine = pk.Engine(threads=threads)
    monkeypatch.setattr(intervals, "ROWS_PER_SLICE", 100)
    by_sorting = asked.collect(engine=engine)
    monkeypatch.setattr(intervals, "ROWS_WORTH_SORTING", 0)
    by_merging = asked.collect(engine=engine)
    assert by_merging.equals(by_sorting)
    assert by_merging.num_rows > KEYS


def test_a_signal_of_many_keys_is_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "ROWS_WORTH_SORTING", 0)
    merged: list[bool] = []
    usual = Interleaver.merged

    def noting(self: Interleaver, *given: object) -> object:
        found = usual(self, *given)  # type: ignore[arg-type]
        merged.append(found is not None)
        return found

    monkeypatch.setattr(Interleaver, "merged", noting)
    signal = pk.from_arrow(rows(KINDS["numbers"], [1]), time="t").signal("v", by="k")
    (signal + 1).collect()
    assert merged == [True]
