"""One rule for malformed records of text: on_bad says what becomes of them, whoever reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import penstock as pk
from tests.spark.local import run_locally

SCHEMA = {"t": "int64", "v": "int64", "s": "string"}
CSV = "t,v,s\n1,3,a\nrubbish\n2,x,b\n,4,c\n4,5,d\n"
JSON = '{"t": 1, "v": 3}\nrubbish\n{"t": 2, "v": "\n{"v": 4}\n{"t": 4, "v": 5}\n'
FILES = {"a.csv": CSV, "a.json": JSON}
BAD = {"a.csv": [b"rubbish", b"2,x,b", b",4,c"], "a.json": [b"rubbish", b'{"t": 2, "v": "', b'{"v": 4}']}

Read = Callable[[pk.Stream], tuple[list[Any], pk.Metrics | None]]


def collected(stream: pk.Stream) -> tuple[list[Any], pk.Metrics | None]:
    metrics = pk.Metrics()
    return stream.window(10).agg(total=pk.sum("v")).collect(metrics=metrics)["total"].to_pylist(), metrics


def with_few_columns(stream: pk.Stream) -> tuple[list[Any], pk.Metrics | None]:
    metrics = pk.Metrics()
    counts = stream.window(10).agg(n=pk.count()).collect(metrics=metrics)["n"].to_pylist()
    return [8 if counts == [2] else counts], metrics


def run(stream: pk.Stream) -> tuple[list[Any], pk.Metrics | None]:
    going = stream.window(10).agg(total=pk.sum("v")).run()
    return [value for batch in going for value in batch["total"].to_pylist()], going.metrics


def on_spark(stream: pk.Stream) -> tuple[list[Any], pk.Metrics | None]:
    query = stream.window(10).agg(total=pk.sum("v"))
    return run_locally(query, None, 2)["total"].to_pylist(), None


def after_history(stream: pk.Stream) -> tuple[list[Any], pk.Metrics | None]:
    live = pk.stream("s", SCHEMA, time="t", on_bad=stream.raw_plan.on_bad)  # type: ignore[union-attr]
    if stream.raw_plan.on_bad == "quarantine":  # type: ignore[union-attr]
        folder = stream.raw_plan.edges.quarantine_to  # type: ignore[union-attr]
        live = pk.stream("s", SCHEMA, time="t", on_bad="quarantine", quarantine_to=folder)
    going = stream.then(live, at=100).window(10).agg(total=pk.sum("v")).run([])
    return [value for batch in going for value in batch["total"].to_pylist()], going.metrics


READS: dict[str, tuple[Any, Read]] = {
    "scan, collect": (pk.scan, collected),
    "scan, few columns": (pk.scan, with_few_columns),
    "scan, run": (pk.scan, run),
    "scan, Spark": (pk.scan, on_spark),
    "scan, history": (pk.scan, after_history),
    "scan_stream, collect": (pk.scan_stream, collected),
    "scan_stream, run": (lambda *args, **options: pk.scan_stream(*args, stop_after="0s", **options), run),
}


def source(made: Any, tmp_path: Path, name: str, on_bad: str) -> pk.Stream:
    (tmp_path / name).write_text(FILES[name])
    kept = {"quarantine_to": tmp_path / "bad"} if on_bad == "quarantine" else {}
    stream: pk.Stream = made(
        tmp_path / name, time="t", name="s", schema=SCHEMA, on_bad=on_bad, **kept, **format_of(made, name)
    )
    return stream


def format_of(made: Any, name: str) -> dict[str, str]:
    return {"format": Path(name).suffix[1:]}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", READS)
def test_malformed_records_are_dropped_and_counted(tmp_path: Path, how: str, name: str) -> None:
    made, read = READS[how]
    totals, metrics = read(source(made, tmp_path, name, "drop"))
    assert totals == [8]
    assert metrics is None or (metrics.read, metrics.accepted, metrics.malformed) == (5, 2, 3)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", READS)
def test_malformed_records_are_kept_in_quarantine(tmp_path: Path, how: str, name: str) -> None:
    made, read = READS[how]
    totals, metrics = read(source(made, tmp_path, name, "quarantine"))
    assert totals == [8]
    assert metrics is None or (metrics.read, metrics.malformed) == (5, 3)
    kept = pq.read_table(tmp_path / "bad").sort_by("offset").to_pylist()
    assert [row["row"] for row in kept] == BAD[name]
    assert [row["offset"] for row in kept] == [1, 2, 3]
    assert {Path(row["source"]).name for row in kept} == {name}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", READS)
def test_the_first_malformed_record_is_an_error_that_says_where_it_is(
    tmp_path: Path, how: str, name: str
) -> None:
    made, read = READS[how]
    line = {"a.csv": r"line 3: expected 3 columns, found 1", "a.json": r"line 2: it is not one JSON object"}[
        name
    ]
    with pytest.raises(pk.SourceError, match=rf"{name}' cannot be read: {line}.*on_bad='drop'"):
        read(source(made, tmp_path, name, "fail"))


@pytest.mark.parametrize(
    ("name", "text", "reported"),
    [
        ("a.csv", "t,v,s\n1,2,a\n2,x,b\n", "line 3: column 'v': not a valid int64"),
        ("a.csv", "t,v,s\n1,2,a\n,2,b\n", "line 3: it has no time"),
        ("a.csv", "t,v,s\n2026,1,a\n1,99999999999999999999,b\n", "line 3: column 'v': not a valid int64"),
        ("a.json", '{"t": 1, "s": ""}\n\n{"t": 2, "v": 1.5}\n', "line 3: column 'v': not a valid int64"),
        ("a.json", '{"t": 1}\n{"t": 2, "t": 3}\n', "line 2: "),
    ],
)
def test_an_error_names_line_column_and_reason(tmp_path: Path, name: str, text: str, reported: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(pk.SourceError, match=rf"{name}' cannot be read: {reported}"):
        pk.scan(tmp_path / name, time="t", schema=SCHEMA, on_bad="fail").collect()


@pytest.mark.parametrize("name", ["a.csv", "a.json"])
def test_columns_are_learned_from_the_records_that_are_rows(tmp_path: Path, name: str) -> None:
    good = {"a.csv": "t,v\n1,3\n", "a.json": '{"t": 1, "v": 3}\n'}[name]
    more = {"a.csv": "2,4\n", "a.json": '{"t": 2, "v": 4}\n'}[name]
    (tmp_path / name).write_text(good + 'rub"bish\n' + more)
    for made in (pk.scan, pk.scan_stream):
        metrics = pk.Metrics()
        stream = made(tmp_path / name, time="t")  # type: ignore[operator]
        assert stream.collect(metrics=metrics).to_pydict() == {"t": [1, 2], "v": [3, 4]}
        assert metrics.malformed == 1


def test_a_quarantine_of_frames_and_parquet_is_refused_where_spark_reads_them(tmp_path: Path) -> None:
    from penstock.api.execute import bind_all
    from penstock.spark.streaming.late_and_malformed import refuse_quarantine

    (tmp_path / "a.csv").write_text(CSV)
    pq.write_table(pk.scan(tmp_path / "a.csv", time="t", schema=SCHEMA).collect(), tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        stream = pk.scan(tmp_path / name, time="t", on_bad="quarantine", quarantine_to=tmp_path / "bad")
        bound = bind_all(stream, None, {})
        if name == "a.csv":
            refuse_quarantine(stream.plan, bound)
            continue
        with pytest.raises(pk.UnsupportedError, match="CSV and JSON alone"):
            refuse_quarantine(stream.plan, bound)
