"""Files that appear are read once, in order, until nothing comes any more."""

from __future__ import annotations

import gzip
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.sources.live_files import Clock, live_files

SCHEMA = {"t": "int64", "v": "int64"}


class Wall:
    """A clock that stands still, but when somebody sleeps: then time passes, and files may come."""

    def __init__(self, arrivals: dict[int, Any]) -> None:
        self.time, self.arrivals = 0.0, arrivals

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        arrive = self.arrivals.pop(int(self.time), None)
        if arrive is not None:
            arrive()


def put(folder: Path, name: str, times: list[int], written: int = 0) -> None:
    hidden = folder / f".{name}"
    pq.write_table(pa.table({"t": times, "v": times}), hidden)
    os.utime(hidden, ns=(written, written))
    hidden.rename(folder / name)


def watched(folder: Path, wall: Wall, **options: Any) -> pk.Stream:
    schema = pa.schema({"t": pa.int64(), "v": pa.int64()})
    data = live_files(folder, "parquet", schema, 1.0, 3.0, clock=Clock(wall.now, wall.sleep), **options)
    stream = pk.stream("events", SCHEMA, time="t")
    return stream, data


def test_files_are_read_as_they_come_and_the_run_ends_when_none_has_come_for_a_while(tmp_path: Path) -> None:
    wall = Wall(
        {2: lambda: put(tmp_path, "b.parquet", [11, 12]), 4: lambda: put(tmp_path, "a.parquet", [25])}
    )
    stream, data = watched(tmp_path, wall)
    run = stream.window(10).agg(n=pk.count()).run(data)
    assert [batch["n"].to_pylist() for batch in run] == [[2], [1]]
    assert wall.time == 7
    assert run.metrics.read == 3


def test_older_files_are_read_first_and_no_more_at_once_than_asked(tmp_path: Path) -> None:
    for written, name in enumerate(["c", "a", "b"]):
        put(tmp_path, f"{name}.parquet", [written], written)
    _, data = watched(tmp_path, Wall({}), most_files=1)
    assert [batch["t"].to_pylist() for batch in data.batches() if batch.num_rows] == [[0], [1], [2]]
    assert [Path(value.path).name for value in data.listed()] == ["c.parquet", "a.parquet", "b.parquet"]


def test_a_query_that_collects_reads_what_is_there(tmp_path: Path) -> None:
    put(tmp_path, "a.parquet", [1, 2])
    events = pk.scan_stream(tmp_path / "*.parquet", time="t")
    assert events.window(10).agg(n=pk.count()).collect()["n"].to_pylist() == [2]


def test_two_streams_take_turns_while_one_has_nothing(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    put(one, "a.parquet", [1, 30])
    wall = Wall({2: lambda: put(other, "a.parquet", [5, 31])})
    _, first = watched(one, wall)
    second = replace(first, path=str(other))
    streams = [pk.stream(name, SCHEMA, time="t") for name in ("one", "other")]
    query = streams[0].union(streams[1]).window(10).agg(n=pk.count())
    assert [batch["n"].to_pylist() for batch in query.run(one=first, other=second)] == [[2], [2]]


def test_a_folder_without_files_needs_a_schema_and_a_format(tmp_path: Path) -> None:
    with pytest.raises(pk.SourceError, match="needs both schema= and format="):
        pk.scan_stream(tmp_path, time="t")
    with pytest.raises(pk.SourceError, match="format"):
        pk.scan_stream(tmp_path, time="t", schema=SCHEMA, format="delta")
    with pytest.raises(pk.DurationError, match="poll is '-1s'"):
        pk.scan_stream(tmp_path, time="t", schema=SCHEMA, format="csv", poll="-1s")
    assert pk.scan_stream(tmp_path, time="t", schema=SCHEMA, format="csv").schema.names == ["t", "v"]


def test_a_file_of_another_schema_is_refused_by_its_name(tmp_path: Path) -> None:
    _, data = watched(tmp_path, Wall({}))
    pq.write_table(pa.table({"t": ["x"], "v": [1]}), tmp_path / "bad.parquet")
    with pytest.raises(pk.SchemaMismatchError, match=r"bad\.parquet"):
        list(data.batches())


def test_a_state_is_not_taken_up_with_files_that_would_be_read_again(tmp_path: Path) -> None:
    put(tmp_path, "a.parquet", [1, 2])
    query = pk.scan_stream(tmp_path, time="t", stop_after="0s").window(10).agg(n=pk.count())
    run = query.run(final=False)
    list(run)
    with pytest.raises(pk.UnsupportedError, match="all of it would count twice"):
        query.run(state=run.state())


def test_folders_give_declared_columns_their_values_and_other_folders_stop_nothing(tmp_path: Path) -> None:
    (tmp_path / "day=1").mkdir()
    put(tmp_path, "a.parquet", [1], 1)
    put(tmp_path / "day=1", "b.parquet", [2], 2)
    plain = pk.scan_stream(tmp_path, time="t", schema=SCHEMA, format="parquet", stop_after="0s")
    assert plain.collect().to_pydict() == {"t": [1, 2], "v": [1, 2]}
    assert [batch["t"].to_pylist() for batch in plain.run()] == [[1], [2]]
    dated = pk.scan_stream(
        tmp_path / "day=*" / "*",
        time="t",
        schema={**SCHEMA, "day": "int64"},
        format="parquet",
        stop_after="0s",
    )
    assert dated.collect().to_pydict() == {"t": [2], "v": [2], "day": [1]}


@pytest.mark.parametrize("on_bad", ["drop", "fail"])
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_file_outside_of_the_folders_that_give_a_column_is_an_error_that_names_it(
    tmp_path: Path, suffix: str, on_bad: str
) -> None:
    (tmp_path / "day=1").mkdir()
    for number, folder in enumerate([tmp_path / "day=1", tmp_path]):
        if suffix == "parquet":
            put(folder, f"{number}.parquet", [number], number)
        else:
            (folder / f"{number}.csv").write_text(f"t,v\n{number},1\n")
            os.utime(folder / f"{number}.csv", ns=(number, number))
    columns = {**SCHEMA, "day": "int64"}
    stream = pk.scan_stream(tmp_path, time="t", schema=columns, format=suffix, stop_after="0s", on_bad=on_bad)
    with pytest.raises(pk.SchemaMismatchError, match=rf"1\.{suffix}' has no column 'day'"):
        list(stream.run())
    with pytest.raises(pk.SourceError, match="lies in other partition folders"):
        pk.scan_stream(tmp_path, time="t")


def test_only_the_absence_of_files_means_that_nothing_has_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (tmp_path, tmp_path / "later", tmp_path / "*.csv", tmp_path / "later" / "*.csv"):
        stream = pk.scan_stream(path, time="t", schema=SCHEMA, format="csv", stop_after="0s")
        assert stream.collect().num_rows == 0
    (tmp_path / "a.csv").write_text("t,v\n1,2\n")

    def refused(path: object) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("penstock.sources.paths.os.scandir", refused)
    stream = pk.scan_stream(tmp_path, time="t", schema=SCHEMA, format="csv", stop_after="0s")
    with pytest.raises(pk.SourceError, match="Permission denied"):
        list(stream.run())
    monkeypatch.setattr("penstock.sources.paths.glob.iglob", lambda *_, **__: iter(()))
    hidden = pk.scan_stream(tmp_path / "*.csv", time="t", schema=SCHEMA, format="csv", stop_after="0s")
    with pytest.raises(pk.SourceError, match="Permission denied"):
        list(hidden.run())


def test_a_compressed_file_that_breaks_off_is_an_error_that_names_it(tmp_path: Path) -> None:
    whole = gzip.compress(b"t,v\n" + b"".join(b"%d,%d\n" % (t, t * 7919 % 1000) for t in range(5000)))
    (tmp_path / "a.csv.gz").write_bytes(whole[: len(whole) // 2])
    for on_bad in ("drop", "fail"):
        stream = pk.scan_stream(
            tmp_path, time="t", schema=SCHEMA, format="csv", stop_after="0s", on_bad=on_bad
        )
        with pytest.raises(pk.SourceError, match=r"a\.csv\.gz"):
            list(stream.run())


def test_an_empty_file_is_not_read_for_a_schema_that_is_declared(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    events = pk.scan_stream(tmp_path, time="t", schema=SCHEMA, poll="1ms", stop_after="1ms")
    assert list(events.run()) == []
