"""Decisions as tables: from a profile, a state and a machine to the choices that differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import penstock as pk
from penstock.physical.nodes import Node, PaneAggregate
from penstock.physical.profile import KEY_BUCKETS, Profile, ProfileLayout, distinct
from penstock.physical.specialise import PaneProfile, StateProfile, decide, differences, specialise
from penstock.runtime.adapt.controller import Machine

EVENTS = pk.stream("events", {"t": "int64", "k": "int64", "v": "int64"}, time="t")
PLAN = EVENTS.window(10, by="k").agg(total=pk.sum("v")).compiled().physical("unbounded")
(GENERIC,) = (node for node in PLAN.nodes if isinstance(node.op, PaneAggregate))
HASH = PaneProfile("hash", frozenset(), False)
SEEN = Profile(rows=1_000, keys=((0, 999),), distinct=1_000)
TOGETHER = StateProfile(rows=10_000, keys=1_000, ranges=((0, 999),))


def variant(**changes: Any) -> Node:
    return specialise(GENERIC, replace(HASH, **changes))


CASES: dict[str, Any] = {
    "keys in a small range": (variant(), TOGETHER, {"key table": ("hash", "dense")}),
    "keys too far apart": (variant(), replace(TOGETHER, ranges=((0, 1 << 60),)), {}),
    "a range that is mostly empty": (variant(), replace(TOGETHER, ranges=((0, 60_000),)), {}),
    "keys that are computed": (variant(), replace(TOGETHER, ranges=None), {}),
    "dense already": (variant(key_table="dense"), TOGETHER, {}),
    "pairs that fill a grid": (variant(key_table="sparse"), TOGETHER, {"key table": ("sparse", "dense")}),
    "pairs that fill none": (variant(key_table="sparse"), replace(TOGETHER, keys=3), {}),
    "narrow again": (
        variant(wide=True),
        replace(TOGETHER, ranges=None, narrow=True),
        {"sums": ("128 bits", "64 bits")},
    ),
    "long runs of a key": (
        variant(),
        replace(TOGETHER, ranges=None),
        {"addition": ("row by row", "run by run")},
        replace(SEEN, histogram=(1_000,), runs=250),
    ),
    "runs as long as an array pays for": (
        variant(key_table="dense"),
        TOGETHER,
        {"addition": ("row by row", "run by run")},
        replace(SEEN, histogram=(1_000,), runs=50),
    ),
    "runs too short for an array": (
        variant(key_table="dense"),
        TOGETHER,
        {},
        replace(SEEN, histogram=(1_000,), runs=100),
    ),
    "runs between gain and loss": (
        variant(runs=True),
        replace(TOGETHER, ranges=None),
        {},
        replace(SEEN, histogram=(1_000,), runs=400),
    ),
    "no runs any more": (
        variant(runs=True),
        replace(TOGETHER, ranges=None),
        {"addition": ("run by run", "row by row")},
        replace(SEEN, histogram=(1_000,), runs=900),
    ),
    "still wide": (variant(wide=True), replace(TOGETHER, ranges=None), {}),
    "no nulls any more": (
        variant(nullable=frozenset({"k", "v"})),
        replace(TOGETHER, ranges=None, null_free=frozenset({"v"})),
        {"null flags": ("k, v", "k")},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_decisions(name: str) -> None:
    node, state, expected, *seen = CASES[name]
    profile = seen[0] if seen else SEEN
    chosen = decide(profile, state, Machine(), node)
    found = differences(node, chosen)
    assert {difference.what: (difference.before, difference.after) for difference in found} == expected
    assert all(difference.why for difference in found)
    assert (chosen is node) == (not expected)
    assert (
        decide(profile, state, Machine(), chosen) is chosen
    )  # a decision stands until something else is seen


def test_a_reason_names_what_was_seen() -> None:
    (found,) = differences(variant(), decide(SEEN, TOGETHER, Machine(), variant()))
    assert found.why == "1,000 keys lie in a range of 1,000"


def test_distinct_values_are_estimated_within_a_fifth() -> None:
    for many in (1, 10, 1_000, 100_000):
        registers = [0] * KEY_BUCKETS
        for number in range(many):
            mixed = (number * 0x9E3779B97F4A7C15 & (1 << 64) - 1) ^ (number >> 3)
            mixed = mixed * 0xBF58476D1CE4E5B9 & (1 << 64) - 1
            mixed ^= mixed >> 32
            rest = (mixed << 8 & (1 << 64) - 1) | 128
            registers[mixed >> 56] = max(registers[mixed >> 56], 65 - rest.bit_length())
        assert distinct(registers) == pytest.approx(many, rel=0.2)


def test_an_untouched_layout_reads_as_an_empty_profile() -> None:
    layout = ProfileLayout(2, 1)
    profile = layout.read(layout.start())
    assert (profile.rows, profile.keys, profile.distinct, profile.hitters, profile.skew) == (
        0,
        (),
        0,
        (),
        0.0,
    )
    assert len(profile.conjuncts) == 2 and len(profile.histogram) == KEY_BUCKETS
