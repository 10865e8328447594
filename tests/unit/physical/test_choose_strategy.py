"""Which strategy a query allows, which it gets, and what is said about it."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as pk
from penstock.compile import compile_plan
from penstock.errors import EngineError
from penstock.physical.choose_strategy import DataFacts, choose, described, pane_obstacle, possible

EVENTS = pk.stream("events", {"t": "int64", "a": "int64", "v": "int64"}, time="t")
WINDOWS = EVENTS.window(10, by="a").agg(n=pk.count())
ROLLING = EVENTS.rolling(10, by="a").agg(n=pk.sum("v"))
FIRSTS = EVENTS.window(10, by="a").agg(n=pk.first("v"))
ALONE = EVENTS.window(pk.session(10)).agg(n=pk.count())

ORDERED, UNORDERED = (
    DataFacts(files=True, tasks=4, read_again=1.05),
    DataFacts(files=True, tasks=4, read_again=3.9),
)
UNKNOWN, FRAME = DataFacts(files=True, tasks=4), DataFacts(files=False, tasks=4)


def chosen(query: Any, facts: DataFacts, force: str | None = None) -> tuple[str, str]:
    choice = choose(possible(compile_plan(query.plan).program), facts, force)
    return choice.strategy, choice.reason


@pytest.mark.parametrize(
    ("query", "facts", "strategy", "reason"),
    [
        (WINDOWS, ORDERED, "slices", "1.05 times the rows"),
        (WINDOWS, UNORDERED, "fragments", "3.9 times the rows"),
        (WINDOWS, UNKNOWN, "fragments", "have no statistics"),
        (WINDOWS, DataFacts(True, 4, 1.0, uneven=4.0), "fragments", "one task would read 4 times its share"),
        (WINDOWS, FRAME, "fragments", "DataFrame"),
        (WINDOWS, DataFacts(files=True, tasks=1, read_again=1.0), "one", "one task only"),
        (ROLLING, ORDERED, "slices", "10 ticks before"),
        (ROLLING, UNORDERED, "keys", "needs the rows"),
        (FIRSTS, UNORDERED, "fragments", "states of panes"),
        (FIRSTS, FRAME, "keys", "ordered by their values"),
        (ALONE, ORDERED, "slices", "as far as sessions go on"),
        (ALONE, UNKNOWN, "one", "no keys: ~w1 has no keys"),
        (EVENTS.filter(pk.col("v") > 0), UNKNOWN, "slices", "rows are independent"),
        (EVENTS.filter(pk.col("v") > 0), FRAME, "slices", "rows are independent"),
    ],
)
def test_the_strategy_and_its_reason(query: Any, facts: DataFacts, strategy: str, reason: str) -> None:
    found = chosen(query, facts)
    assert found[0] == strategy
    assert reason in found[1]


def test_a_strategy_can_be_forced_where_it_is_possible() -> None:
    assert chosen(WINDOWS, UNORDERED, "slices") == ("slices", "requested")
    assert chosen(WINDOWS, ORDERED, "one") == ("one", "requested")
    with pytest.raises(EngineError, match="cannot run in fragments: ~b1 needs the rows"):
        chosen(ROLLING, ORDERED, "fragments")
    with pytest.raises(EngineError, match="no strategy 'best'"):
        chosen(WINDOWS, ORDERED, "best")


def test_rows_that_reach_the_result_past_a_window_are_not_folded() -> None:
    both = EVENTS.window(10, by="a").with_columns(n=pk.count())
    assert "needs the rows" in str(possible(compile_plan(both.plan).program).fragments)


def test_on_streams_panes_are_sent_where_rows_need_not_be() -> None:
    found = described(possible(compile_plan(WINDOWS.plan).program))
    assert found[-1].startswith("on a stream without end: what panes hold is sent")
    assert pane_obstacle(possible(compile_plan(ALONE.plan).program)) == "~w1 needs the rows themselves"


def test_halos_of_times_with_a_unit_are_told_in_units() -> None:
    events = pk.stream("e", {"ts": "timestamp[us]", "v": "int64"}, time="ts")
    counts = events.window("10s").agg(n=pk.count())
    assert "results reaching less than 10s before their time" in str(counts.explain())
    joined = events.join(events.rename({"v": "w"}), within=("-5s", "1s"), how="left")
    assert "reaching 5s before and 5s after their time" in str(joined.explain())


def test_signals_tell_their_reach_and_memory_in_units() -> None:
    price = pk.stream("e", {"ts": "timestamp[us]", "v": "float64"}, time="ts").signal("v")
    text = str(price.rolling("10s").mean().explain())
    assert "less than 10s before it, so time can be cut anywhere" in text
    assert "ticks" not in text
    assert "memory: the last sample of each key" in str((price * 2).explain())


def test_explain_names_what_is_possible() -> None:
    text = str(WINDOWS.explain())
    assert "on Spark\n  slices: over ordered files, results reaching 9 ticks before" in text
    top = EVENTS.window(pk.unbounded()).agg(n=pk.median("v"))
    assert described(possible(compile_plan(top.plan).program))[-2].startswith("one: ")
