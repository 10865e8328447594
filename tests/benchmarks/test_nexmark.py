"""Nexmark on a slice of events: all forms of all queries give DuckDB's answers."""

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from benchmarks.answers import agree, normalise
from benchmarks.nexmark.generator import FIRST_ID, Nexmark, generate
from benchmarks.nexmark.queries import QUERIES

SPEC = Nexmark(events=60_000, rate=1_000)  # a minute of events
EVENTS = generate(SPEC)


def expected_of(name: str) -> Any:
    query = QUERIES[name]
    with duckdb.connect() as connection:
        for stream in query.streams:
            connection.register(stream, EVENTS[stream])
        return normalise(query.answer(connection.sql(query.oracle).to_arrow_table()))


def data_of(name: str) -> dict[str, Any]:
    return {stream: EVENTS[stream] for stream in QUERIES[name].streams}


@pytest.mark.parametrize("form", ["python", "sql"])
@pytest.mark.parametrize("name", QUERIES)
def test_every_form_gives_the_answer_of_duckdb_at_rest_and_live(name, form):
    query, expected = QUERIES[name].declared(form), expected_of(name)
    assert expected.num_rows > 5
    assert agree(normalise(QUERIES[name].answer(query.collect(**data_of(name)))), expected)
    pieces = {stream: table.to_batches(max_chunksize=3_000) for stream, table in data_of(name).items()}
    with query.open() as live:
        made = []
        for place in range(max(map(len, pieces.values()))):
            made += live.push(**{s: parts[place] for s, parts in pieces.items() if place < len(parts)})
        made += live.finish()
    assert agree(normalise(QUERIES[name].answer(pa.Table.from_batches(made, query.schema))), expected)


def test_events_have_the_proportions_and_the_skew_of_the_benchmark():
    assert (EVENTS["person"].num_rows, EVENTS["auction"].num_rows, EVENTS["bid"].num_rows) == (
        1_200,
        3_600,
        55_200,
    )
    auctions, bidders = (EVENTS["bid"][name].to_numpy() - FIRST_ID for name in ("auction", "bidder"))
    assert abs((auctions % 100 == 0).mean() - 0.5) < 0.02
    assert abs((bidders % 100 == 1).mean() - 0.75) < 0.02
    assert abs((EVENTS["auction"]["seller"].to_numpy() % 100 == 0).mean() - 0.75) < 0.03
    assert set(EVENTS["auction"]["category"].to_pylist()) == set(range(10, 15))
    assert np.unique(EVENTS["auction"]["id"].to_numpy()).size == EVENTS["auction"].num_rows
    assert EVENTS["bid"]["price"].to_numpy().min() >= 100
    assert EVENTS["bid"]["price"].to_numpy().max() <= 100_000_000


def test_the_same_seed_gives_the_same_events():
    again = generate(SPEC)
    assert all(again[name].equals(table) for name, table in EVENTS.items())
    assert not generate(Nexmark(SPEC.events, SPEC.rate, seed=2))["bid"].equals(EVENTS["bid"])
