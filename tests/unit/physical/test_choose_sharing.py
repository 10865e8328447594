"""How workers share a table of keys, as a table of cases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.physical.nodes import Sharing
from penstock.physical.specialise import KeyUse, choose_sharing, costs_of
from penstock.runtime.adapt.controller import Machine

TWO = Machine(2, 1 << 20, 32 << 20)
MANY_KEYS = KeyUse(columns=1_000_000, cell_bytes=16, rows=8_000_000, states=2)

CASES: dict[str, tuple[KeyUse, Machine, Sharing]] = {
    "few keys": (KeyUse(1_000, 16, 8_000_000, states=2), TWO, "private"),
    "many keys": (MANY_KEYS, TWO, "partitioned"),
    "ten times as many": (replace(MANY_KEYS, columns=10_000_000), TWO, "partitioned"),
    "most rows of one key": (replace(MANY_KEYS, skew=0.6), TWO, "private"),
    "a filter that every worker would test": (
        replace(MANY_KEYS, columns=100_000, conjuncts=1),
        TWO,
        "private",
    ),
    "many keys on one core": (MANY_KEYS, Machine(1), "private"),
    "a few rows of each key on many cores": (
        replace(MANY_KEYS, columns=10_000_000, rows=10_000_000),
        Machine(64, 1 << 20, 64 << 20),
        "shared",
    ),
    "floats cannot be shared": (
        replace(MANY_KEYS, columns=10_000_000, rows=10_000_000, states=0),
        Machine(64, 1 << 20, 64 << 20),
        "partitioned",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_choices(name: str) -> None:
    use, machine, expected = CASES[name]
    taken, why = choose_sharing(use, machine)
    assert taken == expected
    assert f"{use.columns:,} keys" in why


def test_a_choice_stands_until_another_is_clearly_cheaper() -> None:
    near = min(
        (replace(MANY_KEYS, skew=skew / 100) for skew in range(100)),
        key=lambda use: abs(costs_of(use, TWO)["private"] - costs_of(use, TWO)["partitioned"]),
    )
    for now in ("private", "partitioned"):
        assert choose_sharing(near, TWO, now)[0] == now
