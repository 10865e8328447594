"""Read fragments one after the other, or prefetch some on other threads.

Row groups are independent, so each thread decodes a whole one: this was faster than sharing the columns of one
row group among threads (decision 20).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.expr.nodes import Expr, columns_of
from penstock.sources import parquet_footers, readers
from penstock.sources.conform import columns_alone, conformer, stored_type, with_own_fields
from penstock.sources.fragment import Fragment, completed, constant, joined, left, unpacked
from penstock.sources.malformed import Malformed
from penstock.sources.parquet_decode import (
    CONNECTIONS,
    DECODED_RUN,
    HELD,
    WORTH_ALONE,
    decode,
    decoder_for,
    most_rows,
    row_bytes,
    runs_of,
)
from penstock.sources.parquet_decode import FETCHED_RUN as STORED_RUN
from penstock.sources.parquet_decode import decoded as decoded_from_store
from penstock.sources.parquet_footers import Footer
from penstock.sources.paths import require_file
from penstock.sources.read_errors import unreadable
from penstock.sources.text import TEXT_BLOCK, TextReader
from penstock.sources.time_pruning import in_steps
from penstock.sources.value_ranges import Range, may_pass
from penstock.storage.access import LOCAL, Access
from penstock.types.windows import Steps


def read(
    fragment: Fragment,
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    predicate: Expr | None = None,
    footer: Footer | None = None,
    decoder: str | None = None,
    steps: Steps | None = None,
    malformed: Malformed | None = None,
    block: int = TEXT_BLOCK,
    access: Access = LOCAL,
) -> Iterator[pa.RecordBatch]:
    """Read the named columns of a fragment, in the types of the schema and in row order.

    Holds one row group at a time. Row groups in which certainly no row passes the predicate are skipped; the result may
    include rows that fail it. `decoder` is "polars" or "arrow", by default the faster. A time may be replaced by another
    time in the same of the `steps`. Malformed records of text go to `malformed`; by default the first is an error. Text is
    decoded in blocks of `block` bytes.
    """
    names = list(schema.names if columns is None else columns)
    given = {name for name, _ in fragment.partition}
    inside = [name for name in names if name not in given]
    where = f"the file {fragment.path!r}"
    chosen = decoder or decoder_for(fragment.rows, WORTH_ALONE)
    try:
        if not access.reaches(fragment.path):
            require_file(fragment.path)
        known = footer or Footer(fragment.path, access)
        text = fragment.format in readers.TEXT
        batches = (
            _text(fragment, schema, predicate, malformed or Malformed(), block, access)
            if text
            else _stored(fragment, schema, inside, predicate, known, chosen, steps, access)
        )
        for batch in batches:
            plain = conformer(batch.schema, schema, inside, where)(batch)
            yield completed(plain, fragment.partition, schema, names, fragment.path)
    except PenstockError:
        raise
    except (OSError, pa.ArrowException, UnicodeError) as reason:
        raise unreadable(fragment.path, reason, access) from None


def _stored(
    fragment: Fragment,
    schema: pa.Schema,
    columns: list[str],
    predicate: Expr | None,
    footer: Footer,
    decoder: str,
    steps: Steps | None,
    access: Access,
) -> Iterator[pa.RecordBatch]:
    if fragment.format == "parquet":
        return _row_groups(fragment, schema, columns, predicate, footer, decoder, steps, access)
    if not may_pass(predicate, known_by_folders(fragment, schema)):
        return iter(())
    return readers.READERS[fragment.format].batches(fragment.path, columns, schema, access)


def _text(
    fragment: Fragment,
    schema: pa.Schema,
    predicate: Expr | None,
    malformed: Malformed,
    block: int,
    access: Access,
) -> Iterator[pa.RecordBatch]:
    """Read all declared columns: a record with an unreadable column is malformed, whichever columns the query reads."""
    if not may_pass(predicate, known_by_folders(fragment, schema)):
        return
    given = {name for name, _ in fragment.partition}
    inside = pa.schema([field for field in schema if field.name not in given])
    time = malformed.time if malformed.time in inside.names else None
    for batch, bad in TextReader(fragment.format, inside, time, block, access)(fragment.path):
        malformed.add(bad)
        yield batch


def _row_groups(
    fragment: Fragment,
    schema: pa.Schema,
    columns: list[str],
    predicate: Expr | None,
    footer: Footer,
    decoder: str,
    steps: Steps | None,
    access: Access,
) -> Iterator[pa.RecordBatch]:
    metadata = footer.get()
    names, gone = dict(fragment.renamed), unpacked(fragment.deletes)
    ours = {theirs: name for name, theirs in columns_alone(names).items()}
    nested = len(ours) < len(names)
    numbers = list(passing(fragment, schema, predicate, metadata))
    most, unit = most_rows(schema, columns), _legacy_unit(schema, columns)
    afar = access.reaches(fragment.path)
    paged = None if afar else fragment.path  # in a store, each page header would be a request
    for run, time in in_steps(numbers, metadata, schema, columns, names, steps, paged):
        inside = [name for name in columns if time is None or name != time.name]
        wanted = _leaves(metadata, schema, inside, names)

        def decoded(
            path: str, numbers: list[int], wanted: Sequence[str] = wanted
        ) -> Iterator[tuple[int, pa.RecordBatch]]:
            return decode(path, metadata, numbers, wanted, decoder, most, unit)

        if afar:
            runs = list(runs_of(metadata, run, min(STORED_RUN, most)))
            parts = decoded_from_store(access, footer, runs, wanted, decoded)
        else:
            parts = decoded(fragment.path, run)
        for start, batch in parts:
            named = (
                batch.rename_columns([ours.get(name, name) for name in batch.schema.names]) if ours else batch
            )
            named = with_own_fields(named, schema, names) if nested else named
            yield left(named if time is None else time.added(named, start), start, gone)


def _leaves(metadata: Any, schema: pa.Schema, columns: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """Name the columns in the file; of a struct the leaves that are declared, where not all are."""
    declared = [
        (names.get(name, name), stored_type(schema.field(name).type, name, names)) for name in columns
    ]
    if not any(pa.types.is_struct(dtype) for _, dtype in declared):
        return [name for name, _ in declared]
    stored = metadata.schema.to_arrow_schema()
    return [
        leaf
        for name, dtype in declared
        for leaf in parquet_footers.declared_leaves(name, stored.field(name).type, dtype)
    ]


def _legacy_unit(schema: pa.Schema, columns: Sequence[str]) -> str | None:
    """Read 96-bit timestamps as microseconds where those are declared, so that years beyond 2262 fit."""
    types = [schema.field(name).type for name in columns]
    declared = {dtype.unit for dtype in types if pa.types.is_timestamp(dtype)}
    return "us" if declared == {"us"} else None


def passing(fragment: Fragment, schema: pa.Schema, predicate: Expr | None, metadata: Any) -> Iterator[int]:
    """Return the numbers of a fragment's row groups that may contain a passing row."""
    numbers = parquet_footers.numbers(fragment, metadata)
    if predicate is None:
        yield from numbers
        return
    folders = known_by_folders(fragment, schema)
    names = dict(fragment.renamed)
    names_in_file = {name: names.get(name, name) for name in columns_of(predicate) if name in schema.names}
    leaves = parquet_footers.leaves(metadata, schema, names_in_file)
    for number in numbers:
        if may_pass(predicate, {**parquet_footers.ranges(metadata, number, leaves), **folders}):
            yield number


def known_by_folders(fragment: Fragment, schema: pa.Schema) -> dict[str, Range]:
    """Return the ranges that folder values imply: one value, or only nulls."""
    texts = {name: text for name, text in fragment.partition if name in schema.names}
    values = {name: constant(text, schema.field(name), fragment.path) for name, text in texts.items()}
    return {name: _exactly(value) for name, value in values.items()}


def _exactly(value: pa.Scalar) -> Range:
    if not value.is_valid:
        return Range(value.type, empty=True)
    plain = value.value if hasattr(value, "value") else value.as_py()
    return Range(value.type, plain, plain, nulls=False)


def read_ahead(
    fragments: Sequence[Fragment],
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    predicate: Expr | None = None,
    threads: int | None = None,
    steps: Steps | None = None,
    malformed: Malformed | None = None,
    access: Access = LOCAL,
    footers: Mapping[str, Footer] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read fragments in order, decoding a few ahead so that the consumer does not block."""
    names = list(schema.names if columns is None else columns)
    workers = threads or len(os.sched_getaffinity(0))
    afar = bool(fragments) and access.reaches(fragments[0].path)
    workers, run = (max(workers, CONNECTIONS), STORED_RUN) if afar else (workers, DECODED_RUN)
    decoder = decoder_for(sum(fragment.rows or 0 for fragment in fragments))
    most = most_rows(schema, names)
    # Wide rows are prefetched less far, whatever the number of threads.
    ahead = max(min(workers, 2 * HELD // (row_bytes(schema, names) * min(most, run))), 1)
    pool = ThreadPoolExecutor(workers, thread_name_prefix="penstock-read")
    waiting: deque[Future[list[pa.RecordBatch]]] = deque()

    def read_part(part: Fragment, footer: Footer) -> Iterator[pa.RecordBatch]:
        return read(part, schema, names, predicate, footer, decoder, steps, malformed, access=access)

    try:
        for part, footer in _jobs(fragments, min(most, run), access, footers or {}):
            if not _fits(part, most):
                while waiting:
                    yield from waiting.popleft().result()
                yield from read_part(part, footer)
                continue
            waiting.append(pool.submit(lambda *job: list(read_part(*job)), part, footer))
            if len(waiting) > ahead:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        pool.shutdown(wait=True)


def _fits(fragment: Fragment, most: int) -> bool:
    """Check whether a fragment may be held in memory as a whole. Others are read on demand."""
    return fragment.row_groups is not None and fragment.rows is not None and fragment.rows <= most


def _jobs(
    fragments: Sequence[Fragment], rows: int, access: Access, known: Mapping[str, Footer]
) -> Iterator[tuple[Fragment, Footer]]:
    for path, parts in groupby(joined(fragments, rows), key=lambda fragment: fragment.path):
        footer = known.get(path) or Footer(path, access)
        for part in parts:
            yield part, footer
