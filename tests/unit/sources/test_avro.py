"""Values in Avro are rows of the declared types, framed by a registry or not; headers and keys are columns."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.sources.kafka_values import Decoder
from tests.kafka.sent import Sent

fastavro = pytest.importorskip("fastavro")

AVRO = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "v", "type": ["null", "int"], "default": None},
        {"name": "who", "type": "string"},
        {"name": "unread", "type": {"type": "array", "items": "double"}},
    ],
}
SCHEMA = pa.schema({"t": pa.timestamp("ms", "UTC"), "v": pa.int32(), "who": pa.string()})


def value(row: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, AVRO, {"unread": [], **row})
    return sink.getvalue()


def decoder(schema: pa.Schema = SCHEMA, format: str = "avro") -> Decoder:
    stream = pk.scan_kafka("localhost:1", "x", schema, time="t", format=format, value_schema=AVRO, name="s")
    found: Any = stream.data["s"]
    made: Decoder = found.decoder
    return made


ROWS = st.fixed_dictionaries(
    {
        "t": st.integers(-(10**12), 10**12),
        "v": st.none() | st.integers(-(2**31), 2**31 - 1),
        "who": st.text(max_size=5),
        "unread": st.lists(st.floats(allow_nan=False), max_size=2),
    }
)


@given(rows=st.lists(ROWS, min_size=1, max_size=5), framed=st.booleans())
def test_records_are_rows_framed_or_not(rows: list[dict[str, Any]], framed: bool) -> None:
    front = b"\x00\x00\x00\x01\x05" if framed else b""
    messages = [Sent(0, number, front + value(row)) for number, row in enumerate(rows)]
    found = decoder(format="avro-registry" if framed else "avro")(messages)
    assert found.bad == ()
    ticks = found.batch.column("t").cast(pa.int64()).to_pylist()
    seen = list(
        zip(ticks, found.batch.column("v").to_pylist(), found.batch.column("who").to_pylist(), strict=True)
    )
    assert seen == [(row["t"], row["v"], row["who"]) for row in rows]


@pytest.mark.parametrize(
    "wrong", [None, b"", b"rubbish", b"\x00", value({"t": 1, "v": 1, "who": "x"}) + b"more"]
)
def test_what_is_no_record_is_told_apart(wrong: bytes | None) -> None:
    good = value({"t": 5, "v": None, "who": "me"})
    found = decoder()([Sent(0, 0, good), Sent(0, 1, wrong), Sent(0, 2, good)])
    assert found.batch.num_rows == 2
    assert [(record.offset, record.row) for record in found.bad] == [(1, wrong)]
    framed = b"\x00\x00\x00\x01\x05" + good
    found = decoder(format="avro-registry")([Sent(0, 0, framed), Sent(0, 1, wrong), Sent(0, 2, framed)])
    assert [record.offset for record in found.bad] == [1]


def test_headers_and_keys_are_columns_where_they_are_declared() -> None:
    kept = {"kafka_key": pa.string(), "kafka_headers": pa.map_(pa.string(), pa.binary())}
    schema = pa.schema([*SCHEMA, *(pa.field(name, dtype) for name, dtype in kept.items())])
    good = value({"t": 5, "v": 1, "who": "me"})
    messages = [
        Sent(0, 0, good, b"k", 1, [("trace", b"\x01"), ("trace", None)]),
        Sent(0, 1, good, None, None, None),
    ]
    batch = decoder(schema)(messages).batch
    assert batch.column("kafka_key").to_pylist() == ["k", None]
    assert batch.column("kafka_headers").to_pylist() == [[("trace", b"\x01"), ("trace", None)], None]


def test_schemas_are_checked_where_they_are_given() -> None:
    def scan(**options: Any) -> pk.Stream:
        return pk.scan_kafka("localhost:1", "x", SCHEMA, time="t", **options)

    with pytest.raises(pk.SourceError, match="need value_schema="):
        scan(format="avro")
    with pytest.raises(pk.SourceError, match="no other format takes it"):
        scan(value_schema=AVRO)
    with pytest.raises(pk.SourceError, match="value_schema is no schema of Avro"):
        scan(format="avro", value_schema="{")
    with pytest.raises(pk.SourceError, match="not one of records"):
        scan(format="avro", value_schema='"long"')
