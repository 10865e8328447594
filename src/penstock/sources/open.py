"""Open data on disk in any format, for `pk.scan`."""

from __future__ import annotations

import os

import pyarrow as pa

from penstock.errors import SourceError
from penstock.sources.bound import Bound
from penstock.sources.conform import check
from penstock.sources.dataset import open_files
from penstock.sources.paths import TABLES, Paths
from penstock.storage.access import LOCAL, Access
from penstock.storage.uri import resolved
from penstock.types.choices import one_of


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
