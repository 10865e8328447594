"""Read files, separating malformed records one by one.

An unreadable file, or text without the declared columns, is an error. With quarantine, it is one record, or one per line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.errors import PenstockError, SchemaMismatchError
from penstock.sources.fragment import Fragment
from penstock.sources.malformed import NO_TIME, Bad, Malformed, reason_of, without_time
from penstock.sources.parquet_footers import Footer
from penstock.sources.prefetch import read
from penstock.sources.read_errors import reading
from penstock.sources.readers import TEXT
from penstock.sources.text import TEXT_BLOCK, TextReader
from penstock.storage.access import LOCAL, Access
from penstock.types.windows import Steps

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
