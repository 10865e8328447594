"""A version of a lake table: its schema, and its Parquet files with their metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import SourceError, UnsupportedError
from penstock.sources import parquet_footers
from penstock.sources.conform import BELOW, check, columns_alone, own_type
from penstock.sources.dataset import THREADS, Dataset
from penstock.sources.fragment import Fragment, Numbers, packed, within
from penstock.sources.paths import FoundFile, Partition
from penstock.sources.read_errors import reading
from penstock.storage.access import LOCAL, Access
from penstock.storage.uri import CLOUD, HADOOP

_ID = b"PARQUET:field_id"

Resolve = Callable[[pa.Schema, str], dict[str, str]]


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file: values that apply to all its rows, and the numbers of its deleted rows."""

    path: str
    partition: Partition = ()
    gone: Numbers | None = None


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A version of a table, bound to a stream like any other data.

    `resolve` maps, for the stored schema of a file, each of the table's columns to its name in the file, and paths of
    fields in structs too where they differ. What is missing in a file was added to the table later: it is null in all its rows.
    """

    schema: pa.Schema
    files: tuple[DataFile, ...]
    resolve: Resolve = field(compare=False)
    access: Access = LOCAL

    @property
    def rows(self) -> int | None:
        return self.dataset().rows

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        return self.dataset().batches(columns)

    def dataset(self, time: str | None = None) -> Dataset:
        """Inspect and check every file, and find its fragments."""
        with ThreadPoolExecutor(THREADS) as pool:
            parts = pool.map(
                lambda file: reading(file.path, lambda _: self._fragments(file, time), self.access),
                self.files,
            )
            return Dataset(self.schema, tuple(part for piece in parts for part in piece), self.access)

    def _fragments(self, file: DataFile, time: str | None) -> list[Fragment]:
        metadata = parquet_footers.footer(file.path, self.access)
        stored = metadata.schema.to_arrow_schema()
        given = {name for name, _ in file.partition}
        names = {
            ours: theirs for ours, theirs in self.resolve(stored, file.path).items() if ours not in given
        }
        self._check(file, self._named(_instants(stored, metadata), names))
        absent = [(name, None) for name in self.schema.names if name not in given and name not in names]
        found = FoundFile(file.path, (*file.partition, *absent))
        clock = None if time is None or time not in names else self.schema.field(time).with_name(names[time])
        parts = parquet_footers.row_groups(found, metadata, clock, stored)
        renamed = tuple((ours, theirs) for ours, theirs in names.items() if ours != theirs)
        named = [replace(part, renamed=renamed) for part in parts]
        return named if file.gone is None else list(_without(named, file, file.gone))

    def _named(self, stored: pa.Schema, names: dict[str, str]) -> pa.Schema:
        """Return a file's schema under the table's names."""
        found = [(ours, stored.field(theirs)) for ours, theirs in columns_alone(names).items()]
        return pa.schema(
            [
                field.with_name(ours).with_type(
                    own_type(field.type, self.schema.field(ours).type, ours, names)
                )
                for ours, field in found
            ]
        )

    def _check(self, file: DataFile, stored: pa.Schema) -> None:
        inside = pa.schema([column for column in self.schema if column.name in stored.names])
        check(stored, inside, f"the file {file.path!r}")


def _instants(stored: pa.Schema, metadata: Any) -> pa.Schema:
    """Read 96-bit timestamps as instants: Spark writes them as such, without declaring it."""
    for name in parquet_footers.legacy_times(metadata):
        place = stored.get_field_index(name)
        if place >= 0:
            stored = stored.set(place, pa.field(name, pa.timestamp("us", "UTC")))
    return stored


def _without(parts: Sequence[Fragment], file: DataFile, gone: Numbers) -> Iterator[Fragment]:
    """Attach the deleted rows to each fragment, and drop fragments without remaining rows."""
    start = 0
    for part in parts:
        rows = part.rows or 0
        here = within(gone, start, start + rows)
        start += rows
        if len(here) < rows:
            yield replace(part, rows=rows - len(here), deletes=(packed(here),)) if len(here) else part
    if len(gone) and not 0 <= gone[0] <= gone[-1] < start:
        raise SourceError(f"the table's metadata deletes rows that the file {file.path!r} does not have")


def field_ids(stored: pa.Schema | pa.StructType) -> dict[int, str]:
    """Return the names of a file's columns, or of a struct's fields, by their ids; empty if it has none."""
    return {
        int(field.metadata[_ID]): field.name for field in stored if field.metadata and _ID in field.metadata
    }


def by_id(ids: dict[str, int], names: Resolve) -> Resolve:
    """Resolve columns by the ids in a file; by name in a file without ids, as fields of structs are."""

    def resolve(stored: pa.Schema, path: str) -> dict[str, str]:
        known, named = field_ids(stored), names(stored, path)
        if not known:
            return named
        inside = {ours: theirs for ours, theirs in named.items() if BELOW in ours}
        return {ours: known[number] for ours, number in ids.items() if number in known} | inside

    return resolve


def by_name(schema: pa.Schema, physical: dict[str, str]) -> Resolve:
    """Resolve columns by name, with the mapped names of files, also of fields in structs."""
    wanted = {name: physical.get(name, name) for name in schema.names}
    inside = {ours: theirs for ours, theirs in physical.items() if BELOW in ours}
    return lambda stored, _path: (
        {ours: theirs for ours, theirs in wanted.items() if theirs in stored.names} | inside
    )


def file_path(uri: str, table: str, access: Access = LOCAL) -> str:
    """Return the path or URI of a table's file, given relative to the table or as a URI."""
    if "\0" in uri:
        raise SourceError(
            f"the metadata of the table {table!r} is damaged: it names a file as none can be named"
        )
    scheme, sign, rest = uri.partition("://")
    afar = access.reaches(table)
    if not sign:
        return f"{table.rstrip('/')}/{uri}" if afar else str(Path(table).absolute() / uri)
    if afar and scheme.lower() in (*CLOUD, *HADOOP):
        return uri
    if afar or scheme != "file":
        raise UnsupportedError(
            f"the table {table!r} has files at {scheme}://, which is another store than its own; "
            "read it with Spark and bind that"
        )
    return rest if rest.startswith("/") else f"/{rest}"
