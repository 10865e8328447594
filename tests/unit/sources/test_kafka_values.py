"""Values of messages become rows of the declared types, or are counted as malformed."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk
from penstock.sources.kafka_values import Decoder
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
    assert [(each.row, each.source, each.offset) for each in found.bad] == [(value, "x/0", 1)]


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
