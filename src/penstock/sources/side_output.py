"""Folders of Parquet files for rows that take no part in a query: late ones, and malformed ones.

A file appears whole, under its last name. Where the same rows may be written twice, as when Spark runs a batch again,
their file has a name that tells which they are, and the second takes the place of the first.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa

from penstock.errors import SourceError


def put(folder: str, name: str, table: pa.Table) -> None:
    """Write a file under a name of its own; one that is there was written with the same rows."""
    try:
        hidden = _hidden(folder, name, table)
        hidden.replace(Path(folder, f"{name}.parquet"))
    except OSError as error:
        raise _refused(folder, error) from None


def put_next(folder: str, stem: str, table: pa.Table) -> None:
    """Write a file under the next number that is free."""
    try:
        hidden = _hidden(folder, stem, table)
        for number in itertools.count(_files(folder, stem)):
            try:
                Path(folder, f"{stem}-{number:06}.parquet").hardlink_to(hidden)
            except FileExistsError:
                continue
            break
        hidden.unlink()
    except OSError as error:
        raise _refused(folder, error) from None


def file_name(*parts: object) -> str:
    """Make a name of a file that tells parts apart, whatever is in them.

    >>> file_name("my/stream", 3)
    'my%2Fstream-3'
    """
    return "-".join(quote(str(part), safe="") for part in parts)


def _hidden(folder: str, name: str, table: pa.Table) -> Path:
    import pyarrow.parquet as pq  # noqa: PLC0415 - loads when there is something to write

    Path(folder).mkdir(parents=True, exist_ok=True)
    hidden = Path(folder, f".{name}.{os.getpid()}")
    pq.write_table(table, hidden)
    return hidden


def _files(folder: str, stem: str) -> int:
    """Count the files there are: a number from which to look for a free one."""
    return sum(1 for each in os.scandir(folder) if each.name.startswith(f"{stem}-"))


def _refused(folder: str, error: OSError) -> SourceError:
    return SourceError(f"nothing can be written to the folder {folder!r}: {error.strerror}; check its rights")
