"""Run streaming SQL over files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from rich.console import Console

import penstock as pk
from penstock.cli.guard import CommandError
from penstock.cli.output import check_suffix, print_table, write_table
from penstock.cli.run import collect
from penstock.errors import SourceError
from penstock.sources.dataset import open_data


@dataclass(frozen=True, slots=True)
class SqlRequest:
    """The arguments of `penstock sql`."""

    text: str
    streams: Sequence[str]
    tables: Sequence[str]
    times: Sequence[str]
    unit: str | None
    output: Path | None
    limit: int
    threads: int | None
    explain: bool


def run_sql(request: SqlRequest) -> None:
    """Run a query and print its first rows, write all of them to a file, or explain it."""
    console = Console()
    if request.output is not None:
        check_suffix(request.output)
    query = pk.sql(_text(request.text), **_sources(request))
    if request.explain:
        console.print(str(query.explain()), markup=False, highlight=False, soft_wrap=True)
        return
    result = collect(query, request.threads)
    if request.output is None:
        print_table(console, result, request.limit)
        return
    write_table(result, request.output)
    console.print(f"{result.num_rows:,} rows written to {request.output}", highlight=False, markup=False)


def _text(given: str) -> str:
    """Return the query text, read from a file if the name ends in .sql."""
    if not given.lower().endswith(".sql") or "\n" in given:
        return given
    try:
        return Path(given).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise SourceError(f"cannot read {given}: {error}") from error


def _sources(request: SqlRequest) -> dict[str, pk.Stream]:
    streams, tables = _pairs(request.streams, "--stream"), _pairs(request.tables, "--table")
    if set(streams) & set(tables):
        raise CommandError("a stream and a table have one name; call one of them otherwise")
    times = _times(request.times, streams)
    read = {
        name: pk.scan(path, time=times[name], name=name, unit=request.unit) for name, path in streams.items()
    }
    return read | {name: pk.table(_whole(path), name=name) for name, path in tables.items()}


def _whole(path: str) -> pa.Table:
    """Read a whole table, since joins need all its rows."""
    data = open_data(path)
    return pa.Table.from_batches(data.batches(data.schema.names), schema=data.schema)


def _pairs(given: Sequence[str], flag: str) -> dict[str, str]:
    """Parse NAME=PATH."""
    pairs = [argument.partition("=") for argument in given]
    wrong = [
        argument
        for argument, (name, equals, path) in zip(given, pairs, strict=True)
        if not (name and equals and path)
    ]
    if wrong:
        raise CommandError(f"{flag} {wrong[0]!r}: write NAME=PATH, such as events=events.parquet")
    found = {name: path for name, _, path in pairs}
    if len(found) < len(pairs):
        raise CommandError(f"{flag} gives one name twice; give each name once")
    return found


def _times(given: Sequence[str], streams: dict[str, str]) -> dict[str, str]:
    """Parse --time COLUMN, for all streams, and --time NAME=COLUMN, for one."""
    pairs = [argument.partition("=") for argument in given]
    own = {name: column for name, equals, column in pairs if equals}
    common = [name for name, equals, _ in pairs if not equals]
    unknown = sorted(set(own) - set(streams))
    if unknown or len(common) > 1:
        raise CommandError(
            "--time is a column, once for all streams, or NAME=COLUMN for one that --stream gives"
        )
    missing = [name for name in streams if name not in own and not common]
    if missing:
        raise CommandError(f"which column of {missing[0]!r} is its time? write --time {missing[0]}=COLUMN")
    return {name: own.get(name, common[0] if common else "") for name in streams}
