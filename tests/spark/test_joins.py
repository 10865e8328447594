"""Joins in every strategy and on Spark: one answer, as everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from tests.spark.agree import assert_same
from tests.spark.lakes import events, join_queries, lake
from tests.spark.local import every_strategy

LEFT, RIGHT = events(1_500, seed=3), events(1_000, seed=4)
NAMES = tuple(
    join_queries(
        *(
            pk.from_arrow(value, time="ts", sequence="n", name=name)
            for name, value in (("a", LEFT), ("b", RIGHT))
        )
    )
)
DIVIDED = {"in windows", "outer", "within", "as of", "as of, ever", "rolling", "joined, then windows"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp("joins")
    return {
        "a": lake(folder / "a", LEFT, files=2),
        "b": lake(folder / "b", RIGHT, files=3),
        "a shuffled": lake(folder / "as", LEFT, shuffled=True),
        "b shuffled": lake(folder / "bs", RIGHT, shuffled=True),
    }


def over(folders: dict[str, str], name: str, kind: str = "") -> Any:
    made = (pk.scan(folders[text + kind], time="ts", sequence="n", name=text) for text in ("a", "b"))
    return join_queries(*made)[name]


def expected(name: str) -> pa.Table:
    made = (pk.from_arrow(value, time="ts", sequence="n", name=n) for n, value in (("a", LEFT), ("b", RIGHT)))
    return join_queries(*made)[name].collect()


@pytest.mark.parametrize("kind", ["", " shuffled"])
@pytest.mark.parametrize("name", NAMES)
def test_every_strategy_gives_the_answer_of_this_process(
    folders: dict[str, str], name: str, kind: str
) -> None:
    results = every_strategy(over(folders, name, kind), 3)
    assert {"keys"} <= results.keys() or name not in DIVIDED
    for strategy, result in results.items():
        assert_same(expected(name), result, f"{name} in {strategy}")


@pytest.mark.parametrize("name", ["in windows", "as of, ever", "table"])
def test_spark_gives_the_answer_of_this_process(spark: Any, folders: dict[str, str], name: str) -> None:
    """Over files, and over a DataFrame beside files."""
    answer = expected(name)
    assert_same(answer, over(folders, name).to_spark(spark, tasks=2).toArrow(), "files")
    frame = pk.from_spark(spark.read.parquet(folders["a shuffled"]), time="ts", sequence="n", name="a")
    files = pk.scan(folders["b"], time="ts", sequence="n", name="b")
    assert_same(
        answer, join_queries(frame, files)[name].to_spark(spark, tasks=2).toArrow(), "a DataFrame and files"
    )
