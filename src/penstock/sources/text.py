"""Read CSV and JSON lines: rows and malformed records.

Text is read in blocks of complete records. Arrow decodes a block at once. A block that Arrow rejects is divided into
small parts, whose records are checked one by one (`text_checks.py`). A record is a row only if every declared
column can be read, whichever columns a query reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import SchemaMismatchError, SourceError
from penstock.sources.arrow import one_batch
from penstock.sources.conform import check, conformer
from penstock.sources.malformed import FAILURES, NO_TIME, Bad, good_and_bad
from penstock.sources.text_checks import not_a
from penstock.sources.text_formats import BOM, Csv, Format, JsonLines, Record, csv_head, ends, last_end, lines
from penstock.storage.access import LOCAL, Access

TEXT_BLOCK = 1 << 22  # bytes of text decoded at once
_SMALL = 1 << 16  # bytes of a part whose records are checked one by one
_PARTS = 16  # parts into which a failing text is divided
_LONGEST = 1 << 25  # bytes of a quoted text; a longer one has an unclosed quote
_LINE = 1 << 28  # bytes of a line

Decoded = tuple[pa.RecordBatch, tuple[Bad, ...]]


@dataclass(frozen=True, slots=True)
class TextReader:
    """Read a text file as rows of a schema. With `time`, rows without a time are malformed."""

    format: str
    schema: pa.Schema
    time: str | None = None
    block: int = TEXT_BLOCK
    access: Access = LOCAL

    def __call__(self, path: str) -> Iterator[Decoded]:
        """Read a file in parts, each with its malformed records."""
        with self.access.open_text(path) as file:
            format, rest, line = self._begin(path, file)
            search, number = _Search(path, format, self.schema, self.time), 0
            for text, whole in _blocks(path, file, rest, format.complete, self.block):
                for batch, bad, records in (search.parts if whole else search.alone)(text, number, line):
                    yield batch, bad
                    number += records
                line += ends(text)

    def every_record(self, path: str, reason: str) -> Iterator[Bad]:
        """Yield each line of a file as malformed."""
        with self.access.open_text(path) as file:
            rest, line = csv_head(path, file, self.block)[1:] if self.format == "csv" else (b"", 1)
            for record in lines(rest + file.read(), 0, line):
                yield Bad(record.text, f"line {record.line}: {reason}", path, record.number)

    def _begin(self, path: str, file: Any) -> tuple[Format, bytes, int]:
        """Return the format, the text after the header, and the number of its first line."""
        if self.format == "json":
            return JsonLines.of(self.schema), file.read(max(self.block, len(BOM))).removeprefix(BOM), 1
        names, rest, line = csv_head(path, file, self.block)
        if names:
            found = pa.schema([pa.field(name, pa.null()) for name in names])
            check(found, self.schema, f"the file {path!r}")
        return Csv.of(path, names, self.schema), rest, line


@dataclass(frozen=True, slots=True)
class _Search:
    """The search for malformed records in a block."""

    path: str
    format: Format
    schema: pa.Schema
    time: str | None

    def parts(
        self, text: bytes, number: int, line: int
    ) -> Iterator[tuple[pa.RecordBatch, tuple[Bad, ...], int]]:
        """Decode complete records, in parts if that fails. Yields rows, malformed records and the number of records."""
        try:
            batch = self._decoded(text)
        except SchemaMismatchError:
            raise
        except FAILURES:
            divided = list(self._divided(text)) if len(text) > _SMALL else [text]
        else:
            records = self._named(text, number, line) if self._untimed(batch) else []
            yield self._sifted(batch, records, [], batch.num_rows)
            return
        for part in divided:
            for piece in (self.parts if len(divided) > 1 else self.alone)(part, number, line):
                yield piece
                number += piece[2]
            line += ends(part)

    def _divided(self, text: bytes) -> Iterator[bytes]:
        """Divide complete records into parts. More than two, since a failing part is decoded again in parts."""
        size, at = max(len(text) // _PARTS, _SMALL // 2), 0
        while at < len(text):
            cut = self.format.complete(text[at : at + size]) or len(text)
            yield text[at : at + cut]
            at += cut

    def alone(
        self, text: bytes, number: int, line: int
    ) -> Iterator[tuple[pa.RecordBatch, tuple[Bad, ...], int]]:
        """Check the records of a text one by one."""
        records = self._named(text, number, line)
        whole = [record for record in records if record.reason is None]
        good, bad = good_and_bad(whole, self._rows, self.format.reason)
        refused = {record.number for record, _ in bad}
        kept = [record for record in whole if record.number not in refused]
        batch = one_batch(pa.Table.from_batches(good, self.schema).combine_chunks())
        bad += [(record, record.reason) for record in records if record.reason is not None]
        yield self._sifted(batch, kept, bad, len(records))

    def _sifted(
        self, batch: pa.RecordBatch, records: Sequence[Record], bad: list[tuple[Record, str]], count: int
    ) -> tuple[pa.RecordBatch, tuple[Bad, ...], int]:
        """Remove the rows without a time, and add locations to malformed records."""
        if self._untimed(batch):
            there = batch.column(self.time).is_valid()
            missing = [record for record, timed in zip(records, there.to_pylist(), strict=True) if not timed]
            batch, bad = batch.filter(there), [*bad, *((record, NO_TIME) for record in missing)]
        found = sorted(bad, key=lambda pair: pair[0].number)
        reported = (
            Bad(record.text, f"line {record.line}: {why}", self.path, record.number) for record, why in found
        )
        return batch, tuple(reported), count

    def _untimed(self, batch: pa.RecordBatch) -> bool:
        return self.time is not None and batch.column(self.time).null_count > 0

    def _named(self, text: bytes, number: int, line: int) -> list[Record]:
        return list(self.format.records(text, number, line))

    def _rows(self, records: Sequence[Record]) -> pa.RecordBatch:
        try:
            batch = self._decoded(b"\n".join(record.text for record in records))
        except FAILURES:
            if len(records) == 1:
                raise ValueError(self._fault(records[0])) from None
            raise
        if batch.num_rows != len(records):
            raise ValueError("it is not one record")
        return batch

    def _fault(self, record: Record) -> str:
        """Find the column that cannot be read. If no column can, blame the record."""
        first, *others = self.schema
        if self._reads(first, record):
            failing = next((field for field in others if not self._reads(field, record)), None)
        else:
            failing = first if not others or any(self._reads(field, record) for field in others) else None
        return "it does not fit its format" if failing is None else not_a(failing.name, failing.type)

    def _reads(self, field: pa.Field, record: Record) -> bool:
        try:
            self.format.only(field).decode(record.text)
        except FAILURES:
            return False
        return True

    def _decoded(self, text: bytes) -> pa.RecordBatch:
        where, names = f"the file {self.path!r}", self.schema.names
        try:
            table = self.format.decode(text)
        except pa.ArrowNotImplementedError as error:
            raise SchemaMismatchError(
                f"{where} cannot be read: {str(error).splitlines()[0]}; declare another type"
            ) from None
        return conformer(table.schema, self.schema, names, where)(one_batch(table.combine_chunks()))


def _blocks(
    path: str, file: Any, text: bytes, complete: Callable[[bytes], int], size: int
) -> Iterator[tuple[bytes, bool]]:
    """Cut a text at ends of records. Text after an unclosed quote is yielded separately, as incomplete."""
    while more := file.read(size):
        cut = complete(text)
        if cut:
            yield text[:cut], True
        text = text[cut:] + more
        if len(text) > _LONGEST + size and (cut := last_end(text, len(text))):
            yield text[:cut], False
            text = text[cut:]
        if len(text) > _LINE:
            raise SourceError(
                f"the file {path!r} cannot be read: a line is longer than {_LINE >> 20} MB; check that it is text with line ends"
            )
    cut = min(complete(text + b"\n"), len(text))
    yield text[:cut], True
    if text[cut:].strip():
        yield text[cut:], False
