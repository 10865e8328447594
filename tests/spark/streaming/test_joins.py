"""Every kind of join in micro-batches: the batch answer, whichever stream comes first and however it is cut."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from tests.oracle.effort import effort
from tests.spark.agree import assert_same
from tests.spark.lakes import START, events, join_queries
from tests.spark.streaming.local import LocalStream

LEFT, RIGHT = events(120, seed=5), events(80, seed=6)
# One row of each stream, long after all others and unlike each other, closes what is open.
END = datetime.timedelta(days=3)


def last(table: pa.Table, key: int) -> pa.Table:
    time = pa.array([START + END // datetime.timedelta(microseconds=1)]).cast(table.schema.field("ts").type)
    row = table.slice(0, 1).set_column(0, "ts", time)
    place = row.column_names.index("k")
    return row.set_column(place, row.schema.field("k"), pa.array([key], row.schema.field("k").type))


def asked(a: pk.Stream, b: pk.Stream) -> dict[str, pk.Stream]:
    few = b.filter(pk.col("v") > 300)
    made = {name: query for name, query in join_queries(a, b).items() if "table" not in name}
    made |= {
        f"eager {algorithm}": a.join(few, on="k", window="2s", algorithm=algorithm, how="left").select(
            "k", "n", "n_right"
        )
        for algorithm in ("shj_jm", "pmj_jb")
    }
    made |= {
        "sliding": a.join(few, on="k", window=pk.sliding("2s", "1s")).select("k", "n", "n_right"),
        "session": a.join(few, on="k", window=pk.session("100ms")).select("k", "n", "n_right"),
        "anti": a.join(few, on="k", window="2s", how="anti").select("k", "n"),
        "nearest": a.join_asof(few, by="k", tolerance="2s", direction="nearest").select("k", "n", "v_right"),
        "fused": a.join(few, on="k", window="2s").window(by="k").agg(c=pk.count(), t=pk.sum("v_right")),
    }
    return made


def streams() -> tuple[pk.Stream, pk.Stream]:
    a, b = (pk.stream(name, LEFT.schema, time="ts", sequence="n", lateness="1s") for name in "ab")
    return a, b


# A slice of them each time; the others in `make spark`.
SLICE = ("in windows", "as of", "eager pmj_jb", "fused")
NAMES = [
    pytest.param(name, marks=() if name in SLICE else pytest.mark.campaign) for name in asked(*streams())
]


def cut(table: pa.Table, edges: list[int]) -> list[pa.Table]:
    bounds = [0, *sorted(min(edge, table.num_rows) for edge in edges), table.num_rows]
    return [table.slice(lo, hi - lo) for lo, hi in itertools.pairwise(bounds)]


@pytest.mark.parametrize("name", NAMES)
@effort(2)
@given(data=st.data())
def test_any_interleaving_of_micro_batches_gives_the_batch_answer(name: str, data: Any) -> None:
    query = asked(*streams())[name]
    edges = st.lists(st.integers(0, 120), max_size=3)
    waiting = {
        "a": [*cut(LEFT, data.draw(edges)), last(LEFT, 900)],
        "b": [*cut(RIGHT, data.draw(edges)), last(RIGHT, 901)],
    }
    running, made = LocalStream(query, data.draw(st.integers(1, 3))), []
    while any(waiting.values()):
        stream = data.draw(st.sampled_from([value for value, parts in waiting.items() if parts]))
        made += running.batch([waiting[stream].pop(0)], stream)
    for stream, table, key in (("a", LEFT, 900), ("b", RIGHT, 901)):
        made += running.batch([last(table, key)], stream)
    found = pa.Table.from_batches(made, query.schema)
    assert_same(query.collect(a=LEFT, b=RIGHT), found, name)
    assert running.metrics.late == 0
