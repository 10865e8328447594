"""Blocks that nobody holds any more are used again, and no others."""

from __future__ import annotations

import gc

import numpy as np
import pyarrow as pa

from penstock.runtime.buffers import room, to_arrow
from penstock.runtime.recycled import LARGEST, SMALLEST, Shelf, block_of


def test_a_block_that_nobody_holds_is_used_again() -> None:
    shelf = Shelf()
    block = block_of(SMALLEST, shelf)
    page = block.ctypes.data >> 16
    assert shelf.held == 0
    del block
    assert shelf.held >= SMALLEST
    again = block_of(SMALLEST - 64, shelf)
    assert again.ctypes.data >> 16 == page
    assert len(again) == SMALLEST - 64
    assert shelf.held == 0


def test_a_block_is_held_by_whatever_views_it() -> None:
    shelf = Shelf()
    numbers = block_of(SMALLEST, shelf).view(np.int64)
    numbers[:] = 7
    some = to_arrow(numbers[10:20], None, pa.int64())
    del numbers
    gc.collect()
    assert shelf.held == 0
    assert some.to_pylist() == [7] * 10
    del some
    gc.collect()
    assert shelf.held > 0


def test_a_block_much_too_large_stays_where_it_is() -> None:
    shelf = Shelf()
    block = block_of(4 * SMALLEST, shelf)
    del block
    waits = shelf.held
    held = block_of(SMALLEST, shelf)
    assert shelf.held == waits
    assert len(held) == SMALLEST


def test_no_more_waits_than_is_allowed_and_the_oldest_goes_first() -> None:
    shelf = Shelf(most=3 * SMALLEST)
    blocks = [block_of(SMALLEST + (place << 12), shelf) for place in range(5)]
    pages = [block.ctypes.data >> 16 for block in blocks]
    while blocks:
        del blocks[0]
        assert shelf.held <= 3 * SMALLEST
    assert block_of(SMALLEST, shelf).ctypes.data >> 16 in pages[-2:]


def test_a_block_that_comes_back_while_another_is_taken_is_let_go() -> None:
    shelf = Shelf()
    block = block_of(SMALLEST, shelf)
    with shelf._lock:
        del block
    assert shelf.held == 0


def test_arrays_of_every_size_can_be_written() -> None:
    for size in (8, SMALLEST - 8, SMALLEST, LARGEST, LARGEST + 8):
        made = room(size // 8)
        made[:] = 1
        assert len(made) == size // 8
        assert made.flags.aligned


def test_neighbours_begin_at_different_places_of_a_page() -> None:
    places = {block.ctypes.data % 4096 // 64 for block in [block_of(SMALLEST, Shelf()) for _ in range(40)]}
    assert len(places) == 40
