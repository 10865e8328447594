"""Blocks that nobody holds any more are used again, and no others."""

from __future__ import annotations

import gc
import itertools
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.operators.pane_aggregate import table
from penstock.runtime import buffers
from penstock.runtime.buffers import LARGEST, SMALLEST, BufferPool, block_of, room, to_arrow
from penstock.runtime.threads import run_on_threads
from tests.unit.runtime.queries import QUERIES, Feed, reported


def test_a_block_that_nobody_holds_is_used_again() -> None:
    shelf = BufferPool()
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
    shelf = BufferPool()
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
    shelf = BufferPool()
    block = block_of(4 * SMALLEST, shelf)
    del block
    waits = shelf.held
    held = block_of(SMALLEST, shelf)
    assert shelf.held == waits
    assert len(held) == SMALLEST


def test_no_more_waits_than_is_allowed_and_the_oldest_goes_first() -> None:
    shelf = BufferPool(most=3 * SMALLEST)
    blocks = [block_of(SMALLEST + (place << 12), shelf) for place in range(5)]
    pages = [block.ctypes.data >> 16 for block in blocks]
    while blocks:
        del blocks[0]
        assert shelf.held <= 3 * SMALLEST
    assert block_of(SMALLEST, shelf).ctypes.data >> 16 in pages[-2:]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_anywhere_leaves_a_shelf_that_works() -> None:
    for function in ("give", "take"):
        for line in range(12):
            shelf = BufferPool(most=3 * SMALLEST)
            for _ in range(2):
                interrupted(lambda shelf=shelf: block_of(SMALLEST, shelf), function, line)  # type: ignore[misc]
            blocks = [block_of(SMALLEST, shelf) for _ in range(4)]
            assert len({block.ctypes.data for block in blocks}) == 4
            del blocks
            assert shelf.held <= 3 * SMALLEST


def interrupted(work: Callable[[], object], function: str, line: int) -> None:
    """Interrupt work as somebody's Ctrl-C would, when so many lines of a function of shelves have been run."""
    lines = itertools.count()

    def within(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        if event == "line" and next(lines) == line:
            raise KeyboardInterrupt
        return within

    def called(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        shelves = frame.f_code.co_filename == buffers.__file__
        return within if shelves and frame.f_code.co_name == function else None

    before = sys.gettrace()
    sys.settrace(called)
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)


def test_threads_never_share_a_block() -> None:
    shelf = BufferPool()

    def work() -> None:
        for number in range(200):
            mine = block_of(SMALLEST, shelf)
            mine[::4096] = number % 251
            time.sleep(0)
            assert (mine[::4096] == number % 251).all()

    run_on_threads([work] * 4)


def test_arrays_of_every_size_can_be_written() -> None:
    for size in (8, SMALLEST - 8, SMALLEST, LARGEST, LARGEST + 8):
        made = room(size // 8)
        made[:] = 1
        assert len(made) == size // 8
        assert made.flags.aligned


def test_neighbours_begin_at_different_places_of_a_page() -> None:
    places = {
        block.ctypes.data % 4096 // 64 for block in [block_of(SMALLEST, BufferPool()) for _ in range(40)]
    }
    assert len(places) == 40


@pytest.mark.parametrize("name", QUERIES)
def test_no_answer_depends_on_what_was_in_memory_before(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks keep what the last run left in them: whoever takes one writes before reading."""
    query = QUERIES[name]()
    feed = Feed.made(query.names)
    engine = pk.Engine(threads=2, task_bytes=64)
    expected = reported(query.collect(feed.tables(), engine=engine).to_batches())
    lives = [row for call in feed.calls(query.open(engine=engine)) for row in reported(call())]
    for module in (buffers, table):
        monkeypatch.setattr(module, "LARGE", 1)  # so that small arrays come from blocks, too
    monkeypatch.setattr(buffers, "SMALLEST", 1)
    taken: list[int] = []
    for byte in (0x00, 0xFF, 0xA5):

        def filled(shelf: BufferPool, size: int, byte: int = byte) -> pa.Buffer:
            block = pa.allocate_buffer(size)
            np.frombuffer(block, np.uint8)[:] = byte
            taken.append(size)
            return block

        monkeypatch.setattr(BufferPool, "take", filled)
        assert reported(query.collect(feed.tables(), engine=engine).to_batches()) == expected
        assert [row for call in feed.calls(query.open(engine=engine)) for row in reported(call())] == lives
    assert taken
