"""Decode messages of a topic to rows: values in JSON, Avro or Arrow, and Kafka's message metadata.

A JSON value is one object, an Avro value one record, an Arrow value an IPC stream of any number of rows.
The declared columns among `kafka_key`, `kafka_partition`, `kafka_offset`, `kafka_timestamp` (milliseconds) and
`kafka_headers` (a map of texts to bytes) hold the metadata.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from penstock.caches import CACHES
from penstock.errors import EngineError, SchemaMismatchError, SourceError
from penstock.sources.arrow import one_batch
from penstock.sources.conform import cast, check
from penstock.sources.malformed import NO_TIME, Arrived, Bad, good_and_bad
from penstock.sources.text_checks import json_reason, read_objects
from penstock.sources.text_formats import json_checks
from penstock.types.choices import one_of

# --- Decode Avro values: one record each, plain or after the five-byte prefix of schema registries.
#
# The caller states which of the two; it cannot be inferred, since short records are valid in both forms.
#
# fastavro, compiled, reads a record in about 2 us; Arrow has no Avro reader (decision 33).

_MAGIC = b"\x00"  # followed by a four-byte schema id: the registry prefix
_FRAME = 5


def records(
    schema: str, values: Sequence[bytes | None], columns: frozenset[str], framed: bool
) -> list[dict[str, Any]]:
    """Decode some fields of records. An invalid record or trailing bytes are an error."""
    parsed = _parsed(schema)
    found = (_whole(parsed, _unframed(value) if framed else value or b"") for value in values)
    return [{name: value for name, value in record.items() if name in columns} for record in found]


def _unframed(value: bytes | None) -> bytes:
    if value is None or not value.startswith(_MAGIC) or len(value) < _FRAME:
        raise ValueError("a value does not begin with the five bytes of a registry")
    return value[_FRAME:]


def _whole(parsed: Any, value: bytes) -> dict[str, Any]:
    """Decode a record that fills all bytes."""
    rest = io.BytesIO(value)
    try:
        found = _fastavro().schemaless_reader(rest, parsed, None)
    except Exception as error:  # noqa: BLE001 - fastavro raises exceptions of any type
        raise ValueError(f"a value is no record of the schema: {type(error).__name__}") from None
    if rest.tell() != len(value) or not isinstance(found, dict):
        raise ValueError("a value is no record of the schema")
    return found


def checked_schema(given: str | Mapping[str, object]) -> str:
    """Check a schema, given as text or as parsed JSON, and return it as text."""
    try:
        text = given if isinstance(given, str) else json.dumps(given)
        parsed = _parsed(text)
    except EngineError:
        raise
    except Exception as error:  # noqa: BLE001 - fastavro raises exceptions of any type
        raise SourceError(f"value_schema is no schema of Avro: {type(error).__name__}: {error}") from None
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise SourceError(
            "value_schema is a schema of Avro, but not one of records; give one of type 'record'"
        )
    return text


@CACHES.results(most=16)
def _parsed(text: str) -> Any:
    return _fastavro().parse_schema(json.loads(text))


def _fastavro() -> Any:
    try:
        import fastavro  # noqa: PLC0415 - an optional dependency
    except ImportError:
        raise EngineError("fastavro is not installed; pip install 'penstock[kafka]'") from None
    return fastavro


_AVRO = ("avro", "avro-registry")
VALUE_FORMATS = ("json", "arrow", *_AVRO)
_NEWLINE, _OPEN, _CLOSE = b"\n{}"
_value = methodcaller("value")


class Message(Protocol):
    """A message of confluent-kafka. Each method call has a cost, so only declared metadata is read."""

    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def value(self) -> bytes | None: ...
    def key(self) -> bytes | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def headers(self) -> Sequence[tuple[str, bytes | None]] | None: ...


def _timestamp(message: Message) -> int | None:
    kind, milliseconds = message.timestamp()
    return milliseconds if kind else None


_OWN: Mapping[str, Callable[[Message], Any]] = {
    "kafka_key": lambda message: message.key(),
    "kafka_partition": lambda message: message.partition(),
    "kafka_offset": lambda message: message.offset(),
    "kafka_timestamp": _timestamp,
    "kafka_headers": lambda message: message.headers(),
}
_HELD = {"kafka_key": pa.binary(), "kafka_headers": pa.map_(pa.string(), pa.binary())}


@dataclass(frozen=True, slots=True)
class Decoder:
    """Decode messages to rows. Malformed messages are returned separately, or raise an error if `on_bad` is "fail"."""

    topic: str
    schema: pa.Schema
    format: str
    time: str
    on_bad: str = "drop"
    value_schema: str | None = None

    def __post_init__(self) -> None:
        if not one_of(self.format, VALUE_FORMATS):
            raise SourceError(
                f"values of Kafka are read as {' or '.join(VALUE_FORMATS)}, not as {self.format!r}"
            )
        if (self.format in _AVRO) != (self.value_schema is not None):
            raise SourceError(
                f"{' and '.join(_AVRO)} need value_schema=, the schema that values were written with, "
                "and no other format takes it"
            )

    @property
    def stored(self) -> pa.Schema:
        """Return the columns that values hold."""
        return pa.schema([field for field in self.schema if field.name not in _OWN])

    def __call__(self, messages: Sequence[Message]) -> Arrived:
        """Decode all messages at once, in halves only if that fails. All are of one partition, which is a split."""
        good, bad = good_and_bad(messages, self._timed, self._reasons())
        if bad and self.on_bad == "fail":
            raise SourceError(self._complaint(bad[0][0]))  # Arrow's message quotes the value
        table = pa.Table.from_batches(good, self.schema).combine_chunks()
        return Arrived(
            one_batch(table), str(messages[0].partition()), tuple(self._bad(*record) for record in bad)
        )

    def _timed(self, messages: Sequence[Message]) -> pa.RecordBatch:
        made = self._together(messages)
        if made.column(self.time).null_count:
            raise ValueError(NO_TIME)
        return made

    def _reasons(self) -> Callable[[Message], str | None] | None:
        """Return the check of single messages, if there is one."""
        if self.format != "json":
            return None
        checks = json_checks(self.stored)
        return lambda message: json_reason(message.value() or b"", checks)

    def _bad(self, message: Message, reason: str) -> Bad:
        return Bad(message.value(), reason, f"{self.topic}/{message.partition()}", message.offset())

    def _complaint(self, message: Message) -> str:
        reasons = self._reasons()
        why = None if reasons is None else reasons(message)
        return (
            f"the value at offset {message.offset()} of partition {message.partition()} of topic {self.topic!r} is no "
            f"{self.format} of the declared columns{'' if why is None else f' ({why})'}; use on_bad='drop' to count and "
            "skip such messages, or on_bad='quarantine' to keep them"
        )

    def _together(self, messages: Sequence[Message]) -> pa.RecordBatch:
        if self.format == "json":
            return self._with_own(self._json(list(map(_value, messages))), messages)
        if self.format in _AVRO:
            return self._with_own(self._avro(list(map(_value, messages))), messages)
        rows = [self._with_own(self._arrow(message.value()), [message]) for message in messages]
        return one_batch(pa.Table.from_batches(rows, self.schema).combine_chunks())

    def _json(self, values: Sequence[bytes | None]) -> pa.Table:
        """Decode values as lines. Each must be an object from its first byte to its last, so that none extends into the next."""
        if not values:
            return self.stored.empty_table()
        table = read_objects(_lines(values), self.stored, several_lines=True)
        if table.num_rows != len(values):
            raise ValueError("a value is several objects")
        return table.select(self.stored.names)

    def _avro(self, values: Sequence[bytes | None]) -> pa.Table:

        framed = self.format == "avro-registry"
        rows = records(self.value_schema or "", values, frozenset(self.stored.names), framed)
        return pa.Table.from_pylist(rows, self.stored)

    def _arrow(self, value: bytes | None) -> pa.Table:
        if not value:
            raise ValueError("a value is empty")
        with pa.ipc.open_stream(value) as reader:
            table = reader.read_all()
        table.validate(full=True)
        check(table.schema, self.stored, f"a message of topic {self.topic!r}")
        return table.select(self.stored.names)

    def _with_own(self, table: pa.Table, messages: Sequence[Message]) -> pa.RecordBatch:
        """Add the metadata columns. All rows of a message have the same metadata."""
        plain = table.combine_chunks()
        arrays = [self._column(field, plain, messages) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, field: pa.Field, table: pa.Table, messages: Sequence[Message]) -> pa.Array:
        where = f"topic {self.topic!r}"
        if field.name not in _OWN:
            return cast(table.column(field.name).combine_chunks(), field.type, field.name, where)
        values = [_OWN[field.name](message) for message in messages]
        if len(messages) == 1:
            values *= table.num_rows
        try:
            return pa.array(values, _HELD.get(field.name, pa.int64())).cast(field.type)
        except pa.ArrowException:
            raise SchemaMismatchError(
                f"the column {field.name!r} of {where} cannot be {field.type}; "
                f"declare it as {_HELD.get(field.name, pa.int64())}"
            ) from None


def _lines(values: Sequence[bytes | None]) -> bytes:
    """Join objects with line feeds. Check the bytes around line feeds first, and each value only if that fails."""
    try:
        text = b"\n".join(values)  # type: ignore[arg-type]  # None raises TypeError
    except TypeError:
        text = b""
    if _one_a_line(text, len(values)):
        return text
    lines = [(value or b"").strip() for value in values]
    if not all(line.startswith(b"{") and line.endswith(b"}") for line in lines):
        raise ValueError("a value is no object")
    return b"\n".join(lines)


def _one_a_line(text: bytes, lines: int) -> bool:
    """Check that a text has `lines` lines, each from brace to brace, with one search over an array of bytes."""
    array = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(array == _NEWLINE)
    if len(ends) != lines - 1 or not text.startswith(b"{") or not text.endswith(b"}"):
        return False
    return bool((array[ends - 1] == _CLOSE).all() and (array[ends + 1] == _OPEN).all())
