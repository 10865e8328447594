"""Stores behind a file system of pyarrow or fsspec: `filesystem=`, and `hdfs://` through libhdfs."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

from penstock.errors import EngineError
from penstock.storage.store import Buffer, Entry, Span
from penstock.storage.uri import Uri


class FileSystemStore:
    """A file system with folders."""

    def __init__(self, filesystem: Any) -> None:
        self._files = filesystem

    def list(self, folder: str) -> Iterator[Entry]:
        from pyarrow import fs  # noqa: PLC0415 - slow to load

        found = self._files.get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=True))
        return (_entry(info) for info in found if info.type == fs.FileType.File)

    def entry(self, key: str) -> Entry:
        from pyarrow import fs  # noqa: PLC0415 - slow to load

        (found,) = self._files.get_file_info([key])
        if found.type != fs.FileType.File:
            raise FileNotFoundError(errno.ENOENT, "there is no such file")
        return _entry(found)

    def tail(self, key: str, size: int) -> tuple[Buffer, int]:
        with self._files.open_input_file(key) as file:
            whole = file.size()
            return file.read_at(min(size, whole), max(whole - size, 0)), whole

    def spans(self, key: str, spans: Sequence[Span]) -> Sequence[Buffer]:
        with self._files.open_input_file(key) as file:
            found = [file.read_at(end - begin, begin) for begin, end in spans]
        if any(len(data) != end - begin for data, (begin, end) in zip(found, spans, strict=True)):
            raise OSError(errno.EIO, "it has become shorter meanwhile")
        return found

    def write(self, key: str, data: Buffer) -> None:
        """Write a file. Its folder is created; a file that appears whole under its name is up to the file system."""
        self._files.create_dir(str(PurePosixPath(key).parent), recursive=True)
        with self._files.open_output_stream(key, compression=None) as file:
            file.write(data)

    def create(self, key: str, data: Buffer) -> bool:
        """Write a file that is not there. Two writers of one name at one time are not told apart."""
        try:
            self.entry(key)
        except FileNotFoundError:
            self.write(key, data)
            return True
        return False


def _entry(info: Any) -> Entry:
    return Entry(info.path, info.size or 0, info.mtime_ns or 0)


def arrow_filesystem(given: Any) -> Any:
    """Return a file system of pyarrow for one of pyarrow or of fsspec."""
    from pyarrow import fs  # noqa: PLC0415 - slow to load

    if isinstance(given, fs.FileSystem):
        return given
    if all(hasattr(given, name) for name in ("protocol", "cat_file", "find")):
        return fs.PyFileSystem(fs.FSSpecHandler(given))
    raise EngineError(
        f"filesystem= takes a file system of pyarrow.fs or of fsspec, not a {type(given).__name__}"
    )


@lru_cache(maxsize=16)
def hadoop(scheme: str, authority: str) -> FileSystemStore:
    """Open a Hadoop file system. libhdfs starts a Java machine in this process."""
    from pyarrow import fs  # noqa: PLC0415 - slow to load

    host, _, port = authority.partition(":")
    try:
        found = fs.HadoopFileSystem(f"{scheme}://{host}" if host else "default", int(port or 0))
    except (OSError, ValueError):
        raise EngineError(
            f"{scheme}:// needs libhdfs, Java and Hadoop's classes (HADOOP_HOME, CLASSPATH), which are not found here; "
            "install them, or give filesystem=fsspec.filesystem('webhdfs', ...)"
        ) from None
    return FileSystemStore(found)


def key_in(uri: Uri) -> str:
    """Return the name by which a file system knows the file of a URI."""
    return f"/{uri.key}" if uri.scheme in ("hdfs", "viewfs", "file") else f"{uri.authority}/{uri.key}"
