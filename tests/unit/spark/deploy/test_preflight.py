"""What is made of an executor's report, and what a session must have."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import penstock as pk
from penstock.cli.doctor import problems, table
from penstock.spark.deploy import preflight, settings
from penstock.spark.deploy.preflight import Executor
from penstock.spark.deploy.settings import is_connect, require_session
from penstock.spark.deploy.survey import surveyor
from tests.storage.conftest import s3, s3_lake
from tests.storage.lake import SECRET, Lake

__all__ = ["s3", "s3_lake"]


def report(**changed: object) -> Executor:
    """The report of this process, in which some things are changed."""
    began = time.time()
    found = json.loads(surveyor(dict.fromkeys(["/", "/no/such/folder", "/no/such/*.parquet"], ()), 0)(0))
    return Executor.of({**found, **changed}, began, time.time())


def test_an_executor_reports_what_is_there() -> None:
    found = report()
    assert found.penstock == pk.__version__
    assert found.obstacle(streaming=True) is None
    assert found.late == 0.0
    assert found.paths == {
        "/": found.paths["/"],
        "/no/such/folder": "missing",
        "/no/such/*.parquet": "0 files",
    }
    assert found.memory > 1 << 28


NONE = dict.fromkeys(("pyarrow", "numpy", "llvmlite", "pandas", "polars"))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"penstock": None, "problem": "No module named 'penstock'"},
            "cannot import Penstock (No module named",
        ),
        ({"problem": "no llvmlite"}, "lack packages of Penstock (no llvmlite)"),
        ({"penstock": "0.0.1"}, "have Penstock 0.0.1, and this process"),
        ({"versions": NONE}, "lack pandas"),
    ],
)
def test_each_obstacle_is_one_line_that_says_what_to_do(changed: dict[str, Any], words: str) -> None:
    reported = report(**changed).obstacle(streaming=True)
    assert reported is not None
    assert words in reported
    assert reported.endswith(preflight.ADVICE)
    assert "\n" not in reported


def test_batches_do_without_pandas() -> None:
    assert report(versions=NONE).obstacle() is None


@pytest.mark.parametrize(("apart", "late"), [(-60, -60), (60, 60)])
def test_a_clock_is_late_by_as_much_as_it_lies_outside_of_the_job(apart: int, late: int) -> None:
    assert report(clock=time.time() + apart).late == pytest.approx(late, abs=5)


def test_a_missing_path_can_be_read_by_nobody(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").touch()
    found = json.loads(surveyor({str(tmp_path / "*.parquet"): (), str(tmp_path): ()}, 0)(0))
    assert found["paths"] == [[str(tmp_path / "*.parquet"), "1 files"], [str(tmp_path), "writable"]]


def test_files_in_a_store_are_found_by_the_reader_of_queries(s3: Lake) -> None:
    options = tuple(s3.options.items())
    s3.put("events/day=1/a.parquet", b"")
    wrong = (*options[:2], ("endpoint", "http://127.0.0.1:9"), ("max_retries", "0"))
    asked = {s3.uri("events"): options, s3.uri("none"): options, s3.uri("other"): wrong}
    found = dict(json.loads(surveyor(asked, 0)(0))["paths"])
    assert (found[s3.uri("events")], found[s3.uri("none")]) == ("1 files", "missing")
    assert "cannot be reached" in found[s3.uri("other")]
    assert SECRET not in str(found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11",
            "executors run Python 3.9",
        ),
        (
            'java.io.IOException: Cannot run program "./env/bin/python": error=2',
            "executors have no ./env/bin/python",
        ),
    ],
)
def test_why_no_python_runs_at_all_is_one_line(text: str, words: str) -> None:
    found = preflight._plain(RuntimeError(text))
    assert found is not None
    assert words in str(found)
    assert preflight._plain(RuntimeError("something else")) is None


def test_the_doctor_shows_each_executor_and_each_problem_once() -> None:
    found = [
        report(),
        report(host="other", penstock=None, problem="No module named 'penstock'", clock=time.time() + 9),
    ]
    console = Console(width=200, record=True)
    console.print(table(found))
    shown = console.export_text()
    assert "other" in shown
    assert "missing" in shown
    assert "/no/such/folder" in shown
    first, second = problems(found)
    assert first.startswith("1 of 2: executors cannot import Penstock")
    assert second == "1 of 2: the clock differs from the driver's by 1 s or more"


class Session:
    """The part of a session that is asked for its settings."""

    version = "4.1.0"

    def __init__(self, **given: str) -> None:
        self.given = {name.replace("_", "."): value for name, value in given.items()}
        self.conf = self

    def get(self, name: str, otherwise: str | None) -> str | None:
        return self.given.get(name, otherwise)

    def set(self, name: str, value: str) -> None:
        self.given[name] = value


def test_a_session_is_surveyed_once_and_again_when_a_stream_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(settings, "show_archive", lambda spark: None)
    monkeypatch.setattr(settings, "require_penstock", lambda spark, streaming: asked.append(streaming))
    session: Any = Session()
    for streaming in (False, False, True, True, False):
        settings.require_session(session, streaming, 2)
    assert asked == [False, True]


def test_an_old_session_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    old: Any = Session()
    old.version = "3.5.9-amzn-1"
    with pytest.raises(
        pk.EngineError, match=r"^this session runs Spark 3\.5\.9-amzn-1; to_spark needs Spark 4\.0 or newer$"
    ):
        settings.require_session(old, False, 2)


def test_settings_that_harm_streams_are_each_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "show_archive", lambda spark: None)
    monkeypatch.setattr(settings, "require_penstock", lambda spark, streaming: None)
    session: Any = Session(spark_sql_shuffle_partitions="200")
    session.given[settings._EMPTY] = "true"
    with pytest.warns(pk.SparkSettingWarning) as caught:
        settings.require_session(session, True, 2)
    partitions, empty = (str(warning_message.message) for warning_message in caught)
    assert partitions.startswith("spark.sql.shuffle.partitions is 200, and 2 tasks run at once")
    assert "verifyCheckpointDirectoryEmptyOnStart is true" in empty


def test_streams_over_connect_are_refused_in_one_line() -> None:
    pytest.importorskip("grpc")
    from pyspark.sql.connect.session import SparkSession

    class Client(SparkSession):
        version = "4.3.0"

    client: Any = object.__new__(Client)
    Client.__module__ = SparkSession.__module__
    assert is_connect(client)
    with pytest.raises(pk.UnsupportedError, match="streaming queries do not run over Spark Connect"):
        require_session(client, True, 2)
