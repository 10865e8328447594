"""Files that appear while a query runs: each is read once, in the order in which they came.

A file must appear whole: written elsewhere, or under a name that begins with a dot or an underscore, then renamed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from penstock.errors import SourceError
from penstock.sources.dataset import Dataset, Files, open_files
from penstock.sources.paths import Found, find, format_of
from penstock.types.arrow import checked


@dataclass(frozen=True, slots=True)
class Clock:
    """Time as a run sees it, in seconds; tests have another."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """A glob or folder that is looked at every `poll` seconds, for good or until nothing has come for `stop_after`."""

    path: str
    format: str
    schema: pa.Schema
    poll: float = 1.0
    stop_after: float | None = None
    most_files: int | None = None
    clock: Clock = field(default=Clock(), compare=False)

    endless: ClassVar[bool] = True

    @property
    def rows(self) -> int | None:
        return None

    def listed(self) -> list[Found]:
        """List the files that are there, the oldest first."""
        try:
            found = find(self.path)
        except SourceError:
            return []  # nothing has come yet
        ranked = [(_written(each.path), each.path, each) for each in found]
        return [each for _, _, each in sorted(ranked, key=lambda rank: rank[:2])]

    def files(self, found: Sequence[Found]) -> Files:
        """Take some of the files for data."""
        return Files(tuple(found), self.format, self.schema)

    def dataset(self, time: str | None = None) -> Dataset:
        """Plan the reading of what is there now: to a query that collects, that is all there is."""
        return self.files(self.listed()).dataset(time)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Read files as they come. A batch without rows says that nothing has come: others may have their turn."""
        names = list(self.schema.names if columns is None else columns)
        nothing = pa.RecordBatch.from_pylist([], pa.schema([self.schema.field(name) for name in names]))
        seen: set[str] = set()
        since = self.clock.now()
        while True:
            new = [each for each in self.listed() if each.path not in seen][: self.most_files]
            seen.update(each.path for each in new)
            if new:
                yield from self.files(new).dataset().batches(names)
                since = self.clock.now()
                continue
            if self.stop_after is not None and self.clock.now() - since >= self.stop_after:
                return
            yield nothing
            self.clock.sleep(self.poll)


def _written(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0  # gone since it was listed: reading it will say so


def live_files(
    path: str | os.PathLike[str],
    format: str | None,
    schema: pa.Schema | None,
    poll: float = 1.0,
    stop_after: float | None = None,
    most_files: int | None = None,
    clock: Clock | None = None,
) -> LiveFiles:
    """Watch a glob or a folder; the schema is that of the first file unless it is declared."""
    where = os.fspath(path)
    if schema is None or format is None:
        known = _first(where, format)
        schema, format = schema or known.schema, format or known.format
    if format != format_of((Found(f"x.{format}"),), format):
        raise SourceError(f"there is no format {format!r} of files that appear")
    return LiveFiles(where, format, checked(schema), poll, stop_after, most_files, clock or Clock())


def _first(path: str, format: str | None) -> Files:
    try:
        return open_files(path, format)
    except SourceError as error:
        raise SourceError(
            f"{error}; a stream of files that are still to come needs both schema= and format="
        ) from None
