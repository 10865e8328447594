"""How the files of a stream are reached: the one place that turns a path or URI into a store and a key."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import PurePath
from typing import Any

import pyarrow as pa

from penstock.errors import EngineError, SourceError
from penstock.storage import cloud, filesystems
from penstock.storage.filesystems import Buffer, Entry, Span, Store, refused
from penstock.storage.options import Pairs, pairs_of
from penstock.storage.uri import CLOUD, Uri, is_uri

_BLOCK = 8 << 20  # bytes of a request for a file that is read from its beginning on


@dataclass(frozen=True, slots=True)
class Access:
    """Options or a file system for the paths of a stream; without either, credentials come from the environment.

    Options are no part of its text, nor of any plan: Spark's tasks get them inside the function they run.

    >>> Access.of({"secret_access_key": "hunter2"}, None)
    Access()
    """

    options: Pairs = field(default=(), repr=False)
    filesystem: Any = field(default=None, repr=False)

    @staticmethod
    def of(storage_options: object, filesystem: object) -> Access:
        """Check the arguments of a source."""
        if filesystem is None:
            return Access(pairs_of(storage_options))
        if storage_options is not None:
            raise EngineError("give storage_options= or filesystem=, not both")
        return Access((), filesystems.arrow_filesystem(filesystem))

    @property
    def given(self) -> bool:
        """Whether the user gave anything."""
        return bool(self.options) or self.filesystem is not None

    def or_hadoop(self, settings: dict[str, str], path: str) -> Access:
        """Return the access by Hadoop's settings, unless the user gave another."""
        return self if self.given else replace(self, options=pairs_of(filesystems.options_of(settings, path)))

    def reaches(self, path: str) -> bool:
        """Check whether a path lies in a store rather than on this machine."""
        return self.filesystem is not None or is_uri(path)

    def list(self, folder: str) -> Iterator[tuple[str, Entry]]:
        """List all files below a folder, with their paths."""
        store, key, root = self._at(folder)
        try:
            for entry in store.list(key):
                yield root + entry.key.removeprefix("/" if root else ""), entry
        except OSError as reason:
            raise refused(folder.rstrip("/"), "listed", reason) from None

    def entry(self, path: str) -> Entry | None:
        """Describe a file; None if there is none."""
        store, key, _ = self._at(path)
        if not key or key.endswith("/"):
            return None
        try:
            return store.entry(key)
        except FileNotFoundError:
            return None
        except OSError as reason:
            raise refused(path, "read", reason) from None

    def tail(self, path: str, size: int) -> tuple[Buffer, int]:
        """Read up to `size` bytes at the end of a file. Returns them and the size of the file."""
        store, key, _ = self._at(path)
        return store.tail(key, size)

    def spans(self, path: str, spans: Sequence[Span]) -> Sequence[Buffer]:
        """Read several ranges of bytes, each by one request."""
        store, key, _ = self._at(path)
        return store.spans(key, spans)

    def read(self, path: str) -> bytes:
        """Read a whole file."""
        size = self.size(path)
        return bytes(self.spans(path, [(0, size)])[0]) if size else b""

    def size(self, path: str) -> int:
        """Return the size of a file."""
        store, key, _ = self._at(path)
        return store.entry(key).size

    def open(self, path: str, size: int | None = None) -> pa.NativeFile:
        """Open a file for reading at any place, in blocks."""
        if not self.reaches(path):
            return pa.OSFile(path)
        return pa.PythonFile(BlockFile(self, path, self.size(path) if size is None else size), mode="r")

    def open_text(self, path: str) -> pa.NativeFile:
        """Open a file for reading from its beginning on, decompressed if its name says that it is compressed."""
        if not self.reaches(path):
            return pa.input_stream(path, compression="detect")
        file = self.open(path)
        codec = _CODECS.get(PurePath(path).suffix.lower())
        return file if codec is None else pa.CompressedInputStream(file, codec)

    def write(self, path: str, data: Buffer) -> None:
        """Write a file, or replace it, in one step."""
        store, key, _ = self._at(path)
        store.write(key, data)

    def create(self, path: str, data: Buffer) -> bool:
        """Write a new file in one step; False if there is one of this name."""
        store, key, _ = self._at(path)
        return store.create(key, data)

    def _at(self, path: str) -> tuple[Store, str, str]:
        """Return the store of a path, the key in it, and what precedes keys in paths."""
        uri = Uri.of(path)
        if self.filesystem is not None:
            store = filesystems.FileSystemStore(self.filesystem)
            if uri is None:
                return store, path, ""
            whole = filesystems.key_in(uri)
            return store, whole, f"{uri.scheme}://" if not whole.startswith("/") else uri.root
        if uri is None:
            raise SourceError(f"{path!r} is not a URI; write scheme://bucket/folder, or a local path")
        if uri.scheme in CLOUD:
            return cloud.connect(uri, self.options), uri.key, uri.root
        return filesystems.hadoop(uri.scheme, uri.authority, self.options), filesystems.key_in(uri), uri.root


LOCAL = Access()
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}


class BlockFile(io.RawIOBase):
    """A file in a store, read in blocks. The last two are held: a reader of records looks back a little."""

    def __init__(self, access: Access, path: str, size: int, block: int = _BLOCK) -> None:
        super().__init__()
        self._size, self._at, self._width = size, 0, block
        self._block = lru_cache(maxsize=2)(lambda number: self._read(access, path, number))

    def _read(self, access: Access, path: str, number: int) -> Buffer:
        begin = number * self._width
        return access.spans(path, [(begin, min(begin + self._width, self._size))])[0]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(begin + offset, 0)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._at + size, self._size)
        parts = []
        while self._at < end:
            number, begin = divmod(self._at, self._width)
            part = memoryview(self._block(number))[begin : begin + end - self._at]
            parts.append(part)
            self._at += len(part)
        return b"".join(parts)

    def readall(self) -> bytes:
        return self.read()
