"""Writers: columns that are filled in place, with nulls and times, and copied at each commit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.api.writer import BLOCK_ROWS

TYPES = {
    "t": "timestamp[us]",
    "i": "int16",
    "u": "uint64",
    "f": "float32",
    "b": "bool",
    "d": "date",
    "l": "duration[ms]",
}
EVENTS = pk.stream("events", TYPES, time="t")
MODES = [{}, {"background": True}]


def written(live: object, made: list[pa.RecordBatch]) -> list[dict[str, object]]:
    taken = [*made, *(live if hasattr(live, "flush") else [])]  # type: ignore[call-overload]
    return [row for batch in taken for row in batch.to_pylist()]


@pytest.mark.parametrize("options", MODES)
def test_values_of_every_type_and_nulls_are_written(options: dict[str, bool]) -> None:
    live = EVENTS.filter(pk.col("t").is_not_null()).open(**options)  # type: ignore[call-overload]
    writer = live.writer(capacity=4)
    assert list(writer) == list(TYPES) and len(writer) == len(TYPES)
    writer["t"][:3] = np.array(["2026-01-01", "2026-01-02", "2026-01-03"], "datetime64[us]")
    writer["i"][:3] = [1, -2, 3]
    writer["u"][:3] = 2**64 - 1
    writer["f"][:3] = [0.5, np.nan, -0.0]
    writer["b"][:3] = [True, False, True]
    writer["d"][:3] = np.datetime64("2026-02-03")
    writer["l"][:3] = np.timedelta64(1500, "ms")
    writer.valid("i")[1] = False
    writer.valid("b")[:2] = False
    made = writer.commit(3) or []
    writer["t"][0] = np.datetime64("2026-01-04")
    made += writer.commit(1) or []
    made += live.finish() or []
    found = written(live, made)
    assert [row["i"] for row in found] == [1, None, 3, 1]
    assert [row["b"] for row in found] == [None, None, True, True]
    assert [str(row["t"])[:10] for row in found] == ["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"]
    assert {(row["u"], str(row["d"]), str(row["l"])) for row in found} == {
        (2**64 - 1, "2026-02-03", "0:00:01.500000")
    }


@pytest.mark.parametrize("options", MODES)
def test_rows_that_the_query_holds_are_not_changed_by_later_commits(options: dict[str, bool]) -> None:
    events = pk.stream("events", {"t": "int64", "v": "int64"}, time="t")
    live = events.window(pk.session(5)).agg(all=pk.list("v")).open(**options)  # type: ignore[call-overload]
    writer = live.writer(2)
    for begin in range(0, 8, 2):
        writer["t"][:] = writer["v"][:] = [begin, begin + 1]
        writer.commit()
    made = live.finish() or []
    assert [row["all"] for row in written(live, made)] == [list(range(8))]


def test_a_writer_has_the_columns_that_the_query_reads() -> None:
    events = pk.stream("events", {"t": "int64", "v": "int64", "text": "string"}, time="t")
    with events.window(5).agg(s=pk.sum("v")).open() as live:
        writer = live.writer(1)
        assert list(writer) == ["t", "v"]
        with pytest.raises(pk.BindingError, match="no column 'text'; it has 't', 'v'"):
            writer["text"]
    with (
        events.open() as live,
        pytest.raises(pk.UnsupportedError, match="column 'text' of stream 'events' is string"),
    ):
        live.writer(1)


def test_a_stream_with_implied_time_is_written_without_a_time() -> None:
    ecg = pk.stream("ecg", {"mv": "float64"}, time=pk.every(4))
    with ecg.window(8).agg(m=pk.max("mv")).open() as live:
        writer = live.writer(3)
        writer["mv"][:] = [1.0, 3.0, 2.0]
        assert list(writer) == ["mv"]
        assert [row["m"] for row in written(live, writer.commit() + live.finish())] == [3.0, 2.0]


def test_more_rows_than_a_block_holds_are_written() -> None:
    events = pk.stream("events", {"t": "int64"}, time="t")
    with events.window(1_000_000).agg(n=pk.count()).open(background=True) as live:
        writer = live.writer(BLOCK_ROWS // 3)
        for begin in range(7):
            writer["t"][:] = begin
            writer.commit()
        large = live.writer(2 * BLOCK_ROWS)
        large["t"][:] = 8
        large.commit()
        live.finish()
    assert [n for batch in live for n in batch["n"].to_pylist()] == [7 * (BLOCK_ROWS // 3) + 2 * BLOCK_ROWS]


def test_mistakes_are_refused() -> None:
    one, other = (pk.stream(name, {"t": "int64"}, time="t") for name in ("one", "other"))
    with one.union(other).window(5).agg(n=pk.count()).open() as live:
        with pytest.raises(pk.BindingError, match=r"writer\(stream=\) names.*'one', 'other'"):
            live.writer(3)
        with pytest.raises(pk.ExpressionTypeError, match="capacity"):
            live.writer(0, stream="one")
        writer = live.writer(3, stream="one")
        for rows in (-1, 4, 1.0, True):
            with pytest.raises(pk.ExpressionTypeError, match="rows to commit"):
                writer.commit(rows)  # type: ignore[arg-type]
        assert writer.commit(0) == []
    assert live.metrics.read == 0
