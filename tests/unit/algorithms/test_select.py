"""The rows that pass a filter, listed without branches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.algorithms.selection import Selection
from penstock.loop.abi import LANES, positions_table
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I32, I64, U8, Buffer, Kernel, Value, Var
from tests.unit.algorithms.running import run

ROOM = 2048 + LANES


@dataclass(frozen=True)
class Sums:
    """Adds up the rows it is shown: those of each lane, and behind them those that come by themselves."""

    k: KernelBuilder
    seen: Buffer

    def row(self, r: Value) -> None:
        self.k.store(self.seen, LANES, self.seen[LANES] + r)

    def lane(self, r: Value, lane: Value) -> None:
        self.k.store(self.seen, lane, self.seen[lane] + r)


def listing(halves: bool) -> Kernel:
    """List the rows whose flag is set, of all rows or of each half by itself, and add up the rows looked at meanwhile."""
    k = KernelBuilder("selection")
    start, n = k.scalar("start"), k.scalar("n")
    flags, positions = k.buffer("flags", U8), k.buffer("positions", U8)
    out, seen = k.buffer("out", I32), k.buffer("seen", I64)
    chosen = k.local("chosen", I32, 2 * ROOM)

    def passes(r: Value) -> Value:
        return flags[r].ne(0)

    selection = Selection(k, start, passes, chosen, positions)
    counts: tuple[Var, ...] = selection.halves(n, Sums(k, seen), ROOM) if halves else (selection.rows(n),)
    count = k.var("listed", 0)
    for place, variable in enumerate(counts):
        with k.for_(0, variable, "j") as j:
            k.store(out, count + j, chosen[j + place * ROOM])
        k.set(count, count + variable)
    k.ret(count)
    return k.build()


KERNELS = {halves: listing(halves) for halves in (False, True)}


def check(flags: list[int], start: int = 0) -> None:
    for halves, kernel in KERNELS.items():
        memory = {
            "start": start,
            "n": len(flags),
            "flags": np.array([*flags, 0], np.uint8),
            "positions": positions_table(),
            "out": np.zeros(len(flags) + 1, np.int32),
            "seen": np.zeros(LANES + 1, np.int64),
        }
        count, after = run(kernel, memory)
        assert after["out"][:count].tolist() == [row for row, flag in enumerate(flags, start) if flag]
        assert after["seen"].sum() == (sum(range(len(flags))) if halves else 0)


def test_every_mask_of_eight_rows_gives_its_rows() -> None:
    check([(mask >> bit) & 1 for mask in range(256) for bit in range(8)])


@pytest.mark.parametrize("length", [*range(18), 31, 32, 33, 127, 128, 129, 255, 256, 257, 511, 512, 513])
@pytest.mark.parametrize("pattern", [[0], [1], [1, 0], [0, 0, 1]], ids=str)
def test_lengths_around_multiples_of_eight_and_of_turns_lose_no_row(length: int, pattern: list[int]) -> None:
    check((pattern * length)[:length])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 1), max_size=70), st.integers(0, 1 << 30))
def test_any_flags_give_their_rows_from_any_start(flags: list[int], start: int) -> None:
    check(flags, start)


def test_the_table_of_positions_lists_the_bits_of_each_mask() -> None:
    table = positions_table().reshape(256, LANES)
    for mask, row in enumerate(table.tolist()):
        bits = [bit for bit in range(8) if mask >> bit & 1]
        assert row[: len(bits)] == bits
