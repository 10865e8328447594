"""The eight applications against plain Python."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from examples.fraud import fraud, fraud_rows
from examples.impute import impute
from examples.normalise import normalise
from examples.pan_tompkins import beats, energy
from examples.resample import resample
from examples.rsi import rsi
from examples.trend import trend
from examples.vibration import vibration

__all__ = [
    "energy",
    "fraud",
    "impute",
    "normalise",
    "rsi",
    "trend",
    "vibration",
]  # the suite is held against them

N = 400


def values(gaps: float = 0.0) -> list[float | None]:
    """Whole numbers: their sums are exact, so that comparing means depends on no rounding."""
    rng = np.random.default_rng(5)
    found = [float(integer) for integer in rng.integers(-50, 50, N)]
    return [None if rng.random() < gaps else value for value in found]


def signal_of(data: list[float | None], period: int = 1) -> pk.Signal:
    return pk.from_arrow(pa.table({"x": pa.array(data, pa.float64())}), time=pk.every(period)).signal("x")


def at_ticks(made: pk.Signal, ticks: range, column: str = "value") -> list[object]:
    """The value at each tick, read from the intervals."""
    found: dict[int, object] = {}
    for row in made.collect().to_pylist():
        end = ticks.stop if row["end"] is None else row["end"]
        for t in range(row["start"], end):
            found[t] = row[column]
    return [found.get(t) for t in ticks]


def close(got: list[object], wanted: list[object]) -> None:
    assert len(got) == len(wanted)
    for place, (a, b) in enumerate(zip(got, wanted, strict=True)):
        same = a is b if a is None or b is None else math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)  # type: ignore[arg-type]
        assert same, f"at {place}: {a} instead of {b}"


def test_trend_compares_two_means() -> None:
    x = values()
    got = at_ticks(trend(signal_of(x), 20, 50), range(N))
    wanted = [
        statistics.fmean(x[max(0, i - 19) : i + 1]) > statistics.fmean(x[max(0, i - 49) : i + 1])
        for i in range(N)
    ]
    assert got == wanted


def test_rsi_is_the_share_of_gains_in_all_movement() -> None:
    x = [*values(), *[7.0] * 20, *range(10, 40)]
    wanted: list[object] = [None]
    for i in range(1, len(x)):
        moves = [x[j] - x[j - 1] for j in range(max(1, i - 13), i + 1)]
        gains, losses = sum(m for m in moves if m > 0), -sum(m for m in moves if m < 0)
        if not gains and not losses:
            wanted.append(None)
        else:
            wanted.append(100.0 if not losses else 100 - 100 / (1 + gains / losses))
    close(at_ticks(rsi(signal_of(x), 1, 14), range(len(x))), wanted)


def test_normalise_brings_each_stretch_to_mean_0_and_deviation_1() -> None:
    x = values()
    stretches = [x[i - i % 50 : i - i % 50 + 50] for i in range(N)]
    wanted = [(v - statistics.fmean(s)) / statistics.pstdev(s) for v, s in zip(x, stretches, strict=True)]
    close(at_ticks(normalise(signal_of(x), 50), range(N)), wanted)


def test_impute_puts_the_mean_of_the_stretch_into_gaps() -> None:
    x = values(gaps=0.1)
    stretches = [[v for v in x[i - i % 50 : i - i % 50 + 50] if v is not None] for i in range(N)]
    wanted = [statistics.fmean(s) if v is None else v for v, s in zip(x, stretches, strict=True)]
    close(at_ticks(impute(signal_of(x), 50), range(N)), wanted)


def test_resample_interpolates_between_neighbours() -> None:
    x = values()
    got = at_ticks(resample(signal_of(x, 4), 5), range(0, 4 * (N - 1) + 1, 5))
    wanted = np.interp(np.arange(0, 4 * (N - 1) + 1, 5), 4 * np.arange(N), x)
    close(got, wanted.tolist())


@pytest.mark.parametrize("column", ["kurtosis", "rms", "crest"])
def test_vibration_gives_three_numbers_for_each_stretch(column: str) -> None:
    x = values()
    wanted: list[object] = []
    for start in range(0, N, 100):
        part = np.array(x[start : start + 100], float)
        far, rms = part - part.mean(), math.sqrt((part**2).mean())
        known = {
            "kurtosis": (far**4).mean() / (far**2).mean() ** 2,
            "rms": rms,
            "crest": np.abs(part).max() / rms,
        }
        wanted += [known[column]] * 100
    close(at_ticks(vibration(signal_of(x), 100), range(N), column), wanted)


def suspects(x: list[float], size: int) -> list[bool]:
    found = []
    for i, v in enumerate(x):
        before = x[max(0, i - size) : i]
        found.append(len(before) > 1 and v > statistics.fmean(before) + 3 * statistics.stdev(before))
    return found


def test_fraud_compares_with_the_payments_before() -> None:
    x = [abs(v) % 20 for v in values() if v is not None]
    x[100::37] = [500.0] * len(x[100::37])
    got = at_ticks(fraud(signal_of(x), 1, 60), range(N))
    assert [bool(value) for value in got] == suspects(x, 60)
    assert sum(suspects(x, 60)) > 3


def test_fraud_over_rows_marks_the_same_payments() -> None:
    x = [abs(v) % 20 for v in values() if v is not None]
    x[100::37] = [500.0] * len(x[100::37])
    hours = pa.array([i * 3_600_000_000 for i in range(N)], pa.timestamp("us"))
    rows = pa.table({"ts": hours, "customer": pa.array([1] * N), "amount": x})
    got = fraud_rows(pk.from_arrow(rows, time="ts")).collect().sort_by("ts")["suspect"].to_pylist()
    assert got == suspects(x, 240)


# --- heart beats --------------------------------------------------------------------------------------------


def electrocardiogram(seconds: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Beats of uneven rate and height, with T waves, noise, mains hum and a wandering baseline; and their times."""
    rng = np.random.default_rng(seed)
    t = np.arange(seconds * 200) / 200
    times = np.cumsum(rng.uniform(0.65, 1.05, seconds * 2))
    times = times[times < seconds - 1]
    x = 0.4 * np.sin(2 * np.pi * 0.3 * t) + 0.05 * np.sin(2 * np.pi * 50 * t) + rng.normal(0, 0.04, t.size)
    for beat in times:
        height = rng.uniform(0.8, 1.2)
        for place, size, width in (
            (0.0, 1.0, 0.012),
            (-0.03, -0.15, 0.01),
            (0.03, -0.25, 0.01),
            (0.25, 0.25, 0.05),
        ):
            x += height * size * np.exp(-(((t - beat - place) / width) ** 2) / 2)
    return x, times


@pytest.mark.parametrize("seed", [1, 2])
def test_pan_tompkins_finds_the_beats(seed: int) -> None:
    x, times = electrocardiogram(60, seed)
    ecg = pk.from_arrow(pa.table({"mv": x}), time=pk.every("5ms")).signal("mv")
    found = beats(ecg).where(lambda beat: beat).collect()
    starts = np.array([value.value / 1e6 for value in found["start"]])
    starts = starts[(starts > times[0] - 0.3) & (starts < times[-1] + 0.5)]
    delay = float(np.median([np.min(np.abs(starts - beat)) for beat in times]))
    hits = [beat for beat in times if np.min(np.abs(starts - delay - beat)) < 0.1]
    right = [start for start in starts if np.min(np.abs(start - delay - times)) < 0.1]
    assert len(hits) >= 0.99 * len(times)
    assert len(right) >= 0.99 * len(starts)
    assert 0.9 * len(times) < len(starts) < 1.1 * len(times)
