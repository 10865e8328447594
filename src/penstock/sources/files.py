"""Files on disk: which they are, their schema, and their batches in order of path and row."""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from penstock.errors import PenstockError, SourceError, UnsupportedError
from penstock.sources import readers
from penstock.sources.conform import check, conformer
from penstock.types.arrow import checked

T = TypeVar("T")
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
# What Arrow says about a file beside the values in it. Anything else it says is left out.
_SAFE = re.compile(
    r"\[Errno \d+\].*|(?:CSV|JSON) parse error|In CSV column #\d+|CSV conversion error to [^:]*|Row #\d+"
    r"|Expected \d+ columns, got \d+|Column\(.*\) changed from \w+ to \w+ in row \d+|Empty CSV file"
    r"|Parquet (?:magic|file).*|(?:Not|Invalid|Corrupt|Unexpected|Couldn't|Could not).*|File is.*"
)
_LATER = frozenset({"delta", "iceberg"})


@dataclass(frozen=True, slots=True)
class Files:
    """Files of one format that share a schema: that of the first, or the one declared."""

    paths: tuple[str, ...]
    reader: readers.Reader
    schema: pa.Schema

    @property
    def rows(self) -> int | None:
        counts = [_reading(path, self.reader.rows) for path in self.paths]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        names = self.schema.names if columns is None else list(columns)
        for path in self.paths:  # all files, before a row of the first is delivered
            check(_reading(path, self._schema_of), self.schema, f"the file {path!r}")
        return (batch for path in self.paths for batch in self._batches_of(path, names))

    def _schema_of(self, path: str) -> pa.Schema:
        return self.reader.schema(path, self.schema)

    def _batches_of(self, path: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self.reader.batches(path, columns, self.schema):
                yield conformer(batch.schema, self.schema, columns, f"the file {path!r}")(batch)
        except (OSError, pa.ArrowException) as reason:
            raise _unreadable(path, reason) from None


def open_files(paths: Paths, given: str | None = None, schema: pa.Schema | None = None) -> Files:
    """Find the files, and learn their schema from the first of them unless it is declared."""
    found = find(paths)
    reader = readers.READERS[format_of(found[0], given)]
    declared = schema if schema is not None else _reading(found[0], lambda path: reader.schema(path, None))
    return Files(found, reader, checked(declared))


def find(paths: Paths) -> tuple[str, ...]:
    """List the files that paths and globs stand for, sorted within each."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    found = tuple(dict.fromkeys(file for each in given for file in _matches(os.fspath(each))))
    if not found:
        raise SourceError(
            "no paths are given; give a path, a glob such as 'events/*.parquet', or a list of them"
        )
    return found


def _matches(pattern: str) -> list[str]:
    if Path(pattern).is_file():
        return [pattern]
    if Path(pattern).is_dir():
        return _matches(str(Path(glob.escape(pattern)) / "*"))
    found = glob.iglob(pattern, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute patterns
    files = sorted(each for each in found if Path(each).is_file())
    if not files:
        raise SourceError(f"no file matches {pattern!r}; check the path and the working directory")
    return files


def format_of(path: str, given: str | None) -> str:
    """Tell a file's format, from its name unless it is given."""
    if given in _LATER:
        raise UnsupportedError(
            f"format={given!r} is not in this version; read it with its own library and bind that"
        )
    if given is not None and given not in readers.READERS:
        raise SourceError(f"there is no format {given!r}; there are {', '.join(readers.READERS)}")
    suffixes = [suffix for suffix in Path(path).suffixes if suffix in _FORMATS]
    if given is None and not suffixes:
        raise SourceError(
            f"the name {path!r} does not tell the format; give format={'|'.join(readers.READERS)!r}"
        )
    return given or _FORMATS[suffixes[-1]]


def _reading(path: str, read: Callable[[str], T]) -> T:
    """Read something of a file, naming the file if that fails."""
    try:
        return read(path)
    except PenstockError:
        raise
    except (OSError, pa.ArrowException) as reason:
        raise _unreadable(path, reason) from None


def _unreadable(path: str, reason: Exception) -> SourceError:
    """Say why a file cannot be read, without the rows that Arrow's messages may quote."""
    return SourceError(f"the file {path!r} cannot be read: {_silent(str(reason))}")


def _silent(message: str) -> str:
    parts = message.splitlines()[0].split(": ") if message else []
    safe = list(itertools.takewhile(_SAFE.fullmatch, parts))
    return ": ".join(safe) or "its content does not fit its format or its declared types"
