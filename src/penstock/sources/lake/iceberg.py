"""Iceberg tables, through the `pyiceberg` package: manifests list files and deleted rows.

Columns are found by id, never by name: a dropped column and a later column of the same name are different.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.file import META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.io import FileIO, InputFile
from pyroaring import BitMap

from penstock.errors import PenstockError, SourceError, UnsupportedError
from penstock.sources.conform import BELOW
from penstock.sources.fragment import Numbers
from penstock.sources.lake.table import DataFile, LakeTable, Resolve, field_ids, file_path
from penstock.sources.parquet_decode import local_copy
from penstock.sources.parquet_footers import open_parquet
from penstock.sources.read_errors import reading
from penstock.storage.access import LOCAL, Access
from penstock.types.arrow import checked

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
    return LakeTable(_schema(fields), files, _by_id(fields, _mapped(table)), access)


def _table(path: str, metadata_file: str, access: Access) -> Any:
    """Open a table with checked file access. (pyiceberg would import and call the code named in the table's properties.)"""
    from pyiceberg.catalog.noop import NoopCatalog  # noqa: PLC0415 - an optional dependency
    from pyiceberg.serializers import FromInputFile  # noqa: PLC0415
    from pyiceberg.table import StaticTable  # noqa: PLC0415

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


def _mapped(table: Any) -> dict[str, int]:
    """Return the ids of columns by name, for files without ids: those that were added to the table as they were."""
    mapping = table.name_mapping()
    fields = () if mapping is None else mapping.root
    return {name: field.field_id for field in fields if field.field_id is not None for name in field.names}


def _by_id(fields: Any, mapped: Mapping[str, int]) -> Resolve:
    wanted = {field.field_id: field for field in fields.fields}

    def resolve(stored: pa.Schema, path: str) -> dict[str, str]:
        ids = field_ids(stored) or {mapped[name]: name for name in stored.names if name in mapped}
        if not ids:
            raise UnsupportedError(
                f"the columns of the file {path!r} carry no Iceberg ids, and the table maps no names to ids, "
                "so this version cannot identify them; rewrite it (rewrite_data_files)"
            )
        _refuse_defaults([field for number, field in wanted.items() if number not in ids])
        found = {field.name: ids[number] for number, field in wanted.items() if number in ids}
        kinds = {field.name: field.field_type for field in fields.fields}
        inside = [
            _fields_by_id(name, kinds[name], stored.field(theirs).type) for name, theirs in found.items()
        ]
        return found | {ours: theirs for names in inside for ours, theirs in names}

    return resolve


def _fields_by_id(path: str, kind: Any, stored: pa.DataType) -> Iterator[tuple[str, str]]:
    """Map the fields of a struct whose names differ in a file; those that it lacks map to no name."""
    ids = field_ids(stored) if pa.types.is_struct(stored) else {}
    if not ids or not hasattr(kind, "fields"):
        return
    _refuse_defaults([field for field in kind.fields if field.field_id not in ids])
    for field in kind.fields:
        inner, theirs = f"{path}{BELOW}{field.name}", ids.get(field.field_id, "")
        if theirs != field.name:
            yield inner, theirs
        if theirs:
            yield from _fields_by_id(inner, field.field_type, stored.field(theirs).type)


def _refuse_defaults(absent: Iterable[Any]) -> None:
    for field in absent:
        if getattr(field, "initial_default", None) is not None:
            raise UnsupportedError(
                f"column {field.name!r} was added with a default value, which this version cannot fill in; "
                "rewrite the older files (rewrite_data_files)"
            )


# --- Deletion vectors of Iceberg: length · magic · bitmaps of row numbers by their upper 32 bits · checksum.
#
# pyiceberg also reads them, but ignores the checksum, and creates an empty bitmap for each number of upper bits up to the
# largest: two thousand million in a damaged vector.

_MAGIC = b"\xd1\xd3\x39\x64"
_WORD = 4
_UPPER = 32  # bits
_MOST_UPPER = 1 << 31


def rows_of(where: str, data: bytes) -> Numbers:
    """Read the row numbers of a vector in the file `where`."""
    try:
        return _rows(_checked(data))
    except (ValueError, IndexError):
        raise SourceError(
            f"the file {where!r} cannot be read: a deletion vector in it is damaged; restore the file"
        ) from None


def _checked(data: bytes) -> bytes:
    """Return the bitmaps after verifying the checksum."""
    end = _WORD + int.from_bytes(data[:_WORD], "big")
    body, checksum = data[_WORD:end], data[end : end + _WORD]
    same = len(checksum) == _WORD and zlib.crc32(body) == int.from_bytes(checksum, "big")
    if not same or not body.startswith(_MAGIC):
        raise ValueError("not what was written")
    return body[len(_MAGIC) :]


def _rows(bitmaps: bytes) -> Numbers:
    count, rest = int.from_bytes(bitmaps[:8], "little"), bitmaps[8:]
    found = [np.zeros(0, np.int64)]
    last = -1
    for _ in range(count):
        upper = int.from_bytes(rest[:_WORD], "little")
        if not last < upper < _MOST_UPPER:
            raise ValueError("row numbers that are not in order, or too large")
        bitmap = BitMap.deserialize(rest[_WORD:])
        rest, last = rest[_WORD + len(bitmap.serialize()) :], upper
        found.append(np.asarray(bitmap, np.int64) + (upper << _UPPER))
    return np.concatenate(found)


# --- File access for pyiceberg: local metadata files, checked before pyiceberg decodes them.
#
# pyiceberg's compiled Avro decoder trusts every length: a damaged one terminates the process, or exposes other memory as
# the name of a file. So the readers that pyiceberg builds for a file's schema first run with a decoder that checks lengths.

_JSON = ".metadata.json"
_LONGEST_NUMBER = 70  # bits, in groups of seven
_NUMBER = re.compile(rb"[\x80-\xff]{0,9}+[\x00-\x7f]")


class CheckedDecoder(BinaryDecoder):
    """Decode Avro from bytes with bounds checks. Lists of numbers are checked, but their values are not decoded.

    `negative` is set if a negative number was read: as the length of a list, it is followed by another length.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        self.negative = False

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def tell(self) -> int:
        return self._at

    def back(self, at: int) -> None:
        """Return to an earlier position."""
        self._at = at

    def read(self, n: int) -> bytes:
        begin = self._at
        self.skip(n)
        return self._data[begin : self._at]

    def skip(self, n: int) -> None:
        if not 0 <= n <= self.left:
            raise EOFError("a value is longer than its data")
        self._at += n

    def read_int(self) -> int:
        value = shift = 0
        while shift < _LONGEST_NUMBER:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                self.negative |= bool(value & 1)
                return (value >> 1) ^ -(value & 1)
            shift += 7
        raise ValueError("a number does not end")

    def skip_int(self) -> None:
        self.read_int()

    def read_ints(self, n: int) -> tuple[int, ...]:
        at = self._at
        for _ in range(self._many(n)):
            at = self._behind_number(at)
        self._at = at
        return ()

    def read_int_bytes_dict(self, n: int, dest: dict[int, bytes]) -> None:
        for _ in range(self._many(n)):
            self._at = self._behind_number(self._at)
            self.skip(self.read_int())

    def _many(self, n: int) -> int:
        if not 0 <= n <= self.left:
            raise EOFError("a list is longer than its data")
        return n

    def _behind_number(self, at: int) -> int:
        found = _NUMBER.match(self._data, at)
        if found is None:
            raise EOFError("a number does not end")
        return found.end()


class CheckedFile(InputFile):
    """A metadata file of a table, read as a whole."""

    def __init__(self, location: str, path: str, access: Access = LOCAL) -> None:
        super().__init__(location)
        self._path, self._access = path, access

    def __len__(self) -> int:
        if self._access.reaches(self._path):
            return self._access.size(self._path)
        return Path(self._path).stat().st_size

    def exists(self) -> bool:
        if self._access.reaches(self._path):
            return self._access.entry(self._path) is not None
        return Path(self._path).exists()

    def open(self, seekable: bool = True) -> Any:
        """Return the bytes of a file after checking them."""
        afar = self._access.reaches(self._path)
        data = reading(self._path, self._access.read, self._access) if afar else Path(self._path).read_bytes()
        if not self.location.endswith(_JSON):
            check_avro(self._path, data)
        return io.BytesIO(data)


class CheckedIO(FileIO):
    """Files of one table. The table's setting for file access is ignored: it names code."""

    def __init__(self, table: str, access: Access = LOCAL) -> None:
        super().__init__()
        self._table, self._access = table, access

    def new_input(self, location: str) -> CheckedFile:
        return CheckedFile(location, file_path(location, self._table, self._access), self._access)

    def new_output(self, location: str) -> NoReturn:
        raise NotImplementedError

    def delete(self, location: Any) -> NoReturn:
        raise NotImplementedError


def check_avro(path: str, data: bytes) -> None:
    """Reject a file that pyiceberg would read beyond its end."""
    try:
        _walk(CheckedDecoder(data))
    except Exception as reason:  # noqa: BLE001 - a damaged file can raise any exception
        raise SourceError(
            f"the file {path!r} of an Iceberg table cannot be read: it is damaged ({type(reason).__name__})"
        ) from None


def _walk(file: CheckedDecoder) -> None:
    header = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(file)
    reader, codec = construct_reader(header.get_schema()), header.compression_codec()
    while file.left:
        records, stored = file.read_int(), file.read_bytes()
        block = CheckedDecoder(codec.decompress(stored) if codec else stored)
        if file.read(SYNC_SIZE) != header.sync or not 0 <= records <= block.left:
            raise ValueError("a block does not end where it should")
        for _ in range(records):
            _record(reader, block)


def _record(reader: Any, block: CheckedDecoder) -> None:
    """Read a record. If it has block lengths, check that skipping it ends at the same position."""
    begin, block.negative = block.tell(), False
    reader.read(block)
    end = block.tell()
    if not block.negative:
        return
    block.back(begin)
    reader.skip(block)
    if block.tell() != end:
        raise ValueError("a record is skipped to another place than it is read to")
