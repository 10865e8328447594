"""What rows look back on, in chunks that are regular and in chunks that are not."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.algorithms.sorted_partitions.frame_kernels import look_back_frames
from penstock.loop.nodes import Kernel
from tests.unit.algorithms.running import run

SIZE = 7
kernel_of = cache(look_back_frames)


@st.composite
def partitions(draw: st.DrawFn) -> list[list[int]]:
    """Times that step regularly for long, and stumble now and then."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        runs = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 150)), min_size=1, max_size=3))
        steps = np.concatenate([np.full(count, step) for step, count in runs])
        found.append((draw(st.integers(-9, 9)) + np.cumsum(steps)).tolist())
    return found


def expected(
    partition: list[int], first: int, oldest: bool, newest: bool, until: int
) -> list[tuple[int, int]]:
    """Search for both ends."""
    frames = []
    for time in partition:
        left = (bisect_left if oldest else bisect_right)(partition, time - until - SIZE)
        right = (bisect_right if newest else bisect_left)(partition, time - until)
        frames.append((first + min(left, right), first + right))
    return frames


@pytest.mark.parametrize("oldest", [False, True])
@pytest.mark.parametrize("newest", [False, True])
@pytest.mark.parametrize("until", [0, 2])
@given(partitions=partitions(), data=st.data())
def test_bounds_are_those_that_a_search_finds(
    oldest: bool, newest: bool, until: int, partitions: list[list[int]], data: st.DataObject
) -> None:
    bounds = np.cumsum([0, *map(len, partitions)])
    wanted = [
        frame
        for first, partition in zip(bounds.tolist(), partitions, strict=False)
        for frame in expected(partition, first, oldest, newest, until)
    ]
    begin = data.draw(st.integers(0, len(wanted) - 1))
    end = data.draw(st.integers(begin, len(wanted)))
    partition = int(np.searchsorted(bounds, begin, side="right")) - 1
    memory = {
        "times": np.concatenate(partitions),
        "bounds": bounds,
        "partition": partition,
        "begin": begin,
        "end": end,
    }
    memory |= {
        "since": until + SIZE,
        "until": until,
        "left": int(bounds[partition]),
        "right": int(bounds[partition]),
    }
    memory |= {name: np.zeros(len(wanted), np.int64) for name in ("lo", "hi")}
    kernel: Kernel = kernel_of(oldest, newest, until > 0)
    longest, after = run(kernel, memory)
    found = list(zip(after["lo"].tolist(), after["hi"].tolist(), strict=True))[: end - begin]
    assert found == wanted[begin:end]
    assert longest == max((hi - lo for lo, hi in wanted[begin:end]), default=0)
