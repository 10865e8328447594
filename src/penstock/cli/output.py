"""Print Arrow tables, and write them in the format of their file name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.guard import CommandError
from penstock.errors import SourceError
from penstock.sources.side_output import open_private

Writer = Callable[[pa.Table, Path], None]


def print_table(console: Console, table: pa.Table, limit: int) -> None:
    """Print the first `limit` rows and the total number of rows."""
    shown = Table(show_edge=False)
    for field in table.schema:
        shown.add_column(Text(field.name), justify="right" if is_number(field.type) else "left")
    columns = [column.to_pylist() for column in table.slice(0, limit).columns]
    for row in zip(*columns, strict=True):
        shown.add_row(*(Text("null", style="dim") if cell is None else Text(str(cell)) for cell in row))
    console.print(shown)
    rest = table.num_rows - limit
    console.print(f"{table.num_rows:,} rows" + (f", {rest:,} not shown" if rest > 0 else ""), style="dim")


def is_number(kind: pa.DataType) -> bool:
    """Check whether a column is aligned to the right."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def check_suffix(path: Path) -> Writer:
    """Return the writer for a file name."""
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise CommandError(f"cannot determine the format of {path}: end its name in {', '.join(WRITERS)}")
    return writer


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table in the format of its file name."""
    writer = check_suffix(path)
    try:
        writer(table, path)
    except OSError as error:
        raise SourceError(f"cannot write {path}: {error}") from error


def write_parquet(table: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq  # noqa: PLC0415 - slow to load

    with open_private(path) as sink:
        pq.write_table(table, sink)


def write_arrow(table: pa.Table, path: Path) -> None:
    with open_private(path) as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def write_csv(table: pa.Table, path: Path) -> None:
    from pyarrow import csv  # noqa: PLC0415 - slow to load

    with open_private(path) as sink:
        csv.write_csv(table, sink)


def write_json(table: pa.Table, path: Path) -> None:
    """Write one JSON object per line; times as ISO 8601."""
    with open_private(path) as sink:
        for batch in table.to_batches(max_chunksize=10_000):
            for row in batch.to_pylist():
                text = json.dumps(row, default=json_value, ensure_ascii=False)
                sink.write(text.encode("utf-8") + b"\n")


def json_value(value: object) -> str:
    """Encode values that JSON lacks: times, dates and durations as ISO 8601 or plain text."""
    iso = getattr(value, "isoformat", None)
    return str(iso() if iso else value)


WRITERS: dict[str, Writer] = {
    ".parquet": write_parquet,
    ".arrow": write_arrow,
    ".feather": write_arrow,
    ".ipc": write_arrow,
    ".csv": write_csv,
    ".json": write_json,
    ".jsonl": write_json,
    ".ndjson": write_json,
}
