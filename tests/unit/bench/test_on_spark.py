"""The questions of the Spark benchmark, as far as they need no Spark: libraries agree, lakes go on."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from penstock.bench.answers import agree, normalise
from penstock.bench.figures import Figure
from penstock.bench.measure import Outcome
from penstock.bench.on_spark import questions as q
from penstock.bench.on_spark.lake import write_lake
from penstock.bench.on_spark.suite import TARGETS, ratios
from penstock.bench.workloads import STEP_US, YsbKeyed


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_lake(tmp_path_factory.mktemp("bench") / "lake", YsbKeyed(40_000, 10), file_rows=15_000)


def test_files_of_a_lake_go_on_where_the_last_one_ended(lake: str) -> None:
    files = sorted(Path(lake).iterdir())
    times = pq.read_table(lake)["ts"].cast("int64")
    assert len(files) == 3
    assert set(pc.pairwise_diff(times.combine_chunks()).drop_null().to_pylist()) == {STEP_US}


def test_libraries_give_the_answer_of_penstock(lake: str) -> None:
    ours = normalise(q.window_answer(q.window_query(10_000, 10_000, lake).collect()))
    for ask in (q.polars_windows, q.duckdb_windows):
        assert agree(normalise(q.window_answer(ask(lake, 10_000))), ours), ask.__name__


def test_every_question_has_a_target() -> None:
    assert {each.name for each in q.questions(10)} == set(TARGETS)


def test_ratios_are_taken_of_right_answers_only() -> None:
    def outcome(name: str, seconds: float, agrees: bool = True) -> Outcome:
        return Outcome(name, "", 2, seconds=[seconds], agrees=agrees)

    first = q.questions(10)[0]
    good = [outcome(q.ON_SPARK, 2.0), outcome(q.HERE, 1.0), outcome(q.SPARK, 20.0), outcome(q.POLARS, 1.0)]
    values = [figure.value for figure in ratios(first, good)]
    assert values == [10.0, 2.0, 0.5]
    wrong = [outcome(q.ON_SPARK, 2.0, agrees=False), *good[1:]]
    assert all(isinstance(each, Figure) and each.value is None for each in ratios(first, wrong))
