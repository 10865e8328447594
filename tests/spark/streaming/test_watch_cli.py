"""`penstock run --watch --spark`: the figures of a stream of Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import penstock as pk
from penstock.cli.main import app
from penstock.cli.watch import SparkWatch, as_line
from penstock.types.time import Time

COUNTS = {
    "read": 10,
    "accepted": 7,
    "late": 1,
    "malformed": 2,
    "filtered": 0,
    "emitted": 3,
    "ties": 0,
    "partly_late": 1,
}
QUERY = """
import pathlib
import penstock as pk

def clicks(folder: pathlib.Path):
    events = pk.scan_stream(folder, time="t", schema={"t": "int64", "v": "int64"}, format="csv")
    return events.window(10).agg(n=pk.count())
"""


def test_glances_are_made_of_what_batches_counted() -> None:
    heard = pk.StreamingMetrics()
    going = iter([True, True, False])

    class Query:
        """Goes on for two snapshots."""

        id = "an id"
        lastProgress: Any = None

        @property
        def isActive(self) -> bool:
            return next(going)

        def exception(self) -> None:
            return None

    watched = Query()

    def sleep(seconds: float) -> None:
        heard.add("an id", {**COUNTS, "state_bytes": 1500, "watermark": 4_000}, 250)
        watched.lastProgress = SimpleNamespace(batchDuration=250)

    times = iter(range(100))
    clock = Time("t", pa.timestamp("ms"), "ms")
    watch = SparkWatch(watched, heard, clock, lambda: float(next(times)), lambda: 10.0, sleep)
    lines = [as_line(snapshot) for _, snapshot in watch.snapshots() if snapshot is not None]
    assert lines[0].startswith(
        "rows/s 10  lag 6.0 s  watermark 1970-01-01 00:00:04.000  state 1.5 kB  late 1  bad 2"
    )
    assert lines[1].endswith("batch 250.0 ms  read 20  results 6")
    assert len(lines) == 3


def test_the_last_glance_waits_for_word_of_the_last_batch() -> None:
    heard, word = pk.StreamingMetrics(), SimpleNamespace(id="an id")
    ended = SimpleNamespace(id="an id", isActive=False, lastProgress=None, exception=lambda: None)
    heard.onQueryTerminated(word)
    heard.onQueryStarted(word)  # the end of an earlier run is none of this one

    def sleep(seconds: float) -> None:
        heard.add("an id", {**COUNTS, "state_bytes": 1500, "watermark": 4_000}, 250)
        heard.onQueryTerminated(word)

    clock = Time("t", pa.timestamp("ms"), "ms")
    (snapshot,) = (value for _, value in SparkWatch(ended, heard, clock, sleep=sleep).snapshots() if value)
    assert as_line(snapshot).endswith("read 10  results 3")


def test_flags_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    for flags in (["--spark"], ["--once"], ["--watch", "--spark"]):
        result = CliRunner().invoke(app, ["run", f"{tmp_path}/q.py:x", *flags])
        assert result.exit_code == 2, flags


@pytest.mark.campaign  # a run of a stream
def test_a_stream_is_run_watched_and_written(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "q.py").write_text(QUERY)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("t,v\n1,1\n5,1\nrubbish\n33,1\n")
    command = ["run", f"{tmp_path / 'q.py'}:clicks", "--watch", "--spark", "--once"]
    command += ["--checkpoint", str(tmp_path / "checkpoint"), "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*command, "--folder", str(tmp_path / "in")])
    assert result.exit_code == 0, result.output
    assert "late 0  bad 1" in result.output.splitlines()[-1]
    found = pk.scan(tmp_path / "out", format="delta", time="window_end").collect()
    assert found["n"].to_pylist() == [2]
