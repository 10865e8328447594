"""Dates, times of day and durations in JSON: texts of ISO 8601 or numbers, in files, live files and messages."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as pk
from penstock.sources.kafka_values import Decoder
from penstock.sources.text_checks import read_objects
from tests.kafka.sent import Sent

SCHEMA = {"ts": "int64", "d": "date32", "c": "time64[us]", "s": "time32[s]", "p": "duration[s]"}
LINES = [
    b'{"ts": 1, "d": "2020-01-01", "c": "10:20:30.25", "s": "10:20", "p": 90}',
    b'{"ts": 2, "d": null, "c": "23:59:59", "s": "00:00:01"}',
]
ROWS = [
    (1, dt.date(2020, 1, 1), dt.time(10, 20, 30, 250_000), dt.time(10, 20), dt.timedelta(seconds=90)),
    (2, None, dt.time(23, 59, 59), dt.time(0, 0, 1), None),
]


def values(rows: list[dict[str, object]]) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in rows]


def test_a_scan_reads_texts_of_dates_and_times(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(b"\n".join(LINES))
    events = pk.scan(file, time="ts", schema=SCHEMA, on_bad="fail")
    assert values(events.collect().to_pylist()) == ROWS
    day = events.filter(pk.col("d") == dt.date(2020, 1, 1)).collect()
    assert day["ts"].to_pylist() == [1]


def test_a_live_scan_reads_texts_of_dates_and_times(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b"\n".join(LINES))
    events = pk.scan_stream(tmp_path, time="ts", schema=SCHEMA, format="json", on_bad="fail", poll="1ms")
    found = []
    for batch in events.run():
        found += batch.to_pylist()
        if len(found) == len(ROWS):
            break
    assert values(found) == ROWS


def test_messages_have_texts_of_dates_and_times() -> None:
    schema = pk.stream("x", SCHEMA, time="ts").schema
    sent = [Sent(0, offset, value) for offset, value in enumerate([*LINES, b'{"ts": 3, "d": "2020-02-30"}'])]
    found = Decoder("x", schema, "json", "ts")(sent)
    assert values(found.batch.to_pylist()) == ROWS
    assert [record.reason for record in found.bad] == ["column 'd': not a valid date32[day]"]


def test_one_text_that_is_no_date_spoils_its_own_line_only(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(b"\n".join([*LINES, b'{"ts": 3, "c": "25:00"}', b'{"ts": 4, "d": 18262}']))
    with pytest.warns(pk.MalformedRowsWarning):
        found = pk.scan(file, time="ts", schema=SCHEMA).collect()
    assert found["ts"].to_pylist() == [1, 2, 4]
    assert found["d"].to_pylist() == [dt.date(2020, 1, 1), None, dt.date(2020, 1, 1)]


@pytest.mark.parametrize("text", ["10", "24:00", "10:20:30Z", "10+01", "", "2020-01-01", "10:20:30.1234567"])
def test_what_is_no_time_of_day_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(ValueError, match=r"^column 'c': not a valid time64\[us\]$"):
        read_objects(f'{{"c": "{text}"}}'.encode(), pa.schema({"c": pa.time64("us")}))
