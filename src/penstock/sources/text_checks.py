"""Single records of text: JSON objects decoded by Arrow, and the faulty column and reason of a record."""

from __future__ import annotations

import calendar
import json
import re
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
from pyarrow import csv

# --- Check single records of text: find the faulty column and the reason.
#
# Arrow decides whether a record is a row, for a whole block at once, and names one record at most. These checks reject
# only what Arrow rejects, so a rejected record need not be decoded alone, which takes a hundred times as long. Records that
# pass are decoded (`malformed.good_and_bad`). Reasons name columns and types, never values.

Check = Callable[[str], bool]
ValueCheck = Callable[[object], bool]

NOT_UTF8 = "it is not valid UTF-8"
NOT_OBJECT = "it is not one JSON object"
_INTEGER = re.compile(r"\s*(?:(-?[0-9]+)|0[xX][0-9a-fA-F]+)\s*")
_NUMBER = re.compile(
    r"\s*[-+]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?|inf(?:inity)?|nan(?:\(\w*\))?)\s*",
    re.IGNORECASE | re.ASCII,
)
_TRUTH = re.compile(r"\s*(?:0|1|true|false)\s*", re.IGNORECASE)
_DATE = r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
_HOUR, _SIXTY = r"(?:[01][0-9]|2[0-3])", r":[0-5][0-9]"
_ZONE = r"(?:[Zz]|[-+][0-9]{2}(?::?[0-9]{2})?)"
_FRACTION = {"s": "", "ms": r"(?:\.[0-9]{1,3})?", "us": r"(?:\.[0-9]{1,6})?", "ns": r"(?:\.[0-9]{1,9})?"}
_MOST_DIGITS = 4000  # Python parses no longer integers
_NULLS = frozenset(csv.ConvertOptions().null_values)


class _Number(str):
    """A JSON number in its written form."""

    __slots__ = ()


def not_a(column: str, dtype: pa.DataType) -> str:
    """Return the reason for a column with a value of another type."""
    return f"column {column!r}: not a valid {dtype}"


def csv_check(dtype: pa.DataType) -> Check | None:
    """Return the check of a CSV field; None if any text may be a value of the type."""
    check = _text_check(dtype)
    return None if check is None else lambda text: text in _NULLS or check(text)


def json_check(dtype: pa.DataType) -> ValueCheck | None:
    """Return the check of a JSON value, as `json_values` returns it."""
    types = pa.types
    if types.is_integer(dtype) or types.is_floating(dtype):
        check = _text_check(dtype)
        return lambda value: isinstance(value, _Number) and (check is None or check(value))
    if types.is_boolean(dtype):
        return lambda value: isinstance(value, bool)
    if types.is_timestamp(dtype):
        written = _temporal_check(dtype, f"(?:{_ZONE})?")
        return lambda value: _is_text(value) and written(str(value))
    if types.is_date(dtype) or types.is_time(dtype):
        form = _temporal_check(dtype, "")
        return lambda value: isinstance(value, _Number) or (_is_text(value) and form(str(value)))
    if types.is_duration(dtype):
        return lambda value: isinstance(value, _Number)
    if any(test(dtype) for test in (types.is_string, types.is_large_string, types.is_binary)):
        return _is_text
    return None


def json_reason(text: bytes, checks: Mapping[str, tuple[pa.DataType, ValueCheck]]) -> str | None:
    """Return why a line is not a row; None if it may be one.

    >>> checks = {"v": (pa.int8(), json_check(pa.int8()))}
    >>> [json_reason(line, checks) for line in (b'{"v": 1}', b'{"v": 300}', b'{"v": ')]
    [None, "column 'v': not a valid int8", 'it is not one JSON object']
    """
    line = text.strip()
    if not (line.startswith(b"{") and line.endswith(b"}")):
        return NOT_OBJECT
    try:
        row = _loads(line.decode())
    except UnicodeDecodeError:
        return NOT_UTF8
    except RecursionError:
        return None
    except ValueError:
        return NOT_OBJECT
    if not isinstance(row, dict):
        return NOT_OBJECT
    for name, (dtype, check) in checks.items():
        value = row.get(name)
        if value is not None and not check(value):
            return not_a(name, dtype)
    return None


def _loads(text: str) -> object:
    return json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_Number)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not isinstance(value, _Number)


def _text_check(dtype: pa.DataType) -> Check | None:
    types = pa.types
    if types.is_integer(dtype):
        return _integer_check(dtype)
    if types.is_floating(dtype) or types.is_decimal(dtype):
        return _matches(_NUMBER)
    if types.is_boolean(dtype):
        return _matches(_TRUTH)
    if types.is_timestamp(dtype) or types.is_date(dtype) or types.is_time(dtype):
        return _temporal_check(dtype, _ZONE if getattr(dtype, "tz", None) else "")
    return None


def _matches(pattern: re.Pattern[str]) -> Check:
    return lambda text: pattern.fullmatch(text) is not None


def _temporal_check(dtype: pa.DataType, zone: str) -> Check:
    """Return the check of a date, time or timestamp in the ISO 8601 forms that Arrow reads."""
    pattern = re.compile(rf"\s*{_temporal_form(dtype, zone)}\s*")

    def check(text: str) -> bool:
        found = pattern.fullmatch(text)
        return found is not None and ("day" not in pattern.groupindex or _is_day(found))

    return check


def _temporal_form(dtype: pa.DataType, zone: str) -> str:
    if pa.types.is_date(dtype):
        return _DATE
    seconds = f"(?:{_SIXTY}{_FRACTION[dtype.unit]})?"
    if pa.types.is_time(dtype):
        return f"{_HOUR}{_SIXTY}{seconds}"
    return f"{_DATE}(?:[ Tt]{_HOUR}(?:{_SIXTY}{seconds})?)?{zone}"


def _is_day(found: re.Match[str]) -> bool:
    year, month, day = (int(found[part]) for part in ("year", "month", "day"))
    return 1 <= month <= 12 and 1 <= day <= calendar.monthrange(year or 4, month)[1]


def _integer_check(dtype: pa.DataType) -> Check:
    signed = pa.types.is_signed_integer(dtype)
    low = -(1 << (dtype.bit_width - 1)) if signed else 0
    high = low + (1 << dtype.bit_width) - 1

    def check(text: str) -> bool:
        found = _INTEGER.fullmatch(text)
        if found is None:
            return False
        digits = found[1]
        return digits is None or len(digits) > _MOST_DIGITS or low <= int(digits) <= high

    return check


# --- Objects of JSON decoded by Arrow, with the types that its reader does not take from JSON.

_SHORTEST = len("00:00")


def read_objects(text: bytes, schema: pa.Schema | None, *, several_lines: bool = False) -> pa.Table:
    """Decode objects of valid UTF-8, as a schema if it is given; Arrow does not look whether it is valid.

    Dates and times of day are texts of ISO 8601 in all objects, or numbers in all: Arrow reads a column as one type.

    >>> read_objects(b'{"d": "2020-01-02"}', pa.schema({"d": pa.date32()})).to_pylist()
    [{'d': datetime.date(2020, 1, 2)}]
    """
    if not text.isascii():
        text.decode()
    if schema is None:
        return _read(text, None, several_lines)
    first, *others = _readable(schema)
    try:
        return _as_declared(_read(text, first, several_lines), schema)
    except pa.ArrowInvalid:
        if not others:
            raise
    return _as_declared(_read(text, others[0], several_lines), schema)


def _readable(schema: pa.Schema) -> Iterator[pa.Schema]:
    """List the schemas to read: dates and times as texts, then as the numbers Arrow takes them for."""
    with_numbers = pa.schema([field.with_type(_number_type(field.type)) for field in schema])
    with_texts = pa.schema([field.with_type(_text_type(field.type)) for field in with_numbers])
    yield with_texts
    if with_texts != with_numbers:
        yield with_numbers


def _number_type(dtype: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_duration(dtype) else dtype


def _text_type(dtype: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_date(dtype) or pa.types.is_time(dtype) else dtype


def _read(text: bytes, schema: pa.Schema | None, several_lines: bool) -> pa.Table:
    from pyarrow import json  # noqa: PLC0415 - loads when JSON is read

    return json.read_json(
        pa.BufferReader(text),
        json.ReadOptions(block_size=len(text) + 1, use_threads=False),
        json.ParseOptions(
            explicit_schema=schema,
            newlines_in_values=several_lines,
            unexpected_field_behavior="infer" if schema is None else "ignore",
        ),
    )


def _as_declared(table: pa.Table, schema: pa.Schema) -> pa.Table:
    for place, field in enumerate(table.schema):
        wanted = schema.field(field.name)
        if field.type != wanted.type:
            table = table.set_column(place, wanted, _converted(table.column(place), wanted))
    return table


def _converted(column: pa.ChunkedArray, wanted: pa.Field) -> pa.ChunkedArray:
    if not pa.types.is_time(wanted.type) or not pa.types.is_string(column.type):
        return _cast(column, wanted.type, wanted)
    import pyarrow.compute as pc  # noqa: PLC0415 - times of day are rare

    if (pc.min(pc.utf8_length(column)).as_py() or _SHORTEST) < _SHORTEST:
        raise ValueError(not_a(wanted.name, wanted.type))  # an hour alone is no time of day
    # Arrow has no cast from texts to times of day.
    instants = pc.binary_join_element_wise("1970-01-01T", column, "")
    return _cast(instants, pa.timestamp(wanted.type.unit), wanted).cast(wanted.type)


def _cast(column: pa.ChunkedArray, dtype: pa.DataType, wanted: pa.Field) -> pa.ChunkedArray:
    try:
        return column.cast(dtype)
    except pa.ArrowInvalid:
        raise ValueError(not_a(wanted.name, wanted.type)) from None  # what Arrow says quotes the value
