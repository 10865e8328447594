"""Files of an Iceberg table's metadata, as pyiceberg is given them: local, and walked through once before it reads them.

pyiceberg's compiled decoder of Avro believes every length it reads: a damaged one ends the process, or shows other memory of it as
the name of a file. The readers that pyiceberg makes of a file's schema are therefore first run with a decoder that checks.
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
from penstock.sources.lake.table import local_path

_JSON = ".metadata.json"
_LONGEST_NUMBER = 70  # bits, in groups of seven
_NUMBER = re.compile(rb"[\x80-\xff]{0,9}+[\x00-\x7f]")


class CheckedDecoder(BinaryDecoder):
    """Read Avro from bytes, and nothing that lies outside of them; what many numbers are is not looked at.

    `negative` tells whether a number below zero was read: as the length of a list it is followed by another length.
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
        """Go back to where something began."""
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
    """A file of a table's metadata, read as a whole."""

    def __init__(self, location: str, path: str) -> None:
        super().__init__(location)
        self._path = path

    def __len__(self) -> int:
        return Path(self._path).stat().st_size

    def exists(self) -> bool:
        return Path(self._path).exists()

    def open(self, seekable: bool = True) -> Any:
        """Give the bytes of a file, once they are known to be harmless."""
        data = Path(self._path).read_bytes()
        if not self.location.endswith(_JSON):
            check_avro(self._path, data)
        return io.BytesIO(data)


class CheckedIO(FileIO):
    """Local files of one table. What its metadata says about another way to read files is not looked at: it names code."""

    def __init__(self, table: str) -> None:
        super().__init__()
        self._table = table

    def new_input(self, location: str) -> CheckedFile:
        return CheckedFile(location, local_path(location, self._table))

    def new_output(self, location: str) -> NoReturn:
        raise NotImplementedError

    def delete(self, location: Any) -> NoReturn:
        raise NotImplementedError


def check_avro(path: str, data: bytes) -> None:
    """Refuse a file that pyiceberg would read beyond its end."""
    try:
        _walk(CheckedDecoder(data))
    except Exception as reason:  # noqa: BLE001 - of a damaged file anything may be missing, or of another type
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
    """Read a record. Parts of it may be skipped later, which goes by other lengths if it has them."""
    begin, block.negative = block.tell(), False
    reader.read(block)
    end = block.tell()
    if not block.negative:
        return
    block.back(begin)
    reader.skip(block)
    if block.tell() != end:
        raise ValueError("a record is skipped to another place than it is read to")
