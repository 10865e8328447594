"""Delta tables, through the `deltalake` package: the log lists files, partition values and deletion vectors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError, SourceError, UnsupportedError
from penstock.sources.conform import BELOW
from penstock.sources.fragment import Numbers
from penstock.sources.lake.table import DataFile, LakeTable, by_id, by_name, file_path
from penstock.sources.paths import Partition
from penstock.storage.access import LOCAL, Access
from penstock.storage.delta import delta_options
from penstock.types.arrow import checked

# The supported reader features. Any other feature in a table's protocol could change the rows.
_UNDERSTOOD = frozenset(
    {"deletionVectors", "columnMapping", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
    | {"typeWidening", "typeWidening-preview"}
)
_PHYSICAL, _COLUMN_ID = "delta.columnMapping.physicalName", "delta.columnMapping.id"


def open_delta(path: str, version: int | None = None, access: Access = LOCAL) -> LakeTable:
    """Read a table's log up to a version, the newest by default."""
    try:
        return _opened(path, version, access)
    except PenstockError:
        raise
    except Exception as reason:  # noqa: BLE001 - a damaged log can raise any exception
        raise _unreadable(path, version, reason, access) from None


def _opened(path: str, version: int | None, access: Access) -> LakeTable:
    table = _loaded(path, version, access)
    _refuse_features(path, table)
    schema = checked(pa.schema(table.schema().to_arrow()))
    physical, ids = _physical_names(table), _field_ids(table)
    added, gone = _added(path, table, physical, access), _gone(path, table, access)
    missing = gone.keys() - added.keys()
    if missing:
        raise SourceError(
            f"the log of {path!r} deletes rows of a file it does not list: {min(missing)!r}; restore the log"
        )
    files = tuple(DataFile(file, partition, gone.get(file)) for file, partition in added.items())
    names = by_name(schema, physical)
    return LakeTable(schema, files, by_id(ids, names) if ids else names, access)


def _loaded(path: str, version: int | None, access: Access) -> Any:
    try:
        import deltalake  # noqa: PLC0415 - an optional dependency
    except ImportError:
        raise UnsupportedError(
            "format='delta' needs the package deltalake; install penstock[delta]"
        ) from None
    if access.reaches(path):
        return deltalake.DeltaTable(path, version=version, storage_options=delta_options(path, access))
    if not Path(path).is_dir():
        raise SourceError(f"there is no folder {path!r}; give the folder of a Delta table")
    return deltalake.DeltaTable(str(Path(path).absolute()), version=version)


def _unreadable(path: str, version: int | None, reason: Exception, access: Access) -> SourceError:
    at = "" if version is None else f" at version {version}"
    # The messages of a store quote addresses, which may hold signatures.
    why = type(reason).__name__ if access.reaches(path) else _first_line(reason)
    hint = ", the storage_options" if access.reaches(path) else ""
    return SourceError(
        f"{path!r} cannot be read as a Delta table{at}: {why}; check the path{hint} and the version"
    )


def _first_line(reason: Exception) -> str:
    """Return the first line of the log reader's message, which contains no rows."""
    return next(iter(str(reason).splitlines()), type(reason).__name__)


def _refuse_features(path: str, table: Any) -> None:
    protocol = table.protocol()
    unknown = sorted(set(protocol.reader_features or ()) - _UNDERSTOOD)
    if unknown or protocol.min_reader_version > 3:
        what = ", ".join(unknown) or f"reader version {protocol.min_reader_version}"
        raise UnsupportedError(
            f"the Delta table {path!r} needs what this version cannot read: {what}; read it with Spark and bind that"
        )


def _physical_names(table: Any) -> dict[str, str]:
    """Return the names of columns in files, where they are mapped, and those of fields in structs."""
    return {} if _mapping_mode(table) == "none" else dict(_mapped_names("", _fields(table)))


def _mapped_names(path: str, fields: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for field in fields:
        inner = path + field["name"]
        yield inner, field["metadata"].get(_PHYSICAL, field["name"])
        if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            yield from _mapped_names(inner + BELOW, field["type"]["fields"])


def _field_ids(table: Any) -> dict[str, int]:
    """Return the ids of columns in files, where they are mapped by id."""
    fields = _fields(table) if _mapping_mode(table) == "id" else []
    return {field["name"]: int(field["metadata"][_COLUMN_ID]) for field in fields}


def _mapping_mode(table: Any) -> str:
    return str((table.metadata().configuration or {}).get("delta.columnMapping.mode", "none"))


def _fields(table: Any) -> list[dict[str, Any]]:
    return list(json.loads(table.schema().to_json())["fields"])


def _added(path: str, table: Any, physical: Mapping[str, str], access: Access) -> dict[str, Partition]:
    """Return every file of the version with its partition values as texts, in path order."""
    actions = pa.table(table.get_add_actions(flatten=False))
    files = [file_path(unquote(name), path, access) for name in actions["path"].to_pylist()]
    return dict(sorted(zip(files, _partitions(actions, physical), strict=True)))


def _partitions(actions: pa.Table, physical: Mapping[str, str]) -> list[Partition]:
    if "partition" not in actions.column_names:
        return [()] * actions.num_rows
    values = actions["partition"].combine_chunks()
    logical = {theirs: ours for ours, theirs in physical.items()}
    names = [logical.get(field.name, field.name) for field in values.type]
    texts = [_texts(column, name) for column, name in zip(values.flatten(), names, strict=True)]
    return [tuple(zip(names, row, strict=True)) for row in zip(*texts, strict=True)]


def _texts(column: pa.Array, name: str) -> list[str | None]:
    try:
        return [None if value is None else str(value) for value in column.cast(pa.string()).to_pylist()]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise UnsupportedError(
            f"the table is partitioned by {name!r} of type {column.type}, which this version cannot read; "
            "read it with Spark and bind that"
        ) from None


def _gone(path: str, table: Any, access: Access) -> dict[str, Numbers]:
    """Return the rows that deletion vectors mark, by file."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return {}
    marks = pa.RecordBatchReader.from_stream(table.deletion_vectors()).read_all()
    files = (file_path(_plain(name), path, access) for name in marks["filepath"].to_pylist())
    return {
        file: np.flatnonzero(~keep.values.to_numpy(zero_copy_only=False)).astype(np.int64)
        for file, keep in zip(files, marks["selection_vector"], strict=True)
    }


def _plain(uri: str) -> str:
    """Decode the percent-encoding of a URL; a plain path has none."""
    return unquote(uri) if "://" in uri else uri
