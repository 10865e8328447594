"""Queries of every kind: in this process, in every strategy, on Spark over files and DataFrames, one answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from penstock.physical.choose_strategy import STRATEGIES
from penstock.spark.planning import planned
from tests.spark.agree import assert_same
from tests.spark.lakes import NAMES, events, lake, queries
from tests.spark.local import every_strategy

TABLE = events()
# A job takes seconds: one query in six runs by default, all of them in `make spark`.
SOME = [(), *5 * [pytest.mark.campaign]]


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp("lakes")
    return {
        "ordered": lake(folder / "ordered", TABLE),
        "shuffled": lake(folder / "shuffled", TABLE, files=3, shuffled=True),
    }


def scanned(path: str, name: str) -> Any:
    return queries(pk.scan(path, time="ts", sequence="n", name="events"))[name]


@pytest.fixture(scope="module")
def answers() -> dict[str, pa.Table]:
    return {}


def answer(answers: dict[str, pa.Table], name: str) -> pa.Table:
    if name not in answers:
        answers[name] = queries(pk.from_arrow(TABLE, time="ts", sequence="n", name="events"))[name].collect()
    return answers[name]


@pytest.mark.parametrize(("kind", "tasks"), [("ordered", 3), ("shuffled", 5)])
@pytest.mark.parametrize("name", NAMES)
def test_every_strategy_gives_the_answer_of_this_process(
    lakes: dict[str, str], answers: dict[str, pa.Table], name: str, kind: str, tasks: int
) -> None:
    for strategy, result in every_strategy(scanned(lakes[kind], name), tasks).items():
        assert_same(answer(answers, name), result, f"{name} in {strategy}")


@pytest.mark.parametrize(
    "name", [NAMES[0], *(pytest.param(n, marks=SOME[i % 6]) for i, n in enumerate(NAMES[1:]))]
)
def test_spark_gives_the_answer_of_this_process(
    spark: Any, lakes: dict[str, str], answers: dict[str, pa.Table], name: str
) -> None:
    """Over ordered files as chosen, over the others in some strategy, each being taken in turn; over a DataFrame."""
    expected = answer(answers, name)
    assert_same(
        expected, scanned(lakes["ordered"], name).to_spark(spark, tasks=2).toArrow(), f"{name}, chosen"
    )
    turn = STRATEGIES[NAMES.index(name) % len(STRATEGIES) :] + STRATEGIES
    for strategy in turn:
        try:
            result = scanned(lakes["shuffled"], name).to_spark(spark, strategy=strategy, tasks=2)
        except pk.EngineError:
            continue
        assert_same(expected, result.toArrow(), f"{name} in {strategy}")
        break
    frame = pk.from_spark(spark.read.parquet(lakes["shuffled"]), time="ts", sequence="n", name="events")
    assert_same(expected, queries(frame)[name].to_spark(spark).toArrow(), f"{name} over a DataFrame")


CHOSEN = {
    ("rows", "ordered"): "slices",
    ("tumbling", "ordered"): "slices",
    ("sliding", "ordered"): "slices",
    ("look-back", "ordered"): "slices",
    ("tumbling", "shuffled"): "fragments",
    ("sliding", "shuffled"): "fragments",
    ("everything", "shuffled"): "fragments",
    ("look-back", "shuffled"): "keys",
    ("sessions", "ordered"): "slices",
    ("sessions", "shuffled"): "keys",
    ("counts", "shuffled"): "keys",
    ("computed key", "shuffled"): "keys",
    ("top", "shuffled"): "times",
    ("lonely sessions", "ordered"): "slices",
    ("lonely sessions", "shuffled"): "one",
    ("count of all", "ordered"): "slices",
    ("count of all", "shuffled"): "one",
}


@pytest.mark.parametrize(("name", "kind"), CHOSEN)
def test_the_strategy_follows_from_the_query_and_the_files(
    lakes: dict[str, str], name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.planning.LEAST_ROWS_PER_TASK", 100)
    query = scanned(lakes[kind], name)
    physical = planned(query.compiled(), query.data, None, 2)
    assert physical.choice.strategy == CHOSEN[name, kind], physical
    assert str(physical).startswith(f"strategy: {CHOSEN[name, kind]}; ")
    shown = str(query.explain("spark")).split("\nknown plan of")[0]  # plans of earlier tests
    assert shown == str(physical)


def test_a_union_of_computed_and_plain_rows_counts_every_row_in_every_strategy(lakes: dict[str, str]) -> None:
    def query(stream: Any) -> Any:
        return (
            stream.distinct(["k", "n"])
            .select("k", "n")
            .union(stream.filter(pk.col("v") > 0).select("k", "n"))
        )

    expected = query(pk.from_arrow(TABLE, time="ts", sequence="n", name="events")).collect()
    for strategy, result in every_strategy(
        query(pk.scan(lakes["shuffled"], time="ts", sequence="n")), 3
    ).items():
        assert_same(expected, result, strategy)
