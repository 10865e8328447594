"""Files of a live stream, read so that what is no row is found and told apart.

Text is read in blocks; a block that cannot be read as a whole is searched, record by record. A file of another format
that cannot be read, or a table without the declared columns, is an error; a quarantine takes it as one record, or line by line.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyarrow import csv, json

from penstock.errors import PenstockError, SchemaMismatchError
from penstock.sources.ahead import Footer, read
from penstock.sources.arrow import one_batch
from penstock.sources.bad import FAILURES, NO_TIME, Bad, good_and_bad, reason_of, without_time
from penstock.sources.conform import check, conformer
from penstock.sources.failures import unreadable
from penstock.sources.fragment import Fragment
from penstock.sources.partitions import completed
from penstock.sources.readers import TEXT
from penstock.types.windows import Steps

BLOCK = 1 << 24  # bytes of text that are read at a time

Rows = tuple[pa.RecordBatch, tuple[Bad, ...]]
Decode = Callable[[bytes], pa.Table]


@dataclass(frozen=True, slots=True)
class LiveReader:
    """Read files of a stream: some columns, rows without a time being malformed like whatever cannot be read."""

    schema: pa.Schema
    columns: tuple[str, ...]
    time: str
    on_bad: str
    block: int = BLOCK
    steps: Steps | None = None

    def __call__(self, fragment: Fragment, footer: Footer | None = None) -> Iterator[Rows]:
        """Read a file, or some row groups of one. Times may be others of the same of the `steps`."""
        if self.on_bad == "fail":
            yield from ((batch, ()) for batch in self._read(fragment, footer))
            return
        try:
            Path(fragment.path).open("rb").close()
        except OSError as error:  # not a matter of what is in it
            raise unreadable(fragment.path, error) from None
        first = 0  # lines that are no rows are counted too
        for batch, bad in self._records(fragment, footer):
            timed, timeless = self._timed(batch, fragment.path, first)
            first += batch.num_rows + len(bad)
            yield timed, (*bad, *timeless)

    def _timed(self, batch: pa.RecordBatch, path: str, first: int) -> tuple[pa.RecordBatch, list[Bad]]:
        return without_time(batch, self.time, lambda number, row: Bad(row, NO_TIME, path, first + number))

    def _read(self, fragment: Fragment, footer: Footer | None) -> Iterator[pa.RecordBatch]:
        return read(fragment, self.schema, self.columns, footer=footer, steps=self.steps)

    def _records(self, fragment: Fragment, footer: Footer | None) -> Iterator[Rows]:
        return self._text(fragment) if fragment.format in TEXT else self._whole(fragment, footer)

    def _whole(self, fragment: Fragment, footer: Footer | None) -> Iterator[Rows]:
        rows = 0
        try:
            for batch in self._read(fragment, footer):
                yield batch, ()
                rows += batch.num_rows
        except PenstockError as error:
            if self.on_bad != "quarantine":  # many rows are lost with it, which no count would tell
                raise
            nothing = pa.RecordBatch.from_pylist([], self._wanted(self.columns))
            yield nothing, (Bad(None, reason_of(error), fragment.path, rows),)

    def _text(self, fragment: Fragment) -> Iterator[Rows]:
        """Read blocks of records; each is decoded at once, and in halves only if that fails."""
        given = {name for name, _ in fragment.partition}
        inside = tuple(name for name in self.columns if name not in given)
        plain = replace_columns(self, inside)
        first = 0
        for decode, block in _blocks(fragment, plain):
            for batch, bad, records in plain.decoded(fragment.path, decode, block, first):
                whole = completed(batch, fragment.partition, self.schema, list(self.columns), fragment.path)
                yield whole, bad
                first += records

    def decoded(
        self, path: str, decode: Decode, block: bytes, first: int
    ) -> Iterator[tuple[pa.RecordBatch, tuple[Bad, ...], int]]:
        """Decode a block: its rows, what were none, and how many records there were."""

        def rows(records: Sequence[tuple[int, bytes]]) -> pa.RecordBatch:
            made = self._conformed(decode(b"\n".join(text for _, text in records)), path)
            if made.column(self.time).null_count:
                raise ValueError(NO_TIME)
            return made

        try:
            whole = self._conformed(decode(block), path)
        except FAILURES as error:
            if isinstance(error, SchemaMismatchError) and self.on_bad != "quarantine":
                raise SchemaMismatchError(f"the file {path!r} cannot be read: {error}") from None
            records = list(enumerate(_records(block), first))
            good, bad = good_and_bad(records, rows)
        else:
            yield whole, (), whole.num_rows
            return
        batch = pa.Table.from_batches(good, self._wanted(self.columns)).combine_chunks()
        found = tuple(Bad(text, why, path, number) for (number, text), why in bad)
        yield one_batch(batch), found, len(records)

    def _conformed(self, table: pa.Table, path: str) -> pa.RecordBatch:
        where = f"the file {path!r}"
        check(table.schema, self._wanted(self.columns), where)
        return conformer(table.schema, self.schema, self.columns, where)(one_batch(table.combine_chunks()))

    def _wanted(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self.schema.field(name) for name in names])


def replace_columns(reader: LiveReader, columns: tuple[str, ...]) -> LiveReader:
    """Read other columns."""
    return LiveReader(reader.schema, columns, reader.time, reader.on_bad, reader.block)


def _blocks(fragment: Fragment, reader: LiveReader) -> Iterator[tuple[Decode, bytes]]:
    """Cut a text at ends of records."""
    quotes = fragment.format == "csv"
    with pa.input_stream(fragment.path, compression="detect") as file:
        rest = file.read(reader.block)
        while quotes and b"\n" not in rest and (more := file.read(reader.block)):
            rest += more  # the names of columns must be there
        head, rest = _head(rest) if quotes else (b"", rest)
        decode: Decode = partial(_csv, head, reader, "\t" if ".tsv" in fragment.path else ",")
        if not quotes:
            decode = partial(_json, reader)
        while more := file.read(reader.block):
            cut = _cut(rest, quotes)
            if cut:
                yield decode, rest[:cut]
            rest = rest[cut:] + more
        if rest.strip():
            yield decode, rest


def _head(text: bytes) -> tuple[bytes, bytes]:
    """Tell the names of columns from the rows of a table."""
    head, _, rest = text.partition(b"\n")
    return head, rest


def _cut(text: bytes, quotes: bool) -> int:
    """Find the last end of a line that lies in no quotes; 0 if there is none."""
    at = text.rfind(b"\n")
    while quotes and at >= 0 and text.count(b'"', 0, at) % 2:
        at = text.rfind(b"\n", 0, at)
    return at + 1


def _records(block: bytes) -> Iterator[bytes]:
    """Cut a block into records: lines, or as many as quotes hold together. Lines of nothing are none."""
    held: list[bytes] = []
    for line in block.split(b"\n"):
        held.append(line)
        if sum(each.count(b'"') for each in held) % 2 == 0:
            yield from filter(bytes.strip, [b"\n".join(held)])
            held = []
    yield from filter(bytes.strip, [b"\n".join(held)])


def _json(reader: LiveReader, text: bytes) -> pa.Table:
    wanted = pa.schema([reader.schema.field(name) for name in reader.columns])
    if not text.strip():
        return wanted.empty_table()
    options = json.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore")
    return json.read_json(
        io.BytesIO(text), json.ReadOptions(block_size=len(text) + 1, use_threads=False), options
    )


def _csv(head: bytes, reader: LiveReader, delimiter: str, text: bytes) -> pa.Table:
    wanted = {name: reader.schema.field(name).type for name in reader.columns}
    whole = head + b"\n" + text
    try:
        return csv.read_csv(
            io.BytesIO(whole),
            csv.ReadOptions(block_size=len(whole) + 1, use_threads=False),
            csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            csv.ConvertOptions(
                column_types=wanted,
                include_columns=list(wanted),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except KeyError:
        raise SchemaMismatchError(
            "its head lacks a column that the stream declares; add it, or correct schema="
        ) from None
