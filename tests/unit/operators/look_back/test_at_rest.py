"""Look-backs over data at rest keep states per key or sort rows, by the first rows; results are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.operators.look_back.at_rest import FEWEST_ROWS, SAMPLED_ROWS, distinct_keys
from penstock.physical.choose_window import HELD_ROWS, HELD_STATES, held_for
from penstock.physical.show import show

STREAM = pk.stream("rows", {"t": "int64", "k": "int64", "v": "int64"}, time="t")
QUERY = STREAM.rolling(50, by="k").agg(total=pk.sum("v"), n=pk.count())
MANY = 2 * FEWEST_ROWS


def rows(keys: int, many: int = MANY) -> pa.Table:
    rng = np.random.default_rng(keys)
    return pa.table(
        {"t": np.arange(many) // 3, "k": rng.integers(0, keys, many), "v": rng.integers(-9, 9, many)}
    )


def collected(query: pk.Stream, data: pa.Table, **engine: Any) -> tuple[pa.Table, list[str]]:
    metrics = pk.Metrics()
    found = query.collect(data, engine=pk.Engine(threads=1, **engine), metrics=metrics)
    return found, [change.after for change in metrics.adaptations if change.what == "held"]


@pytest.mark.parametrize(
    ("total", "distinct", "expected"),
    [
        (1_000_000, 1, HELD_ROWS),  # one key
        (1_000_000, 2, HELD_STATES),
        (1_000_000, 1_000, HELD_STATES),
        (1_000_000, 3_900, HELD_ROWS),
        (100_000, 700, HELD_STATES),
        (100_000, 900, HELD_ROWS),
        (100_000_000, 4_000, HELD_STATES),
        (100_000_000, SAMPLED_ROWS, HELD_ROWS),
    ],
)
def test_what_is_held_follows_the_rows_of_each_key(total: int, distinct: int, expected: str) -> None:
    held, why = held_for(total, SAMPLED_ROWS, distinct)
    assert held == expected
    assert why


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (rows(1), [HELD_ROWS]),
        (rows(20), []),
        (rows(20_000), [HELD_ROWS]),
        (rows(20_000, FEWEST_ROWS - 1), []),
    ],
    ids=["one key", "few keys", "many keys", "few rows"],
)
def test_the_first_rows_decide_and_results_stay(data: pa.Table, expected: list[str]) -> None:
    found, held = collected(QUERY, data)
    assert held == expected
    for other in (HELD_STATES, HELD_ROWS):
        assert collected(QUERY, data, assume={"held": other}) == (found, [])
    assert collected(QUERY, data, adaptive=False) == (found, [])


def test_without_keys_rows_are_in_order_already() -> None:
    query = STREAM.rolling(50).agg(total=pk.sum("v"))
    data = rows(5)
    assert collected(query, data)[0] == collected(query, data, assume={"held": HELD_ROWS})[0]


def test_a_plan_says_what_may_happen_and_a_run_what_has() -> None:
    assert "keys have 128 rows or more each" in show(QUERY.compiled().physical("bounded"))
    session = QUERY.compiled().open(pk.Engine(threads=1))
    session.push("rows", *rows(20_000).to_batches())
    shown = QUERY.compiled().explain_run(session)
    assert "held states per key → rows" in shown
    assert "fewer than 128 rows for each" in shown
    session.finish()


def test_keys_are_counted_in_a_sample() -> None:
    batches = rows(300).to_batches(max_chunksize=1_000)
    assert distinct_keys(batches, ("k",)) == 300
    assert distinct_keys(batches, ()) == 1
    structs = pa.record_batch({"s": [{"a": 1}, {"a": 2}]})
    assert distinct_keys([structs], ("s",)) is None
