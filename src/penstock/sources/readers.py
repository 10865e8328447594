"""What columns files have, and the reader of Arrow files. (`ahead.py` reads Parquet, `text.py` text.)"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.sources.footers import footer
from penstock.sources.infer_text import csv_schema, json_schema
from penstock.types.arrow import names_of


@dataclass(frozen=True, slots=True)
class Reader:
    """How one format is read.

    `schema(path, declared)` learns the columns.
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


TEXT = ("csv", "json")
READERS: dict[str, Reader] = {"arrow": Reader(_ipc_schema, _ipc_batches)}


def stored_schema(path: str, format: str, declared: pa.Schema | None) -> pa.Schema:
    """Learn what columns a file has, text being read with the declared types if there are any."""
    found = _stored_schema(path, format, declared)
    names_of(found, f"the file {path!r}")
    return found


def _stored_schema(path: str, format: str, declared: pa.Schema | None) -> pa.Schema:
    match format:
        case "parquet":
            return footer(path).schema.to_arrow_schema()
        case "csv":
            return csv_schema(path, declared)
        case "json":
            return json_schema(path, declared)
        case _:
            return READERS[format].schema(path, declared)
