"""Files as one dataset: one schema, and fragments that can be read independently, here or on other machines.

Planning reads names and footers only. Every file is checked before any row is read: an error about a missing column, or
one of another type, names its file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from penstock.errors import SchemaMismatchError, SourceError
from penstock.expr.nodes import Expr
from penstock.sources import parquet_footers, readers
from penstock.sources.bound import Bound
from penstock.sources.conform import check, wider_type
from penstock.sources.fragment import Fragment, constant, with_partitions
from penstock.sources.malformed import Malformed
from penstock.sources.parquet_decode import CONNECTIONS
from penstock.sources.parquet_footers import Footer
from penstock.sources.paths import TABLES, FoundFile, Paths, find, format_of
from penstock.sources.prefetch import read_ahead
from penstock.sources.read_errors import reading
from penstock.storage.access import LOCAL, Access
from penstock.storage.uri import resolved
from penstock.types.arrow import checked
from penstock.types.choices import one_of
from penstock.types.windows import Steps

THREADS = 8  # planning is bound by disk latency more than by processors
_MOST_FOOTERS = 1000  # held from planning to reading; more are read again


@dataclass(frozen=True, slots=True)
class Dataset:
    """A planned read: the declared schema, and all fragments in order of path and row.

    >>> import tempfile, pyarrow.parquet as pq
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"t": [3, 1, 2, 9]}), folder + "/a.parquet", row_group_size=2)
    ...     data = Dataset.of(folder, time="t")
    ...     [(each.rows, each.time_min, each.time_max) for each in data.fragments]
    ...     [batch.column("t").to_pylist() for batch in data.batches(["t"])]
    [(2, 1, 3), (2, 2, 9)]
    [[3, 1, 2, 9]]
    """

    schema: pa.Schema
    fragments: tuple[Fragment, ...]
    access: Access = LOCAL
    # Footers that planning has read from a store, so that reading need not request them again.
    footers: Mapping[str, Footer] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def of(
        paths: Paths,
        format: str | None = None,
        time: str | None = None,
        schema: pa.Schema | None = None,
        access: Access = LOCAL,
    ) -> Dataset:
        """Plan a read of paths, folders and globs. `time` names the column whose ranges are collected."""
        return open_files(paths, format, schema, access).dataset(time)

    @property
    def rows(self) -> int | None:
        counts = [fragment.rows for fragment in self.fragments]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def typed(self, types: Mapping[str, pa.DataType]) -> Dataset:
        """Return the same data with other types of some columns: structs with fewer fields, which alone are decoded."""
        fields = [field.with_type(types.get(field.name, field.type)) for field in self.schema]
        return replace(self, schema=pa.schema(fields))

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Expr | None = None,
        threads: int | None = None,
        steps: Steps | None = None,
        malformed: Malformed | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Read all fragments in order, prefetching on other threads, and skip those that certainly fail the predicate."""
        return read_ahead(
            self.fragments,
            self.schema,
            columns,
            predicate,
            threads,
            steps,
            malformed,
            self.access,
            self.footers,
        )


@dataclass(frozen=True, slots=True)
class Files:
    """Files of one format with one schema: the declared one, that of the first file, or that of all.

    A column that some files lack is null in their rows, but for the one that every file `needs`, the time. Each column is
    in one file at least, or, where further files will come (`more_will_come`), in one of those.
    """

    found: tuple[FoundFile, ...]
    format: str
    schema: pa.Schema
    access: Access = LOCAL
    more_will_come: bool = False
    needs: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(file.path for file in self.found)

    @property
    def rows(self) -> int | None:
        return self.dataset().rows if self.format == "parquet" else None

    def dataset(self, time: str | None = None) -> Dataset:
        """Inspect and check every file, and find its fragments."""
        field = None if time is None or time not in self.schema.names else self.schema.field(time)
        _check_partitions(self.found, self.schema)
        plan = self._row_groups if self.format == "parquet" else self._whole_file
        few = self._afar and len(self.found) <= _MOST_FOOTERS
        footers = {file.path: Footer(file.path, self.access) for file in self.found} if few else {}
        with ThreadPoolExecutor(CONNECTIONS if self._afar else THREADS) as pool:
            parts = pool.map(
                lambda file: reading(file.path, lambda _: plan(file, field, footers), self.access), self.found
            )
            planned = [piece for piece in parts if piece is not None]
        self._refuse_absent(planned)
        fragments = tuple(part for piece in planned for part in piece.fragments)
        return Dataset(self.schema, fragments, self.access, footers)

    def _refuse_absent(self, planned: Sequence[_Planned]) -> None:
        """Reject a column that no file has."""
        if self.more_will_come or not planned:
            return
        nowhere = frozenset.intersection(*(frozenset(piece.absent) for piece in planned))
        for name in self.schema.names:
            if name in nowhere:
                check(
                    planned[0].stored, pa.schema([self.schema.field(name)]), f"the file {planned[0].path!r}"
                )

    @property
    def _afar(self) -> bool:
        return bool(self.found) and self.access.reaches(self.found[0].path)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        return self.dataset().batches(columns)

    def _row_groups(self, found: FoundFile, time: pa.Field | None, footers: Mapping[str, Footer]) -> _Planned:
        metadata = (footers.get(found.path) or Footer(found.path, self.access)).get()
        stored = metadata.schema.to_arrow_schema()
        absent = self._checked(found, stored)
        file = replace(found, partition=(*found.partition, *((name, None) for name in absent)))
        groups = parquet_footers.row_groups(file, metadata, time, stored)
        return _Planned(found.path, stored, absent, tuple(groups))

    def _whole_file(
        self, found: FoundFile, time: pa.Field | None, footers: Mapping[str, Footer]
    ) -> _Planned | None:
        size = size_of(found, self.access)
        if size == 0 and self.format in readers.TEXT:
            return None  # no rows and no header
        stored = readers.stored_schema(found.path, self.format, self.schema, self.access)
        absent = self._checked(found, stored)
        nulls = tuple((name, None) for name in absent)
        whole = Fragment(found.path, self.format, partition=(*found.partition, *nulls), size=size)
        return _Planned(found.path, stored, absent, (whole,))

    def _checked(self, found: FoundFile, stored: pa.Schema) -> tuple[str, ...]:
        """Check a file's columns, and return the declared ones that it lacks."""
        given = {name for name, _ in found.partition}
        there = given.union(stored.names)
        absent = [field.name for field in self.schema if field.name not in there]
        inside = [
            field
            for field in self.schema
            if field.name not in given and (field.name in there or field.name == self.needs)
        ]
        check(stored, pa.schema(inside), f"the file {found.path!r}")
        return tuple(absent)


@dataclass(frozen=True, slots=True)
class _Planned:
    """A planned file: its stored schema, the declared columns that it lacks, and its fragments."""

    path: str
    stored: pa.Schema
    absent: tuple[str, ...]
    fragments: tuple[Fragment, ...]


def open_files(
    paths: Paths,
    given: str | None = None,
    schema: pa.Schema | None = None,
    access: Access = LOCAL,
    merge: bool = False,
) -> Files:
    """Find the files, and read the schema of the first, or of all, unless one is declared."""
    found = find(paths, access=access)
    format = format_of(found, given)
    if schema is not None:
        return Files(found, format, checked(schema), access)
    known = _merged_schema(found, format, access) if merge else _first_schema(found, format, access)
    return Files(found, format, known, access)


def _merged_schema(found: Sequence[FoundFile], format: str, access: Access) -> pa.Schema:
    """Return the columns of all files, each in the type that holds its values in every file."""
    filled = [file.path for file in found if not (format in readers.TEXT and _is_empty(file, access))]
    paths = filled or [found[0].path]

    def stored(path: str) -> pa.Schema:
        return checked(reading(path, lambda at: readers.stored_schema(at, format, None, access), access))

    with ThreadPoolExecutor(CONNECTIONS if access.reaches(paths[0]) else THREADS) as pool:
        merged: dict[str, pa.DataType] = {}
        for path, schema in zip(paths, pool.map(stored, paths), strict=True):
            for field in schema:
                merged[field.name] = _both(merged.get(field.name, field.type), field, path)
    return checked(with_partitions(pa.schema(list(merged.items())), found))


def _both(known: pa.DataType, field: pa.Field, path: str) -> pa.DataType:
    both = wider_type(known, field.type)
    if both is None:
        raise SchemaMismatchError(
            f"column {field.name!r} of the file {path!r} is {field.type}, but {known} in files before it, and no type "
            "holds the values of both; declare one with schema=, or rewrite the files"
        )
    return both


def _first_schema(found: Sequence[FoundFile], format: str, access: Access) -> pa.Schema:
    """Return the schema of the first file that has one."""
    text = format in readers.TEXT
    filled = (file.path for file in found if not (text and _is_empty(file, access)))
    first = next(filled, found[0].path)
    stored = reading(first, lambda path: readers.stored_schema(path, format, None, access), access)
    try:
        return checked(with_partitions(stored, found))
    except SchemaMismatchError as error:
        raise SchemaMismatchError(f"the file {first!r} cannot be read: {error}") from None


def _is_empty(found: FoundFile, access: Access) -> bool:
    return reading(found.path, lambda _: size_of(found, access) == 0, access)


def size_of(found: FoundFile, access: Access) -> int:
    """Return the size of a file."""
    if found.size is not None:
        return found.size
    return access.size(found.path) if access.reaches(found.path) else Path(found.path).stat().st_size


def _check_partitions(found: Sequence[FoundFile], schema: pa.Schema) -> None:
    """Reject folder values that do not parse as the declared type."""
    seen: set[tuple[str, str | None]] = set()
    for file in found:
        for name, text in file.partition:
            if (name, text) not in seen and name in schema.names:
                seen.add((name, text))
                constant(text, schema.field(name), file.path)


# --- Open data on disk in any format, for `pk.scan`.


def open_data(
    paths: Paths,
    format: str | None = None,
    schema: pa.Schema | None = None,
    version: int | None = None,
    snapshot: int | None = None,
    access: Access = LOCAL,
    merge: bool = False,
) -> Bound:
    """Find files or read a table's metadata. Rows are read later."""
    if not one_of(format, TABLES):
        _refuse(version=version, snapshot=snapshot)
        return open_files(paths, format, schema, access, merge)
    if merge:
        raise SourceError(f"format={format!r} has one schema for all files; leave merge_schema= out")
    if not isinstance(paths, (str, os.PathLike)):
        raise SourceError(f"format={format!r} takes the folder of one table; put tables together with union")
    data = _table(resolved(os.fspath(paths)), format, version, snapshot, access)
    if schema is not None:
        check(data.schema, schema, f"the table {os.fspath(paths)!r}")
    return data


def _table(path: str, format: str, version: int | None, snapshot: int | None, access: Access) -> Bound:
    if format == "delta":
        from penstock.sources.lake.delta import open_delta  # noqa: PLC0415 - loads an optional dependency

        _refuse(snapshot=snapshot)
        return open_delta(path, version, access)
    from penstock.sources.lake.iceberg import open_iceberg  # noqa: PLC0415 - loads an optional dependency

    _refuse(version=version)
    return open_iceberg(path, snapshot, access)


def _refuse(**given: int | None) -> None:
    formats = {"version": "delta", "snapshot": "iceberg"}
    for name, value in given.items():
        if value is not None:
            raise SourceError(f"{name}= goes with format={formats[name]!r}; leave it out")
