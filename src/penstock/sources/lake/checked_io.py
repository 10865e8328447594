"""File access for pyiceberg: local metadata files, checked before pyiceberg decodes them.

pyiceberg's compiled Avro decoder trusts every length: a damaged one terminates the process, or exposes other memory as
the name of a file. So the readers that pyiceberg builds for a file's schema first run with a decoder that checks lengths.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any, NoReturn

from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.file import META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.io import FileIO, InputFile

from penstock.errors import SourceError
from penstock.sources.lake.table import file_path
from penstock.sources.read_errors import reading
from penstock.storage.access import LOCAL, Access

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
