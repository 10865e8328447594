"""A run that leaves rows out because they come too late says so once, unless something was said about late rows."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk

SCHEMA = {"t": "int64", "v": "int64"}
ROWS = pa.table({"t": [1, 30, 2, 31, 3], "v": [1, 2, 3, 4, 5]})


def counted(stream: Any) -> Any:
    return stream.window(10).agg(n=pk.count())


def declared(**more: Any) -> Any:
    return counted(pk.stream("clicks", SCHEMA, time="t", **more))


def test_a_run_with_late_rows_warns_once_and_says_how_many_of_which_stream() -> None:
    with pytest.warns(pk.LateRowsWarning) as caught:
        list(declared().run(ROWS.to_batches(max_chunksize=1)))
    (warning,) = caught
    text = str(warning.message)
    assert text.startswith("1 of the 3 rows read so far")
    assert "stream 'clicks'" in text
    assert "lateness=" in text and "late_to=" in text
    assert warning.filename == __file__


def test_an_open_query_warns_at_its_first_late_row_where_it_was_pushed() -> None:
    live = declared().open()
    with pytest.warns(pk.LateRowsWarning, match="2 of the 5 rows") as caught:
        live.push(ROWS)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        live.push(pa.table({"t": [4], "v": [6]}))
        live.finish()
    assert live.metrics.late == 3


def test_every_run_warns_anew() -> None:
    query = declared()
    for _ in range(2):
        with pytest.warns(pk.LateRowsWarning):
            list(query.run(ROWS))


@pytest.mark.parametrize(
    "more", [{"lateness": 0}, {"lateness": 5}, {"late_to": lambda batch: None}], ids=["none", "5", "late_to"]
)
def test_nothing_is_said_where_the_query_says_what_becomes_of_late_rows(more: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = declared(**more).run(ROWS)
        list(run)
    assert run.metrics.late == 2


def test_nothing_is_said_where_no_row_is_late() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(declared().run(ROWS.sort_by("t")))
        list(declared().run(ROWS.sort_by("t").slice(0, 0)))


def test_collect_has_no_late_rows_and_does_not_warn(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert counted(pk.from_arrow(ROWS, time="t")).collect().num_rows == 2


def test_of_two_streams_only_those_are_named_that_have_late_rows_and_no_lateness() -> None:
    names = ("a", "b", "c")
    streams = [pk.stream(name, SCHEMA, time="t", lateness=0 if name == "c" else None) for name in names]
    live = counted(streams[0].union(streams[1]).union(streams[2])).open()
    for name in names:
        live.push({name: pa.table({"t": [50], "v": [0]})})
    with pytest.warns(pk.LateRowsWarning, match=r"1 of the 5 rows read so far .*stream 'b'"):
        live.push({"c": pa.table({"t": [1], "v": [0]}), "b": pa.table({"t": [2], "v": [0]})})
    assert live.metrics.late == 2


def test_late_rows_of_sessions_and_joins_warn_too() -> None:
    clicks = pk.stream("clicks", SCHEMA, time="t")
    other = pk.stream("other", SCHEMA, time="t", lateness=0)
    with pytest.warns(pk.LateRowsWarning, match="1 of the 2 rows"):
        clicks.window(pk.session(5)).agg(n=pk.count()).open().push(pa.table({"t": [30, 2], "v": [1, 2]}))
    with pytest.warns(pk.LateRowsWarning, match="stream 'clicks'"):
        clicks.join(other, on="v", window=10).open().push(clicks=pa.table({"t": [30, 2], "v": [1, 2]}))
