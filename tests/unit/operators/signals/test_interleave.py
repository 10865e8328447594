"""SortedPartitions are merged by time, as sorting them would; interpreted and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.loop.nodes import F64, I32
from penstock.operators.signals.kernels.interleave import NEVER_ENDS, interleave, part_of_partitions
from tests.unit.algorithms.running import run

BITS = 3  # of the runs in a bucket


def lanes_of(seed: int, steps: list[int], partitions: int = 5, rows: int = 40) -> dict[str, Any]:
    """Points of partitions at times that are some of `steps` apart, one in five of them without a value."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 2 * rows // partitions, partitions)
    sizes[rng.integers(partitions)] = 0
    times = [np.cumsum(rng.choice(steps, size)) - 50 for size in sizes]
    total = int(sizes.sum())
    return {
        "partitions": partitions, "rows": total, "bounds": np.concatenate([[0], np.cumsum(sizes)]),
        "times": np.concatenate(times), "valid": (rng.random(total) < 0.8).astype(np.uint8),
        "values": rng.normal(size=total), "keys": rng.integers(0, 9, partitions).astype(np.int32),
    }  # fmt: skip


def sorted_runs(given: dict[str, Any]) -> list[tuple[int, int, float, int]]:
    found = []
    for partition in range(given["partitions"]):
        lo, hi = given["bounds"][partition : partition + 2]
        for i in range(lo, hi):
            end = given["times"][i + 1] if i + 1 < hi else NEVER_ENDS
            if given["valid"][i]:
                found.append((given["times"][i], end, given["values"][i], given["keys"][partition]))
    return sorted(found, key=lambda pair: pair[0])


def part(given: dict[str, Any], since: int, before: int) -> dict[str, Any]:
    own = {"since": since, "before": before}
    own |= {name: np.zeros(given["partitions"], np.int64) for name in ("begins", "ends")}
    taken = {name: value for name, value in given.items() if name not in ("values", "keys", "rows")}
    found, memory = run(part_of_partitions(), taken | own)
    return {**own, "begins": memory["begins"], "ends": memory["ends"], "found": found}


def merged(
    given: dict[str, Any], since: int, before: int, width: int, patience: int = 99
) -> tuple[int, list[tuple[int, int, float, int]]]:
    own = part(given, since, before)
    found, length = own.pop("found"), (2 << BITS) + 1
    own |= {name: np.zeros(length, np.int64) for name in ("words", "spare", "until", "counts")}
    own |= {"next": np.zeros(given["partitions"], np.int64), "first": 1, "width": width, "patience": patience}
    own |= {name: np.zeros(found + 1, np.int64) for name in ("out_start", "out_end")}
    own |= {"in": given["values"], "kept": np.zeros(length), "out": np.zeros(found + 1)}
    own |= {
        "in.1": given["keys"],
        "kept.1": np.zeros(length, np.int32),
        "out.1": np.zeros(found + 1, np.int32),
    }
    taken = {name: value for name, value in given.items() if name not in ("values", "keys")}
    status, memory = run(interleave((F64,), (I32,), BITS), taken | own)
    columns = [memory[name][1:].tolist() for name in ("out_start", "out_end", "out", "out.1")]
    return status, list(zip(*columns, strict=True))


@pytest.mark.parametrize("steps", [[1], [1, 2], [3, 900], [1, 1, 1, 1, 5_000_000]])
@pytest.mark.parametrize("width", [1, 7, 1 << 20])
@pytest.mark.parametrize("seed", range(3))
def test_runs_come_in_the_order_of_their_starts(steps: list[int], width: int, seed: int) -> None:
    given = lanes_of(seed, steps)
    least, most = int(given["times"].min()), int(given["times"].max())
    assert merged(given, least, most + 1, width) == (1, sorted_runs(given))


@pytest.mark.parametrize("seed", range(3))
def test_parts_in_time_follow_each_other(seed: int) -> None:
    given = lanes_of(seed, [1, 4])
    least, most = int(given["times"].min()), int(given["times"].max())
    middle = (least + most) // 2
    _, before = merged(given, least, middle, 8)
    _, after = merged(given, middle, most + 1, 8)
    assert before + after == sorted_runs(given)


def test_more_runs_at_one_time_than_a_bucket_holds_are_given_up() -> None:
    given = lanes_of(1, [1], partitions=40, rows=600)
    given["valid"][:] = 1
    assert merged(given, int(given["times"].min()), int(given["times"].max()) + 1, 1)[0] == 0


def test_buckets_are_not_begun_anew_for_ever() -> None:
    given = lanes_of(1, [1, 2], rows=60)
    span = int(given["times"].min()), int(given["times"].max()) + 1
    assert merged(given, *span, 1 << 20, patience=3)[0] == 0
    assert merged(given, *span, 1 << 20, patience=99)[0] == 1
