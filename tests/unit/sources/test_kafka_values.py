"""Values of messages become rows of the declared types, or are counted as malformed."""

from __future__ import annotations

import traceback
from typing import Any

import pyarrow as pa
import pyarrow.json
import pytest

import penstock as pk
from penstock.sources.kafka_values import Decoder
from penstock.sources.text_checks import NOT_UTF8
from tests.kafka.sent import Sent

SCHEMA = pa.schema({"t": pa.timestamp("ms"), "v": pa.int32(), "kafka_offset": pa.int64()})


def messages(*values: bytes | None) -> list[Sent]:
    return [Sent(0, offset, value) for offset, value in enumerate(values)]


def test_objects_are_rows_whatever_their_layout_and_further_fields() -> None:
    found = Decoder("x", SCHEMA, "json", "t")(
        messages(
            b'{"t": "2026-01-01T00:00:00", "v": 1, "more": {"a": [1]}}',
            b'{\n "t": "2026-01-01", "v": null\n}',
            b' {"t": "2026-01-01"} ',
        )
    )
    assert len(found.bad) == 0
    assert found.batch.column("v").to_pylist() == [1, None, None]
    assert found.batch.column("kafka_offset").to_pylist() == [0, 1, 2]
    assert found.batch.schema.equals(SCHEMA)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"no",
        b'{"v": 1}',
        b"[1]",
        b"{",
        b'{"t": "2026-01-01", "v": 1}{"t": "2026-01-01", "v": 2}',
        b'{"t": "2026-01-01", "v": "x"}',
        b'{"t": "2026-01-01", "v": 99999999999}',
        b"\xff{}",
    ],
)
def test_what_is_no_row_is_counted_and_the_others_stay(value: bytes | None) -> None:
    found = Decoder("x", SCHEMA, "json", "t")(
        messages(b'{"t": "2026-01-01", "v": 1}', value, b'{"t": "2026-01-01", "v": 2}')
    )
    assert len(found.bad) == 1
    assert found.batch.column("v").to_pylist() == [1, 2]
    assert found.batch.column("kafka_offset").to_pylist() == [0, 2]
    assert [(record.row, record.source, record.offset) for record in found.bad] == [(value, "x/0", 1)]


def test_two_that_together_are_two_rows_are_still_none_each() -> None:
    found = Decoder("x", SCHEMA, "json", "t")(
        messages(b'{"t": "2026-01-01", "v": {"a": 1}', b"}", b'{"t": "2026-01-01", "v": 3}')
    )
    assert (len(found.bad), found.batch.column("v").to_pylist()) == (2, [3])


def test_a_failure_names_the_place_and_never_the_value() -> None:
    with pytest.raises(pk.SourceError, match="offset 1 of partition 0 of topic 'x'") as caught:
        Decoder("x", SCHEMA, "json", "t", "fail")(
            messages(b'{"t": "2026-01-01", "v": 1}', b'{"t": "2026-01-01", "v": "hunter2"}')
        )
    assert "hunter2" not in str(caught.value)
    with pytest.raises(pk.SourceError, match="json or arrow or avro or avro-registry, not as 'xml'"):
        Decoder("x", SCHEMA, "xml", "t")


def test_arrow_values_of_other_columns_are_malformed() -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({"t": pa.array([1], pa.timestamp("ms")), "v": ["text"]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found = Decoder("x", SCHEMA, "arrow", "t")(messages(bytes(sink.getvalue()), b"rubbish", None))
    assert (len(found.bad), found.batch.num_rows) == (3, 0)


@pytest.mark.parametrize("odd", [b"", b"\n", b"{}\n{}", b'{"t": "2026-01-01"}\n', b"}\n{", b"{", None])
def test_no_value_runs_into_the_next_wherever_it_lies(odd: bytes | None) -> None:
    """A value of two lines may end with a brace in each: the number of lines tells it from two values."""
    plain = [b'{"t": "2026-01-01", "v": %d}' % number for number in range(4)]
    for place in range(5):
        found = Decoder("x", SCHEMA, "json", "t")(messages(*plain[:place], odd, *plain[place:]))
        rest = [value for value in found.batch.column("v").to_pylist() if value is not None]
        assert rest == [0, 1, 2, 3]
        assert len(found.bad) + found.batch.num_rows == 5


def test_texts_that_are_not_valid_utf8_are_malformed() -> None:
    schema = pa.schema({"t": pa.int64(), "s": pa.string()})
    found = Decoder("x", schema, "json", "t")(
        messages('{"t": 1, "s": "ü"}'.encode(), b'{"t": 2, "s": "\xff"}', b'{"t": 3, "\xff": 1}', b'{"t": 4}')
    )
    assert found.batch.to_pydict() == {"t": [1, 4], "s": ["ü", None]}
    assert [(record.offset, record.reason) for record in found.bad] == [(1, NOT_UTF8), (2, NOT_UTF8)]


def test_a_failure_names_column_and_reason() -> None:
    values = messages(b'{"t": "2026-01-01", "t": "2026-01-01"}', b'{"t": "2026-01-01", "v": "hunter2"}')
    with pytest.raises(pk.SourceError, match="offset 0 of partition 0"):
        Decoder("x", SCHEMA, "json", "t", "fail")(values)
    with pytest.raises(pk.SourceError, match=r"offset 1 .*\(column 'v': not a valid int32\)"):
        Decoder("x", SCHEMA, "json", "t", "fail")(values[1:])


def test_malformed_values_take_few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0
    real = pyarrow.json.read_json

    def counted(*args: Any, **options: Any) -> pa.Table:
        nonlocal tries
        tries += 1
        return real(*args, **options)

    monkeypatch.setattr("pyarrow.json.read_json", counted)
    values = [b'{"t": "2026-01-01", "v": "x"}', b'{"t": "2026-01-01", "v": 1}'] * 5000
    found = Decoder("x", SCHEMA, "json", "t")(messages(*values))
    assert (len(found.bad), found.batch.num_rows) == (5000, 5000)
    assert [record.offset for record in found.bad] == list(range(0, 10_000, 2))
    assert tries < 100


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"nope": "hunter2"}, "the option 'nope' of topic 'x' .*no such option"),
        ({"security.protocol": "hunter2"}, "the option 'security.protocol' of topic 'x' .*not valid"),
        ({"fetch.min.bytes": "-5"}, "the option 'fetch.min.bytes'"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN"}, "refused by librdkafka"),
        ({"default.topic.config": "hunter2"}, "refused by librdkafka"),
        ({"auto.offset.reset": "latest"}, "'auto.offset.reset' of scan_kafka is set by the source itself"),
        ({"bootstrap.servers": "other:1"}, "is set by the source itself"),
        ({"sasl.password": b"hunter2"}, "the value of 'sasl.password' is of type bytes"),
        ({"client.id": "hunter2\ud800"}, "'client.id'.* not valid Unicode"),
        ({"client.id": "hunter2\0"}, "'client.id'.* not valid Unicode"),
        ({1: "hunter2"}, "the name 1 is none"),
    ],
)
def test_options_that_are_wrong_are_named_without_their_values(options: Any, reported: str) -> None:
    with pytest.raises(pk.PenstockError, match=reported) as raised:
        list(pk.scan_kafka("127.0.0.1:1", "x", SCHEMA, time="t", options=options, stop_after="0s").run())
    assert "hunter2" not in "".join(traceback.format_exception(raised.value))
