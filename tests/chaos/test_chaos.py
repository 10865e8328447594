"""A slice of the chaos campaign (`make chaos`): few queries, compiled once, under many decisions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.campaign import check, check_bits, quick_code

SHAPES = 6
SLICES = 7
QUERIES = 100  # in a slice


@pytest.fixture(autouse=True, scope="module")
def compiled_quickly() -> Iterator[None]:
    with quick_code():
        yield


@pytest.mark.parametrize("part", range(SLICES))
def test_random_decisions_at_every_task_change_no_answer(part: int) -> None:
    decided = [check(seed, seed % SHAPES) for seed in range(part * QUERIES, (part + 1) * QUERIES)]
    assert sum(outcome.asked for outcome in decided) > QUERIES / 4
    assert {"dense", "hash"} <= set().union(*(outcome.tables for outcome in decided))


def test_floats_have_the_same_bits_whenever_variants_are_swapped() -> None:
    assert sum(check_bits(seed).asked for seed in range(10)) > 10
