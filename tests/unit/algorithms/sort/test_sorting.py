"""Kernels that sort, interpreted and compiled."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.algorithms.sort.kernels import place_floats
from tests.unit.algorithms.running import run

KERNEL = place_floats()
SPREAD = {
    "one value": [2.5] * 9,
    "both zeros": [0.0, -0.0, 1.0, -1.0, -0.0, 0.0],
    "neither finite nor numbers": [np.inf, np.nan, -np.inf, 3.0, np.nan, -3.0],
    "close together": [100.0 + 2.0**-40 * value for value in (5, 3, 4, 1, 2, 0)],
    "falling": [float(-index) for index in range(40)],
}


@pytest.mark.parametrize("values", SPREAD.values(), ids=SPREAD.keys())
def test_floats_are_placed(values: list[float]) -> None:
    found, memory = placed(values, patience=2_000)
    words = [(np.isnan(value), 0.0 if np.isnan(value) else value) for value in values]
    order = sorted(range(len(values)), key=lambda row: words[row])
    assert found == 1
    assert memory["places"][order].tolist() == list(range(len(values)))
    assert memory["in_order"].tobytes() == np.array(values)[order].tobytes()


def test_an_order_that_was_not_found_is_told() -> None:
    nearly = [1.0, 1.0 + 2.0**-52]  # differ where the row numbers are, beside one far away
    assert placed([-1e300, *nearly], patience=2_000)[0] == 1
    assert placed([-1e300, *nearly[::-1]], patience=2_000)[0] == 0
    high, low = 1.0 + 2.0**-30, 1.0  # alike in what is sorted by
    assert placed([-1e300, *[high, low] * 8], patience=2_000)[0] == 1
    assert placed([-1e300, *[high, low] * 8], patience=3)[0] == 0


def placed(values: list[float], patience: int) -> tuple[int, dict[str, np.ndarray]]:
    rows = len(values)
    memory = {"values": np.array(values), "rows": rows, "bits": (rows - 1).bit_length(), "patience": patience}
    memory |= {"words": np.zeros(rows, np.uint64), "spare": np.zeros(rows, np.uint64)}
    return run(KERNEL, memory | {"places": np.zeros(rows, np.int32), "in_order": np.zeros(rows)})
