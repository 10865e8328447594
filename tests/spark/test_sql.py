"""Queries in SQL on Spark: every way of dividing the work gives the answer of this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as pk
from tests.spark.agree import assert_same
from tests.spark.lakes import events, lake
from tests.spark.local import every_strategy

TABLE = events()
TEXTS = {
    "groups": "select timestamp, k, sum(v) as total, count(*) as n from events [range 60 slide 20] where v > 2 group by k having n > 1",
    "sub-query": "select timestamp, max(n) as most from (select k, count(*) as n from events [range 20] group by k) q",
    "join": "select a.timestamp, a.k, b.v from events [range 30] a join events [range 30] b on a.k = b.k and a.v < b.v",
    "latest": "select distinct L.timestamp, L.k, L.v from events [range 60] a, events [partition by k rows 1] L where a.k = L.k",
    "rows": "select v / 2 as half, k from events where k is not null union all select v, k from events where v < 3",
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("sql")
    return lake(folder / "ordered", TABLE)


def query(name: str, source: pk.Stream) -> Any:
    if name == "new rows":
        return pk.sql(
            "select timestamp, k, count(*) as n from events [range 60 slide 20] group by k", events=source
        ).istream()
    return pk.sql(TEXTS[name], events=source)


@pytest.mark.parametrize("name", [*TEXTS, "new rows"])
def test_every_strategy_gives_the_answer_of_this_process(path: str, name: str) -> None:
    expected = query(name, pk.from_arrow(TABLE, time="ts", sequence="n", name="events")).collect()
    assert expected.num_rows > 5
    made = query(name, pk.scan(path, time="ts", sequence="n", name="events"))
    for strategy, result in every_strategy(made, 3).items():
        assert_same(expected, result, f"{name} in {strategy}")


@pytest.mark.campaign  # the tasks themselves have run above, without a JVM
def test_a_query_in_sql_runs_on_spark(spark: Any, path: str) -> None:
    made = query("groups", pk.scan(path, time="ts", sequence="n", name="events"))
    assert_same(made.collect(), made.to_spark(spark).toArrow().cast(made.schema), "on Spark")
