"""Filters go on behind a gap: what was not defined is no past result. Worked out in plain Python."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import penstock as pk

GAPPY = [None, 1.0, 2.0, None, None, 4.0, 5.0, None, *map(float, range(30)), None, 7.0]
Read = Callable[[int], float]


def _filtered(
    samples: list[float | None], result: Callable[[Read, float], float], initial: float
) -> dict[int, float]:
    """Compute the results at samples that are there, each from the results before it."""
    results: list[float] = []
    found = {}
    for t, sample in enumerate(samples):
        if sample is not None:
            found[t] = result(lambda n: results[-n] if len(results) >= n else initial, sample)
            results.append(found[t])
    return found


def _streams(samples: list[float | None]) -> list[pk.Stream]:
    """The same samples with their times, and with times that are implied."""
    values = pa.array(samples, pa.float64())
    timed = pa.table({"t": range(len(samples)), "v": values})
    return [
        pk.from_arrow(timed, time="t", name="s"),
        pk.from_arrow(pa.table({"v": values}), time=pk.every(1), name="s"),
    ]


def _at_samples(tables: list[pa.RecordBatch], many: int) -> dict[int, float]:
    rows = [row for table in tables for row in table.to_pylist()]
    return {
        t: row["value"]
        for row in rows
        for t in range(row["start"], many if row["end"] is None else min(row["end"], many))
    }


@pytest.mark.parametrize(("near", "far"), [(1, 2), (3, 1), (2, 12)])
@pytest.mark.parametrize("rows", [None, 1, 7])
@pytest.mark.parametrize("regular", [False, True])
def test_past_results_are_those_that_are_defined(
    *, near: int, far: int, rows: int | None, regular: bool
) -> None:
    stream = _streams(GAPPY)[regular]
    sample = stream.signal("v", lasting=1)
    smooth = pk.feedback(lambda y: y[near] * 0.5 - y[far] * 0.25 + sample, initial=1.5)
    wanted = _filtered(GAPPY, lambda y, x: y(near) * 0.5 - y(far) * 0.25 + x, 1.5)
    if rows is None:
        found = smooth.collect().to_batches()
    else:
        batches = stream.collect().select(["v"] if regular else ["t", "v"]).to_batches(max_chunksize=rows)
        with smooth.open() as live:
            found = [out for batch in batches for out in live.push(s=batch)] + live.finish()
    assert _at_samples(found, len(GAPPY)) == pytest.approx(wanted)


@pytest.mark.parametrize("regular", [False, True])
def test_a_filter_of_delayed_samples_begins_when_they_are_there(*, regular: bool) -> None:
    samples = [1.0, 4.0, 2.0, 8.0, 5.0]
    x = _streams(list(samples))[regular].signal("v", lasting=1)
    steps: list[float | None] = [None, None, *(b - a for a, b in zip(samples, samples[2:], strict=False))]
    wanted = _filtered(steps, lambda y, step: y(1) * 0.5 + step, 0.0)
    found = pk.feedback(lambda y: y * 0.5 + x - x.shift(2)).collect().to_batches()
    assert _at_samples(found, len(samples)) == pytest.approx(wanted)
