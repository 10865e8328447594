"""Values of rows never occur in errors, plans, logs or metrics: only names and counts do."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as pk

SECRET = "hunter2-swordfish"
NUMBER = 9_223_372_036_854_770_123
SECRETS = (SECRET, str(NUMBER), "770123")


def table() -> pa.Table:
    return pa.table(
        {
            "t": pa.array([0, 1, 2], pa.timestamp("s")),
            "who": [SECRET, SECRET, "x"],
            "amount": pa.array([NUMBER, NUMBER, 1], pa.int64()),
            "ratio": pa.array([float(NUMBER) * 4, 1.0, 2.0]),
        }
    )


def events() -> pk.Stream:
    return pk.from_arrow(table(), time="t", name="events")


def check_silent(text: str) -> None:
    assert [secret for secret in SECRETS if secret in text] == []


FAILING: dict[str, Callable[[], object]] = {
    "sum overflow": lambda: events().window(pk.tumbling("1h")).agg(x=pk.sum("amount")).collect(),
    "row overflow": lambda: events().with_columns(x=pk.col("amount") * 3).collect(),
    "string to number": lambda: events().with_columns(x=pk.col("who").cast("int64")).collect(),
    "string to time": lambda: events().with_columns(x=pk.col("who").cast("timestamp[us]")).collect(),
    "float to int": lambda: events().with_columns(x=pk.col("ratio").cast("int64")).collect(),
    "narrowing": lambda: events().with_columns(x=pk.col("amount").cast("int32")).collect(),
    "unknown column": lambda: events().filter(pk.col("nobody") == 1).collect(),
    "wrong type": lambda: events().filter(pk.col("who") + 1 > 2).collect(),
    "schema mismatch": lambda: (
        pk.stream("s", {"t": "timestamp[s]", "who": "int64"}, time="t")
        .window(pk.tumbling("1h"))
        .agg(n=pk.sum("who"))
        .collect(s=table())
    ),
    "no binding": lambda: (
        pk.stream("s", {"t": "timestamp[s]"}, time="t").window("1h").agg(n=pk.count()).collect(other=table())
    ),
}


@pytest.mark.parametrize("fail", FAILING.values(), ids=FAILING.keys())
def test_an_error_is_typed_and_shows_no_row(fail: Callable[[], object]) -> None:
    with pytest.raises(pk.PenstockError) as caught:
        fail()
    check_silent("".join(traceback.format_exception(caught.value)))


FILES: dict[str, tuple[str, bytes]] = {
    "a letter among numbers (csv)": ("a.csv", ("t,amount\n" + "1,1\n" * 9 + f"2,{SECRET}\n").encode()),
    "a ragged row (csv)": ("b.csv", f"t,who\n1,{SECRET}\n2,{SECRET},{SECRET}\n".encode()),
    "broken json": ("c.json", f'{{"t": 1, "who": "{SECRET}"}}\n{{"t": 2, "who": "{SECRET}'.encode()),
    "a type that changes (json)": ("d.json", f'{{"t": 1, "w": 1}}\n{{"t": 2, "w": "{SECRET}"}}\n'.encode()),
    "not parquet": ("e.parquet", f"PAR1 {SECRET} PAR1".encode()),
    "not arrow": ("f.arrow", f"ARROW1 {SECRET} ARROW1".encode()),
}


def error_of(path: Path) -> pk.PenstockError | None:
    """Malformed rows may be dropped and counted instead of refused: then there is no error."""
    try:
        pk.scan(str(path), time="t").window(pk.tumbling(10)).agg(n=pk.count()).collect()
    except pk.PenstockError as error:
        return error
    return None


@pytest.mark.parametrize(("name", "content"), FILES.values(), ids=FILES.keys())
def test_an_unreadable_file_is_named_but_not_quoted(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    error = error_of(path)
    assert error is None or name in str(error)
    check_silent("" if error is None else "".join(traceback.format_exception(error)))


@pytest.mark.parametrize("dtype", ["int64", "int8", "float64", "bool", "timestamp[us]", "date"])
@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_text_that_is_not_of_the_declared_type_is_refused_without_quoting_it(
    tmp_path: Path, suffix: str, dtype: str
) -> None:
    path = tmp_path / f"events.{suffix}"
    path.write_text(
        f"t,w\n1,{SECRET}\n2,{NUMBER}\n"
        if suffix == "csv"
        else f'{{"t": 1, "w": "{SECRET}"}}\n{{"t": 2, "w": "{NUMBER}"}}\n'
    )
    query = pk.scan(str(path), time="t", schema={"t": "int64", "w": dtype}, on_bad="fail")
    with pytest.raises(pk.PenstockError) as caught:
        query.window(pk.tumbling(10)).agg(m=pk.max("w")).collect()
    check_silent("".join(traceback.format_exception(caught.value)))


def test_numbers_that_do_not_fit_the_declared_type_are_refused_without_quoting_them(tmp_path: Path) -> None:
    data = pa.table({"t": [1], "w": pa.array([NUMBER], pa.timestamp("s"))})
    declared = pk.stream("s", {"t": "int64", "w": "timestamp[ns]"}, time="t")
    with pytest.raises(pk.PenstockError) as caught:
        declared.window(pk.tumbling(10)).agg(m=pk.max("w")).collect(s=data)
    check_silent("".join(traceback.format_exception(caught.value)))


@pytest.mark.parametrize("stage", ["plan", "ir", "passes", "loop", "llvm", "asm"])
def test_no_stage_of_explain_shows_a_row(stage: str) -> None:
    query = events().filter(pk.col("ratio") > 0).window(pk.tumbling("1s"), by="who").agg(m=pk.max("amount"))
    check_silent(str(query.explain(stage=stage)))


def test_logs_output_and_metrics_of_a_run_show_no_row(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    query = events().window(pk.tumbling("1s"), by="who").agg(m=pk.max("amount"))
    with query.open() as live:
        live.push(events=table())
        live.finish()
        metrics = f"{live.metrics} {live.metrics!r}"
    captured = capfd.readouterr()
    check_silent(caplog.text + captured.out + captured.err + metrics)


def test_a_query_is_printed_without_its_rows() -> None:
    check_silent(repr(events()) + str(events()))
