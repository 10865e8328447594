"""Peers of the live suite: how they are run and compared; those that are installed answer as Penstock does."""

from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from benchmarks.live import peers
from benchmarks.live.feed import Feed
from benchmarks.live.measure import expected_of
from benchmarks.live.peers import PeerError, PeerRun, plain, right, run_peers
from benchmarks.live.peers.bytewax import open_bytewax
from benchmarks.live.peers.flink import jars, open_flink
from benchmarks.live.peers.pathway import open_pathway
from benchmarks.live.peers.spark import counted, open_spark, sentinel
from benchmarks.live.points import Found
from benchmarks.live.queries import QUERIES
from benchmarks.live.suite import LiveOptions, Report
from benchmarks.measure import NOT_AVAILABLE
from benchmarks.streaming.runs import Batches

FEED = Feed(rows=36_000, keys=200)
PLAIN = [name for name, query in QUERIES.items() if not query.signal]


def silent(text):
    pass


@dataclass
class Scripted:
    """A peer whose speed is known; it answers as `collect` does, but for what is spoilt."""

    spoilt: str = ""
    broken: str = ""
    name: str = "Scripted"
    rows: int = 50_000
    queries: tuple = ("tumbling", "filter")

    def answer(self, query, feed, threads):
        if query == self.broken:
            raise PeerError("Scripted: out of memory")
        table = plain(query, expected_of(query, feed))
        return table.slice(1) if query == self.spoilt else table

    def throughput(self, query, feed, threads):
        return {"": Found(feed.rows, 2.0, 3.0), "tuned": Found(feed.rows, 1.0, 3.0)}

    def source(self, feed, threads):
        return Found(feed.rows, 0.5, 0.5)

    def latency(self, query, feed, threads, rate):
        return Found(feed.rows, 1.0, 1.0, True, {"p99": 0.01}, 7)


def report_of(peer, queries, latency=False):
    @contextmanager
    def opener():
        yield peer

    report = Report()
    options = LiveOptions(queries=queries, latency=latency)
    run_peers(report, PeerRun([opener], 2, 40_000), options, None, silent)
    return report


def test_a_peer_has_an_outcome_for_each_setting_and_is_compared_by_its_best():
    report = report_of(Scripted(), ["filter"], latency=True)
    outcomes = report.cases[0].outcomes
    assert [(outcome.name, outcome.agrees, outcome.rows) for outcome in outcomes] == [
        ("Scripted", True, 40_000),
        ("Scripted tuned", True, 40_000),
    ]
    assert [(figure.name, figure.value) for figure in report.figures] == [
        ("Scripted: its source alone", 0.08)
    ]
    assert [latency.rate for latency in report.latencies] == pytest.approx([4_000, 20_000, 32_000])


def test_a_query_that_a_peer_cannot_express_is_not_available():
    (outcome,) = report_of(Scripted(), ["signal"]).cases[0].outcomes
    assert outcome.error.startswith(NOT_AVAILABLE)


def test_a_wrong_answer_of_a_peer_is_told_and_gives_no_ratio():
    case = report_of(Scripted(spoilt="tumbling"), ["tumbling"]).cases[0]
    assert [outcome.agrees for outcome in case.outcomes] == [False, False]
    assert case.figures[0].value is None


def test_a_peer_that_fails_does_not_end_the_run():
    report = report_of(Scripted(broken="tumbling"), ["tumbling", "filter"])
    assert report.cases[0].outcomes[0].error == "Scripted: out of memory"
    assert report.cases[1].outcomes[0].agrees


def test_a_peer_that_is_not_installed_is_left_out():
    assert report_of(None, ["filter"]).cases == []


@pytest.mark.parametrize("query", PLAIN)
def test_every_query_without_signals_has_start_end_key_and_value(query):
    table = plain(query, expected_of(query, replace(FEED, keys=20)))
    assert table.column_names == list(peers.PLAIN)
    assert table.num_rows
    assert table["end"].to_numpy().min() >= 0


def test_spark_counts_the_batches_behind_the_warm_ones():
    sink = Batches(clock=[float(n * n) for n in range(12)], work=[float(n) for n in range(12)])
    found = counted(sink, 100)
    assert (found.rows, found.seconds, found.cpu_seconds) == (600, 81.0 - 9.0, 6.0)


def test_the_row_that_closes_the_windows_of_spark_has_the_schema_of_the_feed():
    rows = pa.table({name: pa.array([1], pa.int64()) for name in ("key", "val")})
    rows = rows.append_column("ts", pa.array([5], pa.timestamp("us"))).append_column(
        "et", pa.array([1], pa.int32())
    )
    last = sentinel(rows)
    assert pa.concat_tables([rows.select(last.column_names), last]).num_rows == 2


def test_an_unknown_peer_is_misuse(penstock):
    result = penstock("bench", "live", "--peers", "storm")
    assert result.exit_code == 2
    assert "flink" in result.stderr


# --- the real ones, where they are installed -----------------------------------------------------------------


def test_bytewax_answers_as_penstock_does():
    pytest.importorskip("bytewax")
    with open_bytewax() as peer:
        for query in peer.queries:
            feed = replace(FEED, rows=6_000 if query == "sliding" else 36_000)
            assert right(query, feed, peer.answer(query, feed, 1)), query


def test_pathway_answers_as_penstock_does():
    pytest.importorskip("pathway")
    with open_pathway() as peer:
        for query in peer.queries:
            feed = replace(FEED, rows=36_000)
            assert right(query, feed, peer.answer(query, feed, 1)), query


@pytest.mark.campaign
def test_flink_answers_as_penstock_does():
    if jars() is None:
        pytest.skip("apache-flink-libraries is not installed")
    with open_flink() as peer:
        for query in peer.queries:
            for threads in (1, 2):
                assert right(query, FEED, peer.answer(query, FEED, threads)), (query, threads)


@pytest.mark.campaign
def test_spark_answers_as_penstock_does(monkeypatch):
    monkeypatch.setattr("benchmarks.live.peers.spark.FILES", 2)
    with open_spark() as peer:
        for query in peer.queries:
            assert right(query, FEED, peer.answer(query, FEED, 2)), query
