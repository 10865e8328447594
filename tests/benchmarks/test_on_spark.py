"""The questions of the Spark benchmark, as far as they need no Spark: libraries agree, lakes go on."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks.answers import agree, normalise
from benchmarks.figures import Figure
from benchmarks.measure import Outcome
from benchmarks.on_spark import market
from benchmarks.on_spark import questions as q
from benchmarks.on_spark.lake import write_lake
from benchmarks.on_spark.overheads import planning_figures
from benchmarks.on_spark.suite import SparkOptions, ratios
from benchmarks.workloads import STEP_US, YsbKeyed


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


def test_polars_gives_the_quote_that_penstock_gives(tmp_path: Path) -> None:
    market.write_market(tmp_path, 11_000, 10)
    there, here, polars = market.as_of(None, str(tmp_path))
    assert (there.name, polars.name) == (q.ON_SPARK, q.POLARS)
    answers = [normalise(contender.to_table(contender.run())) for contender in (here, polars)]
    assert answers[0].num_rows == 1_000 and agree(*answers)


def outcome(name: str, seconds: float, agrees: bool = True, rows: int | None = None) -> Outcome:
    return Outcome(name, "", 2, seconds=[seconds], cpu_seconds=[2 * seconds], agrees=agrees, rows=rows)


GOOD = [outcome(q.ON_SPARK, 2.0), outcome(q.HERE, 1.0), outcome(q.SPARK, 20.0), outcome(q.POLARS, 1.0)]


def test_ratios_are_taken_of_right_answers_only() -> None:
    first = q.questions(10)[0]
    assert [figure.value for figure in ratios(first, 1_000, GOOD)] == [10.0, 10.0, 2.0, 2.0, 0.5, 0.5]
    assert [figure.target for figure in ratios(first, 1_000, GOOD)] == [6.0, None, 1.5, None, 0.7, None]
    wrong = [outcome(q.ON_SPARK, 2.0, agrees=False), *GOOD[1:]]
    assert all(isinstance(ratio, Figure) and ratio.value is None for ratio in ratios(first, 1_000, wrong))


def test_who_was_asked_about_fewer_rows_is_compared_by_rows_a_second() -> None:
    few = [*GOOD[:2], outcome(q.SPARK, 20.0, rows=100)]
    found = ratios(q.questions(10)[1], 1_000, few)
    assert found[0].value == 100.0 and "100 rows" in found[0].name


def test_planning_is_timed_over_real_footers(tmp_path: Path) -> None:
    clock, work = planning_figures(tmp_path, row_groups=300)
    assert clock.met and work.value
    assert len(list((tmp_path / "planning").iterdir())) == 3


def test_a_single_question_can_be_asked() -> None:
    assert len(SparkOptions(10, 10, 3).questions) > 3
    assert [question.name for question in SparkOptions(10, 10, 3, only="as-of").questions] == ["as-of join"]
    assert SparkOptions(10, 10, 3, only="no such").questions == []
