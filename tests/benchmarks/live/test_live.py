"""The live suite on a few rows: feeds, ways to push, answers, latency, builds, reports."""

import ast
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.live import applications, builds, holding, measure, suite
from benchmarks.live.builds import REPOSITORY, BuildError, Worker, current, install
from benchmarks.live.feed import Arrivals, Feed, buffers_of, rows_of
from benchmarks.live.points import Found, Point
from benchmarks.live.pushing import PUSH, Results, available
from benchmarks.live.queries import QUERIES, completing_rows, query_of
from benchmarks.live.suite import LiveOptions, sized
from benchmarks.workloads import START_US, STEP_US

SMALL = Feed(rows=40_000, keys=20)
FEEDS = {"uniform": SMALL, "zipf": replace(SMALL, zipf=True), "disorder": replace(SMALL, disorder_us=3_000)}


def fitting(feed, query):
    """Sessions close where keys are many, and windows of 100 rows where they are few."""
    return replace(feed, keys=2_000) if query == "session" else feed


# --- rows ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("feed", FEEDS.values(), ids=FEEDS)
def test_each_time_occurs_once_and_buffers_hold_all_rows(feed):
    table = rows_of(feed)
    times = np.sort(Arrivals.of(table).times)
    assert times.tolist() == list(range(START_US, START_US + STEP_US * feed.rows, STEP_US))
    assert pa.Table.from_batches(buffers_of(table, 7_000)).equals(table.combine_chunks())


def test_rows_out_of_order_stay_within_the_lateness():
    times = Arrivals.of(rows_of(FEEDS["disorder"])).times
    behind = np.maximum.accumulate(times) - times
    assert 0 < behind.max() < 3_000


def test_zipf_keys_have_a_heavy_hitter():
    counts = np.bincount(rows_of(FEEDS["zipf"])["key"].to_numpy(), minlength=20)
    assert counts.max() > 3 * np.median(counts)


# --- answers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("feed", FEEDS.values(), ids=FEEDS)
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("way", list(available()))
def test_what_is_pushed_gives_what_is_collected(query, feed, way):
    feed = fitting(feed, query)
    found = measure.throughput(Point(query, feed, 5_000, way=way))
    assert found.agrees
    assert found.rows < feed.rows
    assert found.speed > 0


def test_every_query_gives_results():
    assert all(measure.expected_of(name, fitting(SMALL, name)).num_rows >= 40 for name in QUERIES)


def test_a_lost_result_is_a_wrong_answer():
    point = Point("count", SMALL, 5_000)
    query, pusher, results = measure.opened(point)
    measure.push_all(pusher, buffers_of(rows_of(SMALL), 5_000))
    pusher.finish()
    assert measure.right(point, query, results)
    results.batches[0] = results.batches[0].slice(1)
    assert not measure.right(point, query, results)


# --- latency ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("feed", FEEDS.values(), ids=FEEDS)
@pytest.mark.parametrize("query", QUERIES)
def test_each_result_comes_with_the_row_that_completes_it(query, feed):
    """Some rows around the end of the first windows of 100 ms are pushed one by one, later by half the lateness."""
    feed = fitting(feed, query)
    bulk, single = 33_200 + feed.disorder_us // STEP_US // 2, 300
    table, asked = rows_of(feed), QUERIES[query]
    arrivals, completed = Arrivals.of(table), 0
    with query_of(query, feed).open() as live:
        live.push(table.slice(0, bulk).combine_chunks().to_batches()[0])
        for row, buffer in enumerate(buffers_of(table.slice(bulk, single), 1), bulk):
            for batch in live.push(buffer):
                assert (completing_rows(asked, batch, arrivals, feed.disorder_us) == row).all()
                completed += batch.num_rows
    assert completed


def test_waiting_counts_from_the_send_time_of_the_buffer_that_completes_a_result():
    point = Point("filter", Feed(rows=100, keys=1), buffer=10, rate=1_000.0)
    table = measure.table_of(point.feed)
    results = Results([table.slice(55, 2).to_batches()[0], table.slice(3, 1).to_batches()[0]], [7.065, 7.02])
    # Row 55 is in buffer 5, which is due 60 ms after the begin; buffer 0 is one of the warm ones.
    assert measure.waits_of(point, results, 7.0, 10) == pytest.approx([0.005, 0.005])


def test_an_open_loop_takes_quantiles_of_all_counted_results():
    found = measure.latency(Point("filter", SMALL, 2_000, rate=4e6))
    assert found.agrees
    assert 0 < found.completed < SMALL.rows
    assert list(found.latency) == ["p50", "p95", "p99", "max"]
    assert sorted(found.latency.values()) == list(found.latency.values())


# --- builds -------------------------------------------------------------------------------------------------


def test_a_worker_measures_the_code_at_hand_and_survives_a_failed_point():
    with Worker(current()) as process:
        assert process.ways[0] == PUSH
        assert process.measure(Point("nothing", SMALL, 5_000)).error.startswith("KeyError")
        assert process.measure(Point("filter", SMALL, 5_000)).agrees


def test_a_worker_refuses_another_build_than_it_was_given(tmp_path):
    with pytest.raises(BuildError, match="another penstock was imported"):
        Worker(builds.Build("empty", tmp_path))


@pytest.mark.parametrize(
    ("name", "text"), [("none.whl", "no such wheel"), ("no-such-rev", "neither a wheel")]
)
def test_a_baseline_that_does_not_exist_is_refused(name, text, tmp_path):
    with pytest.raises(BuildError, match=text):
        install(name, tmp_path)


def test_what_runs_with_an_older_build_uses_public_names_only():
    names = ("feed", "queries", "pushing", "points", "measure", "worker")
    files = [REPOSITORY / "benchmarks" / "live" / f"{name}.py" for name in names]
    files += [REPOSITORY / "benchmarks" / f"{name}.py" for name in ("answers", "workloads")]
    shared = {"penstock", "benchmarks.answers", "benchmarks.workloads"}
    allowed = shared | {f"benchmarks.live.{name}" for name in names}
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            modules = [node.module] if isinstance(node, ast.ImportFrom) else []
            modules += [name.name for name in node.names] if isinstance(node, ast.Import) else []
            ours = [module for module in modules if module.startswith(("penstock", "benchmarks"))]
            assert set(ours) <= allowed, file


# --- the suite ----------------------------------------------------------------------------------------------


class Scripted:
    """A worker whose every answer is known."""

    ways = (PUSH,)

    def __init__(self, name, seconds):
        self.build, self.seconds = builds.Build(name, REPOSITORY), seconds
        self.asked = []

    def measure(self, point):
        self.asked.append(point)
        return Found(point.feed.rows, self.seconds, self.seconds / 2, agrees=True, latency={"p99": 0.001})


def test_builds_take_turns_and_are_compared_by_clock_and_processor_time():
    ours, theirs = Scripted("Penstock", 1.0), Scripted("old", 7.0)
    options = LiveOptions(queries=["tumbling"], variants=["uniform"], buffers=[100], repeat=2)
    report = suite.run_live(options, [ours, theirs], lambda text: None)
    figures = {figure.name: figure for figure in report.cases[0].figures}
    assert figures["x old, 1t"].value == pytest.approx(7.0)
    assert figures["x old, 1t"].met
    assert figures["x old, 2t, processor time"].value == pytest.approx(7.0)
    assert [latency.share for latency in report.latencies] == [0.1, 0.5, 0.8] * 4
    rates = [latency.rate for latency in report.latencies if latency.contender == "old 1t"]
    assert rates == pytest.approx([share * 200_000 / 7.0 for share in (0.1, 0.5, 0.8)])


def test_points_have_rows_for_five_buffers_and_three_windows():
    options = LiveOptions(rows=2_000_000)
    rows = {size: sized(Feed(), size, options).rows for size in suite.BUFFERS}
    assert rows == {
        10: 100_000,
        100: 200_000,
        1_000: 2_000_000,
        10_000: 2_000_000,
        100_000: 2_000_000,
        1_000_000: 5_000_000,
    }


def test_a_slice_of_the_suite_prints_saves_and_draws(penstock, monkeypatch, tmp_path):
    monkeypatch.setattr(suite, "QUICK_ROWS", 40_000)
    monkeypatch.setattr(suite, "LATENCY_SECONDS", 0.01)
    json_path, plot = tmp_path / "run.json", tmp_path / "run.svg"
    flags = ["--quick", "--queries", "tumbling,filter", "--buffers", "10000", "--threads", "1"]
    result = penstock("bench", "live", *flags, "--json", json_path, "--plot", plot)
    assert result.exit_code == 0, result.output
    document = json.loads(json_path.read_text())
    assert {outcome["agrees"] for case in document["cases"] for outcome in case["outcomes"]} == {True}
    assert {row["agrees"] for row in document["latencies"]} == {True}
    assert plot.stat().st_size > 1_000
    assert "milliseconds from the intended send time" in result.output


@pytest.mark.parametrize(
    "flags", [("--queries", "none"), ("--buffers", "0"), ("--buffers", "x"), ("--variants", "odd")]
)
def test_a_wrong_flag_is_misuse(penstock, flags):
    assert penstock("bench", "live", *flags).exit_code == 2


# --- applications and rows held -----------------------------------------------------------------------------


def test_applications_pushed_buffer_by_buffer_give_what_is_collected(monkeypatch):
    monkeypatch.setattr(applications, "LEAST", 21_000)
    options = LiveOptions(rows=21_000, buffers=(1_000, 4_000), repeat=1)
    cases = list(applications.application_cases(options, lambda text: None))
    assert len(cases) == 2 * 9
    assert all(outcome.agrees for case in cases for outcome in case.outcomes), cases
    assert all(0 < case.figures[0].value <= 1 for case in cases)


@pytest.mark.parametrize("name", holding.NAMES)
def test_the_cost_of_pushes_is_taken_while_rows_are_held(name, monkeypatch):
    monkeypatch.setattr(holding, "PUSHES", 3)
    assert len(holding.push_seconds(name, 2_000)) == 3
