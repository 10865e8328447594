"""Commands that run the real engine: the demo and a user's query."""

import pyarrow.parquet as pq
import pytest

from penstock.cli.demo import clicks, demo_query

USER = """
import pyarrow as pa
import penstock as pk

table = pa.table({"t": [1, 2, 11], "v": [1, 2, 3]})


def totals(size: int = 10):
    return pk.from_arrow(table, time="t").window(pk.tumbling(size)).agg(total=pk.sum("v"))


def zero():
    return totals(0)
"""


@pytest.fixture
def user(tmp_path):
    path = tmp_path / "user.py"
    path.write_text(USER)
    return path


def test_the_demo_shows_its_plan_its_result_and_its_rate(penstock):
    result = penstock("demo", "--no-spark", "--rows", "20000")
    assert result.exit_code == 0, result.output
    assert all(text in result.output for text in ("the query", "window_start", "takings", "M rows/s"))


def test_the_demo_counts_every_click_once():
    table = clicks(20_000)
    answer = demo_query(table.schema).collect(clicks=table)
    assert sum(answer.column("events").to_pylist()) == 20_000


def test_a_users_query_runs_with_its_flags(penstock, user, tmp_path):
    target = tmp_path / "out.parquet"
    result = penstock("run", f"{user}:totals", "--size", "5", "--threads", "2", "-o", target)
    assert result.exit_code == 0, result.output
    assert pq.read_table(target).column("total").to_pylist() == [3, 3]


def test_a_users_mistake_is_one_clear_line(penstock, user):
    result = penstock("run", f"{user}:zero")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.output


@pytest.mark.parametrize("stage", ["plan", "ir", "passes", "loop", "llvm", "asm"])
def test_every_stage_can_be_shown(penstock, user, stage):
    result = penstock("explain", f"{user}:totals", "--stage", stage)
    assert result.exit_code == 0, result.output
    assert len(result.stdout) > 20
