"""One reader for each format that is read as whole files (`ahead.py` reads Parquet). A reader streams: it never holds more than a part of the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import csv, json

from penstock.sources.footers import footer

_BLOCK = 1 << 24  # bytes of text parsed at a time: large batches, yet little beside the data itself


@dataclass(frozen=True, slots=True)
class Reader:
    """How one format is read.

    `schema(path, declared)` learns the columns; text is read with the declared types if there are any.
    `batches(path, columns, schema)` reads columns, in any order, perhaps with others.
    """

    schema: Callable[[str, pa.Schema | None], pa.Schema]
    batches: Callable[[str, Sequence[str], pa.Schema], Iterator[pa.RecordBatch]]


def _ipc(path: str) -> Any:
    """Map an IPC file into memory, or read it as an IPC stream if it is one."""
    source = pa.memory_map(path)
    try:
        return pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        return pa.ipc.open_stream(source)


def _ipc_schema(path: str, declared: pa.Schema | None) -> pa.Schema:
    with _ipc(path) as file:
        return file.schema


def _ipc_batches(path: str, columns: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with _ipc(path) as file:
        whole = isinstance(file, pa.ipc.RecordBatchFileReader)
        parts = map(file.get_batch, range(file.num_record_batches)) if whole else file
        for part in parts:
            needed = part.select(list(columns))
            needed.validate(full=True)  # a file may lie about its offsets, and kernels believe them
            yield needed


def _csv(path: str, declared: pa.Schema | None, columns: Sequence[str] | None) -> Any:
    """Open text with a header line, separated by tabs if the name says so, by commas else."""
    types = {} if declared is None else {field.name: field.type for field in declared}
    wanted = list(columns or [])
    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(block_size=_BLOCK),
        parse_options=csv.ParseOptions(delimiter="\t" if ".tsv" in path else ",", newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=types,
            include_columns=wanted,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _csv_schema(path: str, declared: pa.Schema | None) -> pa.Schema:
    with _csv(path, declared, None) as file:
        return file.schema


def _csv_batches(path: str, columns: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with _csv(path, schema, columns) as file:
        yield from file


def _json(path: str, explicit: pa.Schema | None) -> Any:
    """Open text of one JSON object a line."""
    beyond = "infer" if explicit is None else "ignore"
    parsing = json.ParseOptions(explicit_schema=explicit, unexpected_field_behavior=beyond)
    return json.open_json(path, read_options=json.ReadOptions(block_size=_BLOCK), parse_options=parsing)


def _json_schema(path: str, declared: pa.Schema | None) -> pa.Schema:
    with _json(path, None) as file:
        found = file.schema
    types = {} if declared is None else {field.name: field.type for field in declared}
    return pa.schema([pa.field(field.name, types.get(field.name, field.type)) for field in found])


def _json_batches(path: str, columns: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with _json(path, schema) as file:
        yield from file


TEXT = ("csv", "json")
READERS: dict[str, Reader] = {
    "arrow": Reader(_ipc_schema, _ipc_batches),
    "csv": Reader(_csv_schema, _csv_batches),
    "json": Reader(_json_schema, _json_batches),
}


def stored_schema(path: str, format: str, declared: pa.Schema | None) -> pa.Schema:
    """Learn what columns a file has, text being read with the declared types if there are any."""
    if format == "parquet":
        return footer(path).schema.to_arrow_schema()
    return READERS[format].schema(path, declared)
