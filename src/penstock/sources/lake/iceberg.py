"""Iceberg tables, through the `pyiceberg` package: manifests list files and deleted rows.

Columns are found by id, never by name: a dropped column and a later column of the same name are different.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError, SourceError, UnsupportedError
from penstock.sources.lake.table import DataFile, LakeTable, Resolve, file_path
from penstock.sources.parquet_footers import open_parquet
from penstock.sources.read_errors import reading
from penstock.sources.row_deletes import Numbers
from penstock.sources.stored_row_groups import local_copy
from penstock.storage.access import LOCAL, Access
from penstock.types.arrow import checked

_ID = b"PARQUET:field_id"
_DATA_FILE = "referenced-data-file"
_HINT = "version-hint.text"
_VERSION = re.compile(r"(?:v(\d+)|(\d+)-.*)(?:\.gz)?\.metadata\.json")


def open_iceberg(path: str, snapshot: int | None = None, access: Access = LOCAL) -> LakeTable:
    """Read a table's metadata (its folder, or a metadata file) as of a snapshot, the current one by default."""
    try:
        return _opened(path, snapshot, access)
    except PenstockError:
        raise
    except ImportError:
        raise UnsupportedError(
            "format='iceberg' needs the package pyiceberg; install penstock[iceberg]"
        ) from None
    except NotImplementedError:
        raise _unreadable_deletes(path) from None
    except Exception as reason:  # noqa: BLE001 - pyiceberg's errors have no base class, and damaged metadata can raise any exception
        raise SourceError(
            f"{path!r} cannot be read as an Iceberg table: {type(reason).__name__}; "
            "give the table's folder or its newest metadata file"
        ) from None


def _opened(path: str, snapshot: int | None, access: Access) -> LakeTable:
    table = _table(path, _metadata_file(path, access), access)
    if snapshot is not None and table.metadata.snapshot_by_id(snapshot) is None:
        raise SourceError(
            f"the Iceberg table {path!r} has no snapshot {snapshot}; leave out snapshot= for the newest"
        )
    scan = table.scan(snapshot_id=snapshot)
    fields = scan.projection()
    tasks = _tasks(scan, path)
    files = tuple(sorted((_file(task, path, access) for task in tasks), key=lambda data_file: data_file.path))
    return LakeTable(_schema(fields), files, _by_id(fields), access)


def _table(path: str, metadata_file: str, access: Access) -> Any:
    """Open a table with checked file access. (pyiceberg would import and call the code named in the table's properties.)"""
    from pyiceberg.catalog.noop import NoopCatalog  # noqa: PLC0415 - an optional dependency
    from pyiceberg.serializers import FromInputFile  # noqa: PLC0415
    from pyiceberg.table import StaticTable  # noqa: PLC0415

    from penstock.sources.lake.checked_io import CheckedIO  # noqa: PLC0415 - loads pyiceberg

    files = CheckedIO(path, access)
    metadata = FromInputFile.table_metadata(files.new_input(metadata_file))
    name = ("static-table", metadata_file)
    return StaticTable(name, metadata, metadata_file, files, NoopCatalog("static-table"))


def _metadata_file(path: str, access: Access) -> str:
    """Find the newest metadata file in a table's folder."""
    if path.endswith(".json") and access.reaches(path):
        return path
    whole = Path(path).absolute()
    if not access.reaches(path) and whole.is_file():
        return str(whole)
    named, found = _in_store(path, access) if access.reaches(path) else _in_folder(whole / "metadata")
    found = {name: file for name, file in found.items() if _VERSION.fullmatch(name)}
    if named is not None:
        wanted = {named, f"v{named}.metadata.json", f"{named}.metadata.json"}
        found = {name: file for name, file in found.items() if name in wanted}
    newest = max(map(_number, found), default=-1)
    chosen = [file for name, file in found.items() if _number(name) == newest]
    if len(chosen) != 1:
        what = "no metadata" if not chosen else "several newest metadata files"
        raise SourceError(f"the folder {path!r} has {what}; give the metadata file of an Iceberg table")
    return chosen[0]


def _in_folder(folder: Path) -> tuple[str | None, dict[str, str]]:
    """Return the version that a folder's hint names, and its files by name."""
    hint = folder / _HINT
    named = hint.read_text(encoding="utf-8").strip() if hint.is_file() else None
    return named, {path.name: str(path) for path in folder.glob("*.metadata.json")}


def _in_store(table: str, access: Access) -> tuple[str | None, dict[str, str]]:
    found = {path.rpartition("/")[2]: path for path, _ in access.list(f"{table.rstrip('/')}/metadata/")}
    hint = found.get(_HINT)
    named = None if hint is None else reading(hint, access.read, access).decode().strip()
    return named, found


def _number(name: str) -> int:
    found = _VERSION.fullmatch(name)
    return -1 if found is None else int(found[1] or found[2])


def _tasks(scan: Any, path: str) -> Iterable[Any]:
    """Plan the files. Equality deletes are rejected, by pyiceberg or here."""
    try:
        return list(scan.plan_files())
    except ValueError as reason:
        if "equality" in str(reason).lower():
            raise _unreadable_deletes(path) from None
        raise


def _unreadable_deletes(path: str) -> UnsupportedError:
    return UnsupportedError(
        f"the Iceberg table {path!r} deletes rows by equality, which this version cannot honour; "
        "compact it (rewrite_data_files), or read it with Spark and bind that"
    )


def _file(task: Any, path: str, access: Access) -> DataFile:
    _refuse_format(task.file, path)
    gone = [_positions(file, task.file.file_path, path, access) for file in task.delete_files]
    numbers = np.unique(np.concatenate(gone)) if gone else None
    return DataFile(file_path(task.file.file_path, path, access), gone=numbers)


def _refuse_format(file: Any, path: str) -> None:
    if file.file_format.name != "PARQUET":
        raise UnsupportedError(
            f"the Iceberg table {path!r} has {file.file_format.name} files, and this version reads Parquet alone; "
            "read it with Spark and bind that"
        )


def _positions(deletes: Any, file: str, path: str, access: Access) -> Numbers:
    """Read the deleted row numbers of a file from a delete file or a deletion vector."""
    if deletes.content.name != "POSITION_DELETES":
        raise _unreadable_deletes(path)
    where = file_path(deletes.file_path, path, access)
    if deletes.file_format.name == "PUFFIN":
        return reading(where, lambda _: _vector(where, file, access), access)
    _refuse_format(deletes, path)
    return reading(where, lambda _: _listed(where, file, access), access)


def _listed(where: str, file: str, access: Access) -> Numbers:
    with local_copy(where, access) as path, open_parquet(path) as opened:
        table = opened.read(["file_path", "pos"], use_threads=False)
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to load

    chosen = table.filter(pc.equal(table["file_path"], file))
    return np.asarray(chosen["pos"].to_numpy(), np.int64)


def _vector(where: str, file: str, access: Access) -> Numbers:
    from pyiceberg.table.puffin import PuffinFile  # noqa: PLC0415

    from penstock.sources.lake.vectors import rows_of  # noqa: PLC0415 - loads dependencies of pyiceberg

    puffin = PuffinFile(access.read(where) if access.reaches(where) else Path(where).read_bytes())
    blobs = [blob for blob in puffin.footer.blobs if blob.properties.get(_DATA_FILE) == file]
    parts = [rows_of(where, puffin.get_blob_payload(blob)) for blob in blobs]
    return np.concatenate([*parts, np.zeros(0, np.int64)]).astype(np.int64)


# --- columns --------------------------------------------------------------------------------------------


def _schema(fields: Any) -> pa.Schema:
    from pyiceberg.io.pyarrow import schema_to_pyarrow  # noqa: PLC0415

    return checked(pa.schema([field.with_type(_small(field.type)) for field in schema_to_pyarrow(fields)]))


def _small(dtype: pa.DataType) -> pa.DataType:
    """Replace large text and binary types by those with 32-bit offsets, which other writers use."""
    if pa.types.is_large_string(dtype):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(dtype) else dtype


def _by_id(fields: Any) -> Resolve:
    wanted = {field.field_id: field for field in fields.fields}

    def resolve(stored: pa.Schema, path: str) -> dict[str, str]:
        ids = {
            int(field.metadata[_ID]): field.name
            for field in stored
            if field.metadata and _ID in field.metadata
        }
        if not ids:
            raise UnsupportedError(
                f"the columns of the file {path!r} carry no Iceberg ids (it was added to the table as it was), "
                "so this version cannot tell them; rewrite it (rewrite_data_files)"
            )
        _refuse_defaults([field for number, field in wanted.items() if number not in ids])
        return {field.name: ids[number] for number, field in wanted.items() if number in ids}

    return resolve


def _refuse_defaults(absent: Iterable[Any]) -> None:
    for field in absent:
        if getattr(field, "initial_default", None) is not None:
            raise UnsupportedError(
                f"column {field.name!r} was added with a default value, which this version cannot fill in; "
                "rewrite the older files (rewrite_data_files)"
            )
