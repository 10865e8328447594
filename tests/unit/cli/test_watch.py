"""`penstock run --watch`: what is to be seen while a query runs."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

import penstock as pk
from penstock.cli.watch import Watch, as_line, show
from penstock.plan.schema import sources_of

QUERY = """
import pathlib
import penstock as pk

def clicks(folder: pathlib.Path):
    events = pk.scan_stream(folder, time="t", schema={"t": "int64", "v": "int64"}, format="csv", stop_after="0s", lateness=2)
    return events.window(10).agg(n=pk.count())
"""


class Ticking:
    """A clock that moves on at every look."""

    def __init__(self, step: float) -> None:
        self.time, self.step = 0.0, step

    def __call__(self) -> float:
        self.time += self.step
        return self.time


def watched(step: float = 0.4) -> Watch:
    stamps = pa.timestamp("ms")
    source = pk.stream("s", {"t": stamps, "v": "int64"}, time="t")
    query = source.window("10s").agg(n=pk.count())
    times = [[1_000, 2_000], [12_000, None], [3_000, 25_000]]
    batches = [
        pa.RecordBatch.from_arrays([pa.array(time, stamps), pa.array([1] * len(time))], ["t", "v"])
        for time in times
    ]
    return Watch(query.run(iter(batches)), sources_of(query.plan)[0].time, Ticking(step), lambda: 30.0)


def test_glances_tell_what_has_become_of_rows_and_how_far_behind_the_clock_time_is() -> None:
    snapshots = [snapshot for _, snapshot in watched().snapshots(0.1) if snapshot is not None]
    assert [snapshot.counts.read for snapshot in snapshots][-1] == 6
    lines = [as_line(snapshot).split("  ") for snapshot in snapshots]
    assert lines[0][1:3] == ["lag 28.0 s", "watermark 1970-01-01 00:00:02.000"]
    assert "late 1" in lines[2]
    assert "bad 1" in lines[2]
    assert lines[2][1:3] == ["lag 5.0 s", "watermark 1970-01-01 00:00:25.000"]
    assert lines[0][3].endswith(" kB")
    assert lines[-1][-1] == "results 3"


def test_rates_are_those_since_the_last_glance_and_glances_are_not_more_often_than_asked() -> None:
    watch = watched(0.5)
    found = [snapshot for _, snapshot in watch.snapshots(1.9) if snapshot is not None]
    assert len(found) == 3  # one of them at the end
    assert all(snapshot.rate >= 0 for snapshot in found)
    assert found[0].rate == 4 / 2.0


def test_a_terminal_shows_figures_and_the_latest_results_others_get_lines() -> None:
    terminal, plain = io.StringIO(), io.StringIO()
    show(watched(1.0), Console(file=terminal, force_terminal=True, width=150), None, 5)
    assert "latest results" in terminal.getvalue()
    assert "window_start" in terminal.getvalue()
    show(watched(1.0), Console(file=plain, width=150), None, 5)
    assert plain.getvalue().startswith("rows/s ")
    assert "\x1b" not in plain.getvalue()


def test_results_go_to_a_folder_as_they_come(penstock: Any, tmp_path: Path) -> None:
    (tmp_path / "q.py").write_text(QUERY)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("t,v\n1,1\n5,1\nrubbish\n33,1\n")
    result = penstock(
        "run", f"{tmp_path / 'q.py'}:clicks", "--watch", "-o", tmp_path / "out", "--folder", tmp_path / "in"
    )
    assert result.exit_code == 0, result.output
    assert "bad 1" in result.output
    assert pq.read_table(tmp_path / "out")["n"].to_pylist() == [2, 1]
