"""By what a query can be divided: found, or refused with a reason."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as pk
from penstock.analysis.partition_keys import Undivided, key_places, partition_keys
from penstock.compile import compile_plan
from penstock.expr.show import show

EVENTS = pk.stream("events", {"t": "int64", "a": "int64", "b": "string", "v": "int64"}, time="t")
OTHERS = pk.stream("others", {"t": "int64", "a": "int64", "b": "string", "v": "int64"}, time="t")


def found(query: Any) -> Any:
    keys = partition_keys(compile_plan(query.plan).program)
    if isinstance(keys, Undivided):
        return keys.reason
    return {name: [show(expr) for expr in exprs] for name, exprs in keys.items()}


DIVIDED = {
    "one window": (EVENTS.window(10, by="a").agg(n=pk.count()), {"in0": ["a"]}),
    "two keys": (EVENTS.window(10, by=["a", "b"]).agg(n=pk.count()), {"in0": ["a", "b"]}),
    "what both have": (
        EVENTS.window(10, by=["a", "b"]).agg(n=pk.count()).rolling(20, by="b").agg(m=pk.max("n")),
        {"in0": ["b"]},
    ),
    "a renamed key": (
        EVENTS.rename({"a": "z"}).window(pk.session(3), by="z").agg(n=pk.count()),
        {"in0": ["a"]},
    ),
    "a computed key": (
        EVENTS.with_columns(g=pk.col("v") % 7).rolling(5, by="g").agg(n=pk.count()),
        {"in0": ["v % 7"]},
    ),
    "a signal": (EVENTS.signal("v", by="a").rolling(5).sum().to_stream(), {"in0": ["a"]}),
    "signals of two streams": (
        (EVENTS.signal("v", by="a") + OTHERS.signal("v", by="a")).to_stream(),
        {"in0": ["a"], "in1": ["a"]},
    ),
    "a join": (EVENTS.join(OTHERS, on="a", within=(-5, 5)), {"in0": ["a"], "in1": ["a"]}),
    "a join of other names": (
        EVENTS.join(OTHERS.rename({"a": "z"}), left_on="a", right_on="z", window=pk.tumbling(10)),
        {"in0": ["a"], "in1": ["a"]},
    ),
    "distinct": (EVENTS.distinct(["a", "b"]), {"in0": ["a", "b"]}),
    "a union": (
        EVENTS.union(OTHERS).window(10, by="a").agg(n=pk.count()),
        {"in0": ["a"], "in1": ["a"]},
    ),
}


@pytest.mark.parametrize("name", DIVIDED)
def test_a_query_is_divided_by_what_all_its_windows_have_in_common(name: str) -> None:
    query, expected = DIVIDED[name]
    assert found(query) == expected


UNDIVIDED = {
    "has no keys": EVENTS.window(10).agg(n=pk.count()),
    "one window for all keys": EVENTS.window(pk.unbounded(), by="a").agg(m=pk.median("v")),
    "compares all rows": EVENTS.window(10, by="a").agg(n=pk.count()).top_k(1, by="n"),
    "results of windows": EVENTS.window(10, by="a").agg(n=pk.count()).rolling(100, by="n").agg(m=pk.count()),
    "no key is common": EVENTS.distinct("a").rolling(9, by="b").agg(m=pk.count()),
    "there are no windows": EVENTS.filter(pk.col("v") > 1),
    "a signal without keys": EVENTS.signal("v").rolling(5).sum().to_stream(),
    "no keys that divide both sides": EVENTS.join(
        OTHERS, window=pk.tumbling(10), where=pk.left("v") > pk.right("v")
    ),
}


@pytest.mark.parametrize("reason", UNDIVIDED)
def test_what_cannot_be_divided_says_why(reason: str) -> None:
    assert reason in found(UNDIVIDED[reason])


def test_a_key_that_differs_between_the_ways_of_a_union_is_none() -> None:
    moved = EVENTS.with_columns(a=pk.col("a") + 1)
    assert isinstance(found(EVENTS.union(moved).window(10, by="a").agg(n=pk.count())), str)


def test_the_keys_of_a_window_that_divide_what_is_behind_it() -> None:
    query = EVENTS.window(10, by=["a", "b"]).agg(n=pk.count()).rolling(20, by="b").agg(m=pk.max("n"))
    program = compile_plan(query.plan).program
    first = next(this.name for this in program.objects if this.name.startswith("w"))
    assert key_places(program, first) == (1,)
    alone = compile_plan(
        EVENTS.window(10, by=["a"]).agg(n=pk.count()).window(50).agg(m=pk.max("n")).plan
    ).program
    assert key_places(alone, "w1") == ()
