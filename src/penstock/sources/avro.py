"""Decode Avro values: one record each, plain or after the five-byte prefix of schema registries.

The caller states which of the two; it cannot be inferred, since short records are valid in both forms.

fastavro, compiled, reads a record in about 2 us; Arrow has no Avro reader (decision 33).
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from penstock.errors import EngineError, SourceError

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


@lru_cache(maxsize=16)
def _parsed(text: str) -> Any:
    return _fastavro().parse_schema(json.loads(text))


def _fastavro() -> Any:
    try:
        import fastavro  # noqa: PLC0415 - an optional dependency
    except ImportError:
        raise EngineError("fastavro is not installed; pip install 'penstock[kafka]'") from None
    return fastavro
