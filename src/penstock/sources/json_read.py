"""Objects of JSON decoded by Arrow, with the types that its reader does not take from JSON."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.sources.text_checks import not_a

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
