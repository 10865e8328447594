"""Short loops whose turns may run at once are vectors; whatever is none stays a loop, and means the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from penstock.codegen.llvm import llvm_module
from penstock.codegen.native import assembly_text
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, F64, I64, U8, Kernel, Peek, Unary, Value, select
from tests.unit.codegen.compare import agree

LANES = 8
Flag = Callable[["Data", Value], Value]


class Data:
    """The buffers that flags are made of."""

    def __init__(self, k: KernelBuilder) -> None:
        self.ints, self.floats, self.bytes = k.buffer("i", I64), k.buffer("f", F64), k.buffer("b", U8)
        self.limit = k.scalar("limit")
        self.whole, self.real = k.literal(4, I64), k.literal(1.75, F64)


def flags(flag: Flag, lanes: int = LANES, turns: int = 4) -> Kernel:
    """Write the flags of so many lanes as bits, turn after turn."""
    k = KernelBuilder("flags")
    data, out = Data(k), k.buffer("out", I64)
    with k.for_(0, turns, "turn") as turn:
        bits, at = k.var("bits", 0), k.var("at", turn * lanes)
        with k.for_(0, lanes, "lane", parallel=True) as lane:
            k.set(bits, bits | (flag(data, k.var("r", at + lane)).to(I64) << lane))
        k.store(out, turn, bits)
    k.ret(0)
    return k.build()


def memory() -> dict[str, object]:
    numbers = np.arange(-20, 44)
    floats = np.where(numbers % 5 == 0, np.nan, numbers / 4)
    bits = np.random.default_rng(1).integers(0, 256, 64, np.uint8)
    return {"i": numbers, "f": floats, "b": bits, "limit": 3, "out": np.zeros(4, np.int64)}


VECTORS: dict[str, Flag] = {
    "compare": lambda d, r: d.ints[r] < d.limit,
    "floats": lambda d, r: d.floats[r] >= 1.5,
    "literals": lambda d, r: (d.ints[r] > d.whole) & (d.floats[r] + d.real < d.real.to(F64)),
    "several": lambda d, r: (d.ints[r] > 0) & ~(d.floats[r] * 2.0 < 3.0),
    "choice": lambda d, r: select(d.ints[r] > 5, d.floats[r], 1.0) > 0.5,
    "shift": lambda d, r: ((d.ints[r] >> 1) & 1).eq(0),
    "conversion": lambda d, r: d.floats[r].to(I64).eq(d.ints[r]),
    "function": lambda d, r: Unary("floor", d.floats[r]).eq(d.floats[r]),
    "row number": lambda d, r: r.eq(d.limit),
    "bits": lambda d, r: Peek(d.bytes, r, BOOL),
    "bits from the middle of a byte": lambda d, r: Peek(d.bytes, r + 3, BOOL),
    "looked up": lambda d, r: d.bytes[(d.ints[r] & 7)] > 99,
    "small division": lambda d, r: d.bytes[r].rem(3).eq(0),
    "shared": lambda d, r: d.ints[r] < d.ints[d.limit],
}
LOOPS: dict[str, Flag] = {
    "division": lambda d, r: d.ints[r].rem(7).eq(3),
    "division by a column": lambda d, r: d.ints[r].div(d.ints[r + 1]) > 1,
    "library": lambda d, r: Unary("exp", d.floats[r]) < 3.0,
    "bytes": lambda d, r: Peek(d.bytes, r, I64) < 0,
}


@pytest.mark.parametrize("flag", VECTORS.values(), ids=VECTORS)
def test_what_is_the_same_for_all_lanes_becomes_a_vector(flag: Flag) -> None:
    kernel = flags(flag)
    assert _loops(kernel) == 1
    agree(kernel, memory())


@pytest.mark.parametrize("flag", LOOPS.values(), ids=LOOPS)
def test_what_is_no_matter_of_vectors_stays_a_loop(flag: Flag) -> None:
    kernel = flags(flag)
    assert _loops(kernel) == 2
    agree(kernel, memory())


@pytest.mark.parametrize("lanes", [1, 2, 3, 5, 7, 16, 17])
@pytest.mark.parametrize("name", ["compare", "bits"])
def test_any_number_of_lanes_gives_the_same_bits(name: str, lanes: int) -> None:
    agree(flags(VECTORS[name], lanes, turns=3), memory())


def test_bits_read_no_byte_beyond_that_of_the_last_row() -> None:
    """The interpreter refuses to read outside a buffer; compiled, the two bytes of the first lane and the last are read."""
    kernel = flags(VECTORS["bits"], turns=1)
    agree(kernel, memory() | {"b": np.array([0b1010_0110], np.uint8)})


def test_the_bits_of_eight_comparisons_are_one_instruction_where_there_is_one() -> None:
    text = assembly_text(flags(VECTORS["floats"]))
    if "ymm" not in text:
        pytest.skip("a machine without AVX")
    assert "vmovmsk" in text or "kmov" in text  # AVX-512 compares into masks


def test_a_variable_of_each_lane_is_no_variable_of_all() -> None:
    """It begins anew in each turn, though it begin the same in all of them."""
    k = KernelBuilder("own")
    data, out = Data(k), k.buffer("out", I64)
    with k.for_(0, 4, parallel=True) as lane:
        mine = k.var("mine", False, BOOL)
        k.set(mine, mine | (data.ints[lane] > -18))
        k.store(out, lane, mine.to(I64))
    k.ret(0)
    agree(k.build(), memory())


def test_sums_stay_in_lanes() -> None:
    """A buffer that has a place for each lane is kept in registers from turn to turn."""
    k = KernelBuilder("sums")
    data, out = Data(k), k.buffer("out", I64)
    totals = k.local("totals", I64, 4)
    with k.for_(0, 4, parallel=True) as lane:
        k.store(totals, lane, 0)
    with k.for_(0, 8, "turn") as turn, k.for_(0, 4, parallel=True) as lane:
        k.store(totals, lane, totals[lane] + data.ints[turn * 4 + lane])
    with k.for_(0, 4, parallel=True) as lane:
        k.store(out, lane, totals[lane])
    k.ret(0)
    agree(k.build(), memory())


def test_an_element_far_from_a_place_that_a_loop_leaves_alone_is_found() -> None:
    """In loops that may be left, the place moves the pointer, and the loop moves from there."""
    k = KernelBuilder("far")
    data, out = Data(k), k.buffer("out", I64)
    base = k.var("base", data.limit * 10)
    with k.for_(0, 4, "i") as i:
        with k.if_(data.ints[i + base] > 40):
            k.ret(i)
        k.store(out, i, data.ints[(i * 2) + base])
    k.ret(-1)
    for limit in (0, 1, 3, 4):
        agree(k.build(), memory() | {"limit": limit})


@pytest.mark.parametrize("turns", [-9, -1, 0, 1, 3, 4, 5, 8, 11])
def test_an_unrolled_loop_makes_as_many_turns(turns: int) -> None:
    k = KernelBuilder("unrolled")
    data, out = Data(k), k.buffer("out", I64)
    sum = k.var("sum", 0)
    with k.for_(data.limit, data.limit + turns, "i", unrolled=True) as i:
        k.set(sum, sum * 3 + data.ints[i])
        with k.if_(data.ints[i] > 12):
            k.ret(i)
        k.store(out, i & 3, sum)
    k.ret(sum)
    for limit in (0, 7, 26, 30):
        agree(k.build(), memory() | {"limit": limit})


def _loops(kernel: Kernel) -> int:
    return llvm_module(kernel).count("phi i64")
