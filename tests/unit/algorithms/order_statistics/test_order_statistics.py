"""Ranks in a sliding frame: the k-th smallest, quantiles, the most frequent, and how many differ."""

from __future__ import annotations

import math
import random
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.algorithms.order_statistics.kernels import (
    RankCounts,
    Ranked,
    RankPeaks,
    memory_length,
    order_statistics,
)
from penstock.algorithms.order_statistics.rank_cursors import RankCursors, bits_length
from penstock.algorithms.sliding import plain
from penstock.algorithms.sliding.plain import Frames, SortedRanks
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import F64, I32, I64, U64, Kernel, Type, Value
from tests.unit.algorithms.running import run
from tests.unit.algorithms.sliding.subjects import PROGRAMS, bounds, end, fifo, frame_buffers

FRACTIONS = (0.3, 0.5, 1.0)
ANSWERS = ("count", "distinct", "mode", *(f"{side} {q}" for q in FRACTIONS for side in ("low", "high")))
FIXED = 3  # answers that are no quantiles
RANKS = (1, 2, 16, 17, 300, 5000)


@cache
def kernel_of(type: Type, shared: bool) -> Kernel:
    """Ask everything of every frame; rows of one rank have places of their own, or share one."""
    k = KernelBuilder("order")
    frames = frame_buffers(k)
    many, distinct = k.scalar("many"), k.scalar("distinct")
    ranks, out, parts = k.buffer("ranks", type), k.buffer("out", I64), k.buffer("parts", F64)
    places = k.buffer("places", type)
    cursors = RankCursors(
        k,
        distinct if shared else k.scalar("rows"),
        k.buffer("bits", U64),
        k.buffer("tallies", I32) if shared else None,
    )
    quantiles = [cursors.cursor(fraction) for fraction in FRACTIONS]
    peaks = RankPeaks(k, distinct, k.buffer("peaks", I32))
    counts = RankCounts(k, distinct, k.buffer("counts", I32))

    def emit(f: Value) -> None:
        found: list[Value] = [cursors.count, counts.distinct, peaks.mode()]
        for place, quantile in enumerate(quantiles):
            lower, upper, part = cursors.neighbours(quantile)
            k.store(parts, f * len(FRACTIONS) + place, part)
            found += [lower, upper]
        for place, value in enumerate(found):
            k.store(out, f * len(ANSWERS) + place, value)

    columns = [Ranked(ranks if shared else places, (cursors,)), Ranked(ranks, (peaks, counts))]
    order_statistics(k, frames, (k.var("begin", 0), many), columns, emit)
    return k.build()


def answers(
    type: Type, ranks: list[int], distinct: int, frames: Frames, shared: bool
) -> tuple[list[Any], list[Any]]:
    """Give the answers of every frame, and where quantiles lie between their ranks."""
    memory = bounds(frames) | {"many": len(frames), "distinct": distinct}
    machine = np.int32 if type == I32 else np.int64
    places, in_order = placed(ranks)
    memory |= {"ranks": np.array([*ranks, -1], machine), "places": np.array([*places, -1], machine)}
    memory |= {"rows": len(in_order)}
    memory |= {"out": np.zeros((len(frames) + 1) * len(ANSWERS), np.int64)}
    memory |= {"parts": np.zeros((len(frames) + 1) * len(FRACTIONS))}
    memory |= {name: np.zeros(memory_length(distinct), np.int32) for name in ("peaks", "counts", "tallies")}
    memory |= {"bits": np.zeros(bits_length(distinct if shared else len(in_order)), np.uint64)}
    kernel = kernel_of(type, shared)
    memory = {name: memory[name] for name in (parameter.name for parameter in kernel.params)}
    after = run(kernel, memory)[1]
    assert not any(after[name].any() for name in ("bits", "peaks", "counts", "tallies") if name in after)
    shape = len(frames) + 1, -1
    out = after["out"].reshape(shape).tolist()[:-1]
    if not shared:  # quantiles are places: say the ranks there
        for value in out:
            value[FIXED:] = [in_order[place] if in_order else -1 for place in value[FIXED:]]
    return out, after["parts"].reshape(shape).tolist()[:-1]


def placed(ranks: list[int]) -> tuple[list[int], list[int]]:
    """The place of each row in the order of ranks, -1 where it has none, and the ranks in that order."""
    order = sorted((row for row, rank in enumerate(ranks) if rank >= 0), key=lambda row: ranks[row])
    places = [-1] * len(ranks)
    for place, row in enumerate(order):
        places[row] = place
    return places, [ranks[row] for row in order]


def expected(order: SortedRanks) -> list[int]:
    """Answer as the kernel does, except for quantiles of nothing."""
    found = [len(order.ranks), order.distinct, order.mode]
    for fraction in FRACTIONS if order.ranks else ():
        place = fraction * (len(order.ranks) - 1)
        found += [order.ranks[math.floor(place)], order.ranks[math.ceil(place)]]
    return found


def check(type: Type, ranks: list[int], distinct: int, frames: Frames, shared: bool) -> None:
    found, parts = answers(type, ranks, distinct, frames, shared)
    for f, order in enumerate(plain.order_statistics(ranks, frames)):
        wanted = expected(order)
        assert found[f][: len(wanted)] == wanted, (f, frames[f])
        for part, fraction in zip(parts[f], FRACTIONS, strict=True):
            place = fraction * (len(order.ranks) - 1)
            assert not order.ranks or part == place - math.floor(place)


def drawn(count: int, distinct: int, seed: int) -> list[int]:
    """Draw ranks, some often, some not there at all."""
    dice = random.Random(seed)
    often = [dice.randrange(distinct) for _ in range(3)]
    return [dice.choice([-1, *often, *(dice.randrange(distinct) for _ in range(4))]) for _ in range(count)]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("distinct", RANKS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_known_program_gives_the_answers_of_a_sorted_list(
    program: str, distinct: int, shared: bool
) -> None:
    frames = PROGRAMS[program]
    check(I32, drawn(end(frames), distinct, seed=2), distinct, frames, shared)


@pytest.mark.parametrize("type", [I32, I64], ids=str)
@given(frames=fifo(), distinct=st.sampled_from(RANKS), seed=st.integers(0, 1000), shared=st.booleans())
def test_a_random_program_gives_the_answers_of_a_sorted_list(
    type: Type, frames: Frames, distinct: int, seed: int, shared: bool
) -> None:
    check(type, drawn(end(frames), distinct, seed), distinct, frames, shared)


@pytest.mark.parametrize("distinct", [1, 15, 16, 17, 255, 256, 257, 4097, 100_000])
def test_memory_is_little_more_than_a_count_for_each_rank(distinct: int) -> None:
    assert distinct <= memory_length(distinct) <= distinct * 17 / 15 + 64
