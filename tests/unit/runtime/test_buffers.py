"""Memory for several arrays at once: theirs alone, and apart in a cache."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.runtime.buffers import LARGEST, rooms

WORD, BYTE = np.dtype(np.int64), np.dtype(np.uint8)


@pytest.mark.parametrize(
    "wanted",
    [
        [],
        [(0, WORD)],
        [(1, WORD), (0, BYTE), (3, BYTE)],
        [(70_000, WORD), (70_000, BYTE), (70_001, WORD)],
        [(LARGEST // 16, WORD)] * 3,
    ],
    ids=["nothing", "an empty one", "few", "some", "more than a block"],
)
def test_arrays_of_the_sizes_that_are_asked_for_do_not_share_memory(
    wanted: list[tuple[int, np.dtype]],
) -> None:
    found = rooms(wanted)
    assert [(len(array), array.dtype) for array in found] == wanted
    for place, array in enumerate(found):
        array.fill(place)
    assert all((array == place).all() for place, array in enumerate(found))


@pytest.mark.parametrize("count", [70_000, LARGEST // 16])
def test_they_begin_in_different_sets_of_a_cache(count: int) -> None:
    sets = {room.ctypes.data // 64 % 64 for room in rooms([(count, WORD)] * 4)}
    assert len(sets) == 4


def test_one_of_them_keeps_the_memory_of_all() -> None:
    first, second = rooms([(70_000, WORD), (70_000, WORD)])
    second.fill(7)
    del first
    others = [room for _ in range(8) for room in rooms([(70_000, WORD), (70_000, WORD)])]
    for other in others:
        other.fill(1)
    assert (second == 7).all()
