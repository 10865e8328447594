"""Files that appear while a query runs. Each is read once, in order of arrival.

A file must appear whole: written elsewhere, or under a name that begins with a dot or an underscore, then renamed.
Folders named `column=value` give declared columns their values; those of other columns are ignored.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from penstock.errors import PenstockError, SchemaMismatchError, SourceError
from penstock.sources.conform import check
from penstock.sources.dataset import Files, open_files
from penstock.sources.fragment import Fragment
from penstock.sources.malformed import NO_TIME, Arrived, Bad, Malformed, reason_of, without_time
from penstock.sources.parquet_footers import Footer
from penstock.sources.paths import FILE_FORMATS, FoundFile, NoFilesError, find, fixed, fixed_part
from penstock.sources.prefetch import read
from penstock.sources.read_errors import reading
from penstock.sources.readers import TEXT
from penstock.sources.text import TEXT_BLOCK, TextReader
from penstock.storage.access import LOCAL, Access
from penstock.storage.uri import resolved
from penstock.types.arrow import checked
from penstock.types.choices import one_of
from penstock.types.windows import Steps

_ASIDE = "_quarantine"


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of a run, in seconds; tests replace it."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """A glob or folder that is polled every `poll` seconds, forever or until nothing has arrived for `stop_after` seconds."""

    path: str
    format: str
    schema: pa.Schema
    poll: float = 1.0
    stop_after: float | None = None
    most_files: int | None = None
    clock: Clock = field(default=Clock(), compare=False)
    access: Access = LOCAL

    endless: ClassVar[bool] = True

    @property
    def rows(self) -> int | None:
        return None

    @property
    def beside(self) -> str:
        """Return the quarantine folder next to the files, which is excluded from the data."""
        if self.access.reaches(self.path):
            return fixed_part(self.path) + _ASIDE
        root = Path(fixed(self.path))
        return str((root.parent if root.is_file() else root) / _ASIDE)

    def listed(self) -> list[FoundFile]:
        """List the current files, oldest first."""
        try:
            found = find(self.path, even=False, access=self.access)
        except NoFilesError:
            return []
        aside = self.beside + os.sep
        ranked = [(_written(file), file.path, file) for file in found if not file.path.startswith(aside)]
        return [file for _, _, file in sorted(ranked, key=lambda rank: rank[:2])]

    def files(self, found: Sequence[FoundFile]) -> Files:
        """Bind some of the files as data."""
        return Files(tuple(found), self.format, self.schema, self.access, more_will_come=True)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Read files as they arrive. A malformed record is an error."""
        names = list(self.schema.names if columns is None else columns)
        return (arrival.batch.select(names) for arrival in self.arrivals(self.schema.names[0], "fail"))

    def arrivals(self, time: str, on_bad: str) -> Iterator[Arrived]:
        """Read files as they arrive. An empty batch signals that nothing has arrived, so that other sources can run."""
        nothing = Arrived(pa.RecordBatch.from_pylist([], self.schema))
        seen: set[str] = set()
        since = self.clock.now()
        while True:
            new = [file for file in self.listed() if file.path not in seen][: self.most_files]
            seen.update(file.path for file in new)
            for found in new:
                yield from self._rows(found, time, on_bad)
                since = self.clock.now()
            if new:
                continue
            if self.stop_after is not None and self.clock.now() - since >= self.stop_after:
                return
            yield nothing
            self.clock.sleep(self.poll)

    def present(self, time: str, on_bad: str) -> Iterator[Arrived]:
        """Read the current files, which are the whole input of a query that collects."""
        return (arrival for found in self.listed() for arrival in self._rows(found, time, on_bad))

    def _rows(self, found: FoundFile, time: str, on_bad: str) -> Iterator[Arrived]:

        reader = LiveReader(self.schema, tuple(self.schema.names), time, on_bad, access=self.access)
        for fragment in self.fragments(found, on_bad):
            for batch, bad in reader(fragment):
                yield Arrived(batch, None, bad)

    def _planned(self, found: FoundFile) -> Sequence[Fragment]:
        """Plan a file. One that lacks a column which the folders of other files give lies in the wrong place."""
        fragments = self.files([found]).dataset().fragments
        own = {name for name, _ in found.partition}
        absent = {name for fragment in fragments[:1] for name, _ in fragment.partition} - own
        by_folders = {name for other in (self.listed() if absent else ()) for name, _ in other.partition}
        for name in sorted(absent & by_folders):
            check(pa.schema([]), pa.schema([self.schema.field(name)]), f"the file {found.path!r}")
        return fragments

    def fragments(self, found: FoundFile, on_bad: str) -> Sequence[Fragment]:
        """Plan the read of one file. Text with malformed records is checked only when it is read."""
        whole = (Fragment(found.path, self.format, partition=found.partition, size=_size(found)),)
        if self.format in TEXT and on_bad != "fail":
            return whole
        try:
            return self._planned(found)
        except PenstockError:
            if on_bad != "quarantine":
                raise
            return whole


def _size(found: FoundFile) -> int:
    try:
        return Path(found.path).stat().st_size if found.size is None else found.size
    except OSError:
        return 0


def _written(found: FoundFile) -> int:
    try:
        return Path(found.path).stat().st_mtime_ns if found.written is None else found.written
    except OSError:
        return 0  # deleted since it was listed: reading raises the error


def live_files(
    path: str | os.PathLike[str],
    format: str | None,
    schema: pa.Schema | None,
    poll: float = 1.0,
    stop_after: float | None = None,
    most_files: int | None = None,
    clock: Clock | None = None,
    access: Access = LOCAL,
) -> LiveFiles:
    """Watch a glob or a folder. The schema is the declared one, or that of the first file."""
    where = resolved(os.fspath(path))
    if schema is None or format is None:
        known = _first(where, format, schema, access)
        schema, format = known.schema, known.format
    if not one_of(format, FILE_FORMATS):
        raise SourceError(
            f"there is no format {format!r} of files that appear; there are {', '.join(FILE_FORMATS)}"
        )
    return LiveFiles(where, format, checked(schema), poll, stop_after, most_files, clock or Clock(), access)


def _first(path: str, format: str | None, schema: pa.Schema | None, access: Access) -> Files:
    try:
        return open_files(path, format, schema, access)
    except SourceError as error:
        if not isinstance(error, NoFilesError):
            raise
        raise SourceError(
            f"{error}; a stream of files that are still to come needs both schema= and format="
        ) from None


# --- Read files, separating malformed records one by one.
#
# An unreadable file, or text without the declared columns, is an error. With quarantine, it is one record, or one per line.

Rows = tuple[pa.RecordBatch, tuple[Bad, ...]]


@dataclass(frozen=True, slots=True)
class LiveReader:
    """Read some columns of a stream's files. Rows without a time are malformed, like records that cannot be read."""

    schema: pa.Schema
    columns: tuple[str, ...]
    time: str
    on_bad: str
    block: int = TEXT_BLOCK
    steps: Steps | None = None
    access: Access = LOCAL

    def __call__(self, fragment: Fragment, footer: Footer | None = None) -> Iterator[Rows]:
        """Read a file, or some of its row groups. A time may be replaced by another time in the same of the `steps`."""
        if self.on_bad == "fail":
            batches = self._read(fragment, footer, Malformed("fail", self.time))
            yield from ((batch, ()) for batch in batches)
            return
        reading(
            fragment.path, self._open, self.access
        )  # a file that cannot be opened is an error, not a malformed record
        first = 0  # counts malformed lines too
        for batch, bad in self._records(fragment, footer):
            timed, timeless = self._timed(batch, fragment.path, first)
            first += batch.num_rows + len(bad)
            yield timed, (*bad, *timeless)

    def _records(self, fragment: Fragment, footer: Footer | None) -> Iterator[Rows]:
        malformed, rows = Malformed("drop", self.time), 0
        try:
            for batch in self._read(fragment, footer, malformed):
                yield batch, malformed.taken()
                rows += batch.num_rows
        except PenstockError as error:
            if self.on_bad != "quarantine":  # many rows would be lost without being counted
                raise
            nothing = pa.RecordBatch.from_pylist([], self._wanted())
            yield nothing, tuple(self._lost(fragment, error, rows))

    def _read(
        self, fragment: Fragment, footer: Footer | None, malformed: Malformed
    ) -> Iterator[pa.RecordBatch]:
        return read(
            fragment,
            self.schema,
            self.columns,
            footer=footer,
            steps=self.steps,
            malformed=malformed,
            block=self.block,
            access=self.access,
        )

    def _lost(self, fragment: Fragment, error: PenstockError, rows: int) -> Iterator[Bad]:
        """Yield an unreadable file as one record, and text without the declared columns line by line."""
        if fragment.format in TEXT and isinstance(error, SchemaMismatchError):
            reader = TextReader(fragment.format, self.schema, access=self.access)
            yield from reader.every_record(fragment.path, reason_of(error))
        else:
            yield Bad(None, reason_of(error), fragment.path, rows)

    def _timed(self, batch: pa.RecordBatch, path: str, first: int) -> tuple[pa.RecordBatch, list[Bad]]:
        return without_time(batch, self.time, lambda number, row: Bad(row, NO_TIME, path, first + number))

    def _wanted(self) -> pa.Schema:
        return pa.schema([self.schema.field(name) for name in self.columns])

    def _open(self, path: str) -> None:
        if self.access.reaches(path):
            self.access.size(path)
        else:
            Path(path).open("rb").close()
