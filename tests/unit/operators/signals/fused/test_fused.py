"""One kernel from change to change = the stages it replaces = the tick-by-tick interpreter, however blocks fall."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, note, settings

import penstock as pk
from penstock.algorithms.sliding import incremental
from penstock.operators.signals import build as signal_programs
from penstock.operators.signals.fused import driver as fused
from penstock.operators.signals.fused.kernels import changes, kernel
from tests.oracle.signal_cases import Case, cases
from tests.oracle.test_signals import assert_same, interpreted

Build = Callable[[pk.Signal], pk.Signal]

SIGNALS: dict[str, Build] = {
    "trend": lambda x: x.rolling(60).mean() > x.rolling(150).mean(),
    "means": lambda x: pk.align(a=x.rolling(60).mean(), b=x.rolling(150).sum()),
    "spread": lambda x: (x.rolling(400).max() - x.rolling(100).min()) / x.rolling(90).std(),
    "late": lambda x: x > (x.rolling(300).mean() + 2 * x.rolling(300).std()).shift(1),
    "grids": lambda x: (x - x.per(500).mean()) / x.window(900, every=200).std(),
    "counts": lambda x: x.rolling(77).count() + x.window(100, every=30).count(),
    "rows": lambda x: x.rolling(pk.rows(9)).mean() - x.rolling(pk.rows(30)).max(),
    "gaps": lambda x: x.where(lambda v: v > 0).or_else(x.rolling(50).sum()).rolling(20).mean(),
    "moves": lambda x: (x - x.shift(3)).abs().rolling(40).sum(),
}


def irregular(rows: int, keys: int, spoil: Callable[[np.ndarray], None] | None = None) -> pa.Table:
    rng = np.random.default_rng(rows)
    values = rng.uniform(-50, 50, rows)
    if spoil is not None:
        spoil(values)
    return pa.table(
        {
            "t": np.cumsum(rng.integers(0, 9, rows)) - 5_000,
            "k": rng.integers(-3, keys - 3, rows),
            "v": pa.array(values, mask=rng.random(rows) < 0.05),
        }
    )


def huge(values: np.ndarray) -> None:
    values[::97] *= 1e17


def not_finite(values: np.ndarray) -> None:
    values[::61], values[3::89], values[5::120] = np.nan, np.inf, -np.inf


def staged(monkeypatch: pytest.MonkeyPatch, signal: pk.Signal) -> pa.Table:
    """Walk, reductions and fields one after the other."""
    with monkeypatch.context() as patch:
        patch.setattr(signal_programs, "fused_expression", lambda *_: None)
        return signal.collect()


def assert_close(found: pa.Table, wanted: pa.Table) -> None:
    """Compare values at the starts of either side: floats that differ a little part neighbours, or join them."""
    keys = set(found["k"].to_pylist()) | set(wanted["k"].to_pylist())
    for key in keys:
        ours, theirs = (row.filter(pa.compute.equal(row["k"], key)) for row in (found, wanted))
        times = np.union1d(ours["start"].to_numpy(), theirs["start"].to_numpy())
        for name in found.column_names[3:]:
            left, right = _at(ours, name, times), _at(theirs, name, times)
            assert np.allclose(left, right, rtol=1e-9, atol=1e-9, equal_nan=True), (key, name)


def _at(table: pa.Table, name: str, times: np.ndarray) -> np.ndarray:
    """The value at each time; infinite in its own way where there is none."""
    place = np.searchsorted(table["start"].to_numpy(), times, side="right") - 1
    ends = table["end"].fill_null(2**62).to_numpy()
    values = table[name].cast(pa.float64()).fill_null(-1e300).to_numpy()
    holds = (place >= 0) & (times < ends[np.maximum(place, 0)])
    return np.where(holds, values[np.maximum(place, 0)], -2e300)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let every border between blocks, calls and tables of prefixes be met by few rows."""
    monkeypatch.setattr(changes, "INSTANTS_PER_BLOCK", 3)
    monkeypatch.setattr(incremental, "ROWS_HELD_PLAIN", 4)
    monkeypatch.setattr(fused, "FEWEST_POINTS", 2)
    kernel.build_fused.cache_clear()
    yield
    kernel.build_fused.cache_clear()


@pytest.mark.parametrize("spoil", [None, huge, not_finite])
@pytest.mark.parametrize("name", SIGNALS)
def test_one_kernel_gives_what_stages_give(
    name: str, spoil: Callable[[np.ndarray], None] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = irregular(6_000, 3, spoil)
    signal = SIGNALS[name](pk.from_arrow(table, time="t").signal("v", by="k"))
    assert_close(signal.collect(), staged(monkeypatch, signal))


@pytest.mark.parametrize("name", SIGNALS)
def test_integers_are_exact(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = irregular(3_000, 2)
    whole = table.set_column(2, "v", table["v"].cast(pa.int64(), safe=False))
    signal = SIGNALS[name](pk.from_arrow(whole, time="t").signal("v", by="k"))
    assert_close(signal.collect(), staged(monkeypatch, signal))


def test_sums_of_integers_fit_if_their_windows_do() -> None:
    """All rows before a window may add up to more than 64 bits hold."""
    table = pa.table({"t": np.arange(40), "v": np.full(40, 1 << 60)})
    x = pk.from_arrow(table, time="t").signal("v")
    assert x.rolling(3).sum().collect()["value"].to_pylist()[2] == 3 << 60
    with pytest.raises(pk.PenstockError):
        x.rolling(9).sum().collect()


@pytest.mark.parametrize("name", SIGNALS)
def test_no_index_leaves_its_buffer(name: str, small_blocks: None) -> None:
    """The loop interpreter checks each of them."""
    table = irregular(60, 2)
    signal = SIGNALS[name](pk.from_arrow(table, time="t").signal("v", by="k"))
    assert_close(signal.collect(engine=pk.Engine(backend="interpret")), signal.collect())


@given(cases())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_borders_of_blocks_cannot_be_seen(small_blocks: None, case: Case) -> None:
    note(case.text)
    assert_same(case.signal.collect(), interpreted(case))


@pytest.mark.parametrize("name", ["trend", "rows", "grids"])
def test_neighbours_of_one_value_are_joined_across_calls(name: str, small_blocks: None) -> None:
    table = irregular(400, 1).drop(["k"])
    found = SIGNALS[name](pk.from_arrow(table, time="t").signal("v").map(lambda v: v.round())).collect()
    values = found["value"].to_numpy(zero_copy_only=False)
    follows = found["start"].to_numpy()[1:] == found["end"].to_numpy(zero_copy_only=False)[:-1]
    assert found.num_rows > 10
    assert not (follows & (values[1:] == values[:-1])).any()


def test_a_run_in_batches_gives_the_same_intervals() -> None:
    table = irregular(5_000, 3)
    signal = SIGNALS["means"](pk.from_arrow(table, time="t").signal("v", by="k"))
    found = pa.Table.from_batches(signal.run(iter(table.to_batches(max_chunksize=701))), signal.schema)
    assert_close(found.sort_by("start"), signal.collect())


def test_the_kernel_is_shown() -> None:
    signal = SIGNALS["trend"](pk.from_arrow(irregular(10, 2), time="t").signal("v", by="k"))
    assert "signal_events" in signal.explain(stage="loop")
    assert "changes" in signal.rolling(pk.rows(3)).mean().explain(stage="loop")
