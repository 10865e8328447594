"""Write folders of Parquet files for late and malformed rows.

A file appears whole, under its final name. Where the same rows may be written twice, as when Spark repeats a batch,
the file name identifies the rows, and the second file replaces the first. Only the owner can access files and folders.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

import pyarrow as pa

from penstock.atomic_write import draft
from penstock.errors import SourceError
from penstock.storage.access import LOCAL, Access
from penstock.storage.filesystems import reported


def put(folder: str, name: str, table: pa.Table, access: Access = LOCAL) -> None:
    """Write a file under a unique name. An existing file has the same rows and is replaced."""
    try:
        if access.reaches(folder):
            access.write(_stored_name(folder, name), _encoded(table))
            return
        with _hidden(folder, name, table) as hidden:
            hidden.replace(Path(folder, f"{name}.parquet"))
    except OSError as error:
        raise _refused(folder, error) from None


def put_next(folder: str, stem: str, table: pa.Table, access: Access = LOCAL) -> None:
    """Write a file under the next free number."""
    try:
        if access.reaches(folder):
            _create_next(folder, stem, table, access)
            return
        with _hidden(folder, stem, table) as hidden:
            for number in itertools.count(_files(folder, stem)):
                try:
                    Path(folder, f"{stem}-{number:06}.parquet").hardlink_to(hidden)
                except FileExistsError:
                    continue
                break
    except OSError as error:
        raise _refused(folder, error) from None


def file_name(*parts: object) -> str:
    """Build a file name that is unique for its parts.

    >>> file_name("my/stream", 3)
    'my%2Fstream-3'
    """
    return "-".join(quote(str(part), safe="") for part in parts)


def open_private(path: Path) -> BinaryIO:
    """Open a file for writing. A new file is private to its owner, since it holds rows."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


def make_private(folder: Path) -> None:
    """Create a folder and its missing parents, private to their owner."""
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    for parent in reversed(missing):
        parent.mkdir(mode=0o700, exist_ok=True)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))


@contextmanager
def _hidden(folder: str, name: str, table: pa.Table) -> Iterator[Path]:
    import pyarrow.parquet as pq  # noqa: PLC0415 - loads when there are rows to write

    make_private(Path(folder))
    with draft(Path(folder, name)) as (file, hidden):
        pq.write_table(table, file)
        file.flush()
        yield hidden


def _create_next(folder: str, stem: str, table: pa.Table, access: Access) -> None:
    data, start = _encoded(table), _stored_name(folder, f"{stem}-", "")
    taken = sum(1 for path, _ in access.list(folder) if path.startswith(start))
    numbers = itertools.count(taken)
    while not access.create(_stored_name(folder, f"{stem}-{next(numbers):06}"), data):
        pass


def _stored_name(folder: str, name: str, suffix: str = ".parquet") -> str:
    return f"{folder.rstrip('/')}/{name}{suffix}"


def _encoded(table: pa.Table) -> pa.Buffer:
    import pyarrow.parquet as pq  # noqa: PLC0415 - loads when there are rows to write

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue()


def _files(folder: str, stem: str) -> int:
    """Count the existing files, as the first number to try."""
    return sum(1 for entry in os.scandir(folder) if entry.name.startswith(f"{stem}-"))


def _refused(folder: str, error: OSError) -> SourceError:
    return SourceError(
        f"nothing can be written to the folder {folder!r}: {reported(error)}; check its rights"
    )
