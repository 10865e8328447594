"""Decode row groups with Polars where it is installed, exact and worth loading, else with Arrow.

Polars' decoder takes half to two thirds of Arrow's processor time (decision 20). It decodes only types that both read
alike, and its output is compared with the types in the file. On any difference or error, Arrow decodes instead.
"""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import pyarrow as pa

from penstock.sources.parquet_footers import (
    MAGIC,
    Footer,
    ending,
    leaf_of,
    leaves_under,
    legacy_times,
    open_parquet,
)
from penstock.storage.access import Access
from penstock.storage.filesystems import Buffer, Span
from penstock.types.arrow import kind_of, width_of

# --- Fetch row groups from a store, and decode them as those of a local file.
#
# The column chunks that a query reads are fetched by at most two requests per row group, and written at their own offsets
# into a sparse file in memory, with the footer behind them. Every decoder reads that file.

T = TypeVar("T")

FETCHED_RUN = 1 << 17  # rows of small row groups fetched together
CONNECTIONS = 16  # fetches of a scan at one time
_AHEAD = 4  # fetches of a task of Spark at one time, of which an executor runs several
_GAP = 1 << 20  # bytes between two columns that cost less to fetch than another request
_MOST_REQUESTS = 2  # per row group


def decoded(
    access: Access,
    footer: Footer,
    runs: Sequence[list[int]],
    columns: Sequence[str],
    decode: Callable[[str, list[int]], Iterator[T]],
) -> Iterator[T]:
    """Fetch runs of row groups, some ahead, and decode each with `decode(path, numbers)`."""
    if len(runs) == 1:
        yield from _decoded(fetched(access, footer, runs[0], columns), runs[0], decode)
        return
    with ThreadPoolExecutor(_AHEAD, thread_name_prefix="penstock-fetch") as pool:
        waiting: deque[tuple[Future[BinaryIO], list[int]]] = deque()
        try:
            for run in runs:
                waiting.append((pool.submit(fetched, access, footer, run, columns), run))
                if len(waiting) > _AHEAD:
                    first, numbers = waiting.popleft()
                    yield from _decoded(first.result(), numbers, decode)
            while waiting:
                first, numbers = waiting.popleft()
                yield from _decoded(first.result(), numbers, decode)
        finally:
            for future, _ in waiting:
                if not future.cancel():
                    future.add_done_callback(_dropped)


def _dropped(future: Future[BinaryIO]) -> None:
    if not future.cancelled() and future.exception() is None:
        future.result().close()


def _decoded(file: BinaryIO, run: list[int], decode: Callable[[str, list[int]], Iterator[T]]) -> Iterator[T]:
    with file:
        yield from decode(_path_of(file), run)


def fetched(access: Access, footer: Footer, numbers: Sequence[int], columns: Sequence[str]) -> BinaryIO:
    """Return a file in memory that holds some columns of row groups, and the footer."""
    spans = spans_of(footer.get(), numbers, columns)
    parts = access.spans(footer.path, spans) if spans else ()
    file = _anonymous()
    _put(file, 0, MAGIC)
    for (begin, _), data in zip(spans, parts, strict=True):
        _put(file, begin, data)
    _put(file, max((end for _, end in spans), default=len(MAGIC)), ending(footer.raw))
    return file


def spans_of(metadata: Any, numbers: Sequence[int], columns: Sequence[str]) -> list[Span]:
    """Return the byte ranges to request for some columns of row groups."""
    groups = (metadata.row_group(number) for number in numbers)
    leaves = leaves_under(metadata, columns)
    spans = [span for group in groups for span in _merged([_chunk(group.column(at)) for at in leaves])]
    return _joined(spans, _GAP)


def _chunk(column: Any) -> Span:
    begin = column.data_page_offset
    if column.has_dictionary_page and column.dictionary_page_offset:
        begin = min(begin, column.dictionary_page_offset)
    return begin, begin + column.total_compressed_size


def _merged(chunks: list[Span]) -> list[Span]:
    """Join ranges until few are left, those with the smallest gap first.

    >>> _merged([(4, 10), (3_000_000, 3_000_010), (9_000_000, 9_000_010), (20, 30)])
    [(4, 3000010), (9000000, 9000010)]
    """
    spans = _joined(chunks, _GAP)
    while len(spans) > _MOST_REQUESTS:
        gaps = [after[0] - before[1] for before, after in pairwise(spans)]
        spans = _joined(spans, min(gaps))
    return spans


def _joined(spans: Sequence[Span], gap: int) -> list[Span]:
    made: list[Span] = []
    for begin, end in sorted(spans):
        if made and begin - made[-1][1] <= gap:
            made[-1] = made[-1][0], max(made[-1][1], end)
        else:
            made.append((begin, end))
    return made


# --- files in memory ------------------------------------------------------------------------------------


@contextmanager
def local_copy(path: str, access: Access) -> Iterator[str]:
    """Return the path of a small file: a local one, or its copy in memory."""
    if not access.reaches(path):
        yield path
        return
    with _anonymous() as file:
        _put(file, 0, access.read(path))
        yield _path_of(file)


def _anonymous() -> BinaryIO:
    """Create a file that takes memory for what is written only, and is gone when it is closed."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("penstock", os.MFD_CLOEXEC), "w+b", buffering=0)
    return tempfile.NamedTemporaryFile(buffering=0)  # type: ignore[return-value]


def _path_of(file: BinaryIO) -> str:
    return f"/proc/self/fd/{file.fileno()}" if hasattr(os, "memfd_create") else file.name


def _put(file: BinaryIO, at: int, data: Buffer) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(file.fileno(), left, at)
        left, at = left[written:], at + written


# --- Validate what Arrow's Parquet reader does not check: UTF-8, the digits of decimals, the range of times of day.

_ASCII = 128  # lower bytes are single characters
# Types some of whose bit patterns are no value.
_BOUNDED = (
    pa.types.is_nested,
    pa.types.is_string_view,
    pa.types.is_decimal,
    pa.types.is_time,
    pa.types.is_date64,
)
_OFFSETS = {pa.string(): "<i4", pa.large_string(): "<i8"}


def with_valid_values(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches. Raise `ArrowInvalid` at the first with a value that its type cannot hold."""
    for batch in batches:
        for column in batch.columns:
            if not _surely_valid(column):
                column.validate(full=True)
        yield batch


def _surely_valid(column: pa.Array) -> bool:
    """Check quickly that a column is certainly valid: its type holds any bytes, or its texts are ASCII."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _surely_valid(column.dictionary)
    if kind not in _OFFSETS:
        return not any(is_bounded(kind) for is_bounded in _BOUNDED)
    _, places, data = column.buffers()
    if data is None or places is None or not len(column):
        return True
    offsets = np.frombuffer(places, _OFFSETS[kind])
    begin, end = offsets[column.offset], offsets[column.offset + len(column)]
    return bool(np.frombuffer(data, np.uint8)[begin:end].max(initial=0) < _ASCII)


DECODED_RUN = (
    1 << 20
)  # rows of small row groups decoded together: opening a file costs as much as thousands of rows
LARGEST_ROW_GROUP = 1 << 22  # rows of a row group decoded at once; longer ones are decoded in parts
HELD = 1 << 29  # bytes decoded at once, so fewer rows of wide tables
ROWS_WORTH_POLARS = 1 << 20  # rows of a scan below which loading Polars costs more than it saves
WORTH_ALONE = 1 << 17  # rows of a fragment that is likely one of many

_TEXT = 32  # estimated bytes of a variable-width value

_ENCODINGS = frozenset(
    {
        "PLAIN",
        "PLAIN_DICTIONARY",
        "RLE",
        "RLE_DICTIONARY",
        "BIT_PACKED",
        "BYTE_STREAM_SPLIT",
        "DELTA_BINARY_PACKED",
    }
)
_NUMBERS = frozenset({"bool", "int", "uint", "float"})


def decode(
    path: str,
    metadata: Any,
    numbers: Sequence[int],
    columns: Sequence[str],
    decoder: str,
    most: int = LARGEST_ROW_GROUP,
    legacy_unit: str | None = None,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Decode columns of some row groups, in order, at most `most` rows at a time. Yields the number of the first row and a batch."""
    starts = starts_of(metadata)
    polars = decoder == "polars" and _readable(metadata, columns, numbers)
    with open_parquet(path, metadata, legacy_unit) as file:
        for run in runs_of(metadata, numbers, min(DECODED_RUN, most)):
            start, rows = starts[run[0]], starts[run[-1] + 1] - starts[run[0]]
            fast = polars and rows <= most
            made = _by_polars(path, start, rows, file.schema_arrow, columns) if fast else None
            for batch in (
                _by_arrow(file, run, columns, most if rows > most else None) if made is None else made
            ):
                yield start, batch
                start += batch.num_rows


def stretch_of(path: str, metadata: Any, column: str, begin: int, end: int) -> pa.Array:
    """Read one column of a range of rows in one row group."""
    starts = starts_of(metadata)
    number = bisect_right(starts, begin) - 1
    with open_parquet(path, metadata) as file:
        fast = find_spec("polars") is not None and _readable(metadata, [column], [number])
        made = _by_polars(path, begin, end - begin, file.schema_arrow, [column]) if fast else None
        if made is not None:
            return pa.Table.from_batches(made).column(0).combine_chunks()
        whole = file.read_row_groups([number], columns=[column], use_threads=False).column(0)
        return whole.slice(begin - starts[number], end - begin).combine_chunks()


def _by_arrow(
    file: Any, run: list[int], columns: Sequence[str], most: int | None
) -> Iterator[pa.RecordBatch]:
    """Read a run at once, or `most` rows at a time."""
    if most is not None:
        parts = file.iter_batches(most, row_groups=run, columns=columns, use_threads=False)
    else:
        parts = _at_once(file, run, columns)
    return with_valid_values(parts)


def _at_once(file: Any, run: list[int], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Read a run at once; where dictionaries lie inside structs, Arrow reads no more than one row group."""
    try:
        yield from file.read_row_groups(run, columns=columns, use_threads=False).to_batches()
    except pa.ArrowNotImplementedError:
        if len(run) == 1:
            raise
        for number in run:
            yield from _at_once(file, [number], columns)


def most_rows(schema: pa.Schema, columns: Sequence[str]) -> int:
    """Return the number of rows of some columns that may be in memory at once."""
    return max(min(LARGEST_ROW_GROUP, HELD // row_bytes(schema, columns)), 1)


def row_bytes(schema: pa.Schema, columns: Sequence[str]) -> int:
    """Estimate the bytes per row of some columns."""
    return max(sum(width_of(schema.field(name).type) or _TEXT for name in columns), 1)


def decoder_for(rows: int | None, worth: int = ROWS_WORTH_POLARS) -> str:
    """Choose the decoder for a number of rows; Polars pays off from `worth` rows on."""
    pays = rows is not None and rows >= worth
    return "polars" if pays and find_spec("polars") is not None else "arrow"


def starts_of(metadata: Any) -> list[int]:
    """Return the number of the first row of each row group, and of the end of the file."""
    starts = [0]
    for number in range(metadata.num_row_groups):
        starts.append(starts[-1] + metadata.row_group(number).num_rows)
    return starts


def runs_of(metadata: Any, numbers: Sequence[int], most: int) -> Iterator[list[int]]:
    """Group adjacent small row groups, up to `most` rows."""
    run: list[int] = []
    held = 0
    for number in numbers:
        rows = metadata.row_group(number).num_rows
        if run and (number != run[-1] + 1 or held + rows > most):
            yield run
            run, held = [], 0
        run.append(number)
        held += rows
    if run:
        yield run


# --- Polars ---------------------------------------------------------------------------------------------


def _readable(metadata: Any, columns: Sequence[str], numbers: Sequence[int]) -> bool:
    """Check whether Polars reads all columns of some row groups exactly as Arrow does."""
    stored = metadata.schema.to_arrow_schema()
    legacy = legacy_times(metadata)
    return (
        bool(columns)
        and all(
            _plain_name(name)
            and name in stored.names
            and name not in legacy
            and _same_in_both(stored.field(name).type)
            for name in columns
        )
        and _plainly_encoded(metadata, columns, numbers)
    )


def _plainly_encoded(metadata: Any, columns: Sequence[str], numbers: Sequence[int]) -> bool:
    """Check that no lengths are delta-encoded: damaged ones make Polars allocate too much memory and abort the process."""
    leaves = [leaf for name in columns if (leaf := leaf_of(metadata, name)) is not None]
    return all(
        _ENCODINGS.issuperset(metadata.row_group(number).column(leaf).encodings)
        for number in numbers
        for leaf in leaves
    )


def _plain_name(name: str) -> bool:
    """Check that Polars takes a name literally: it reads some as patterns."""
    return name != "*" and not name.startswith("^")


def _same_in_both(dtype: pa.DataType) -> bool:
    if pa.types.is_dictionary(dtype):
        return False
    match kind_of(dtype):
        case "timestamp":
            return dtype.unit != "s" and dtype.tz in (None, "UTC")
        case "date":
            return bool(pa.types.is_date32(dtype))
        case "string":
            return True
        case kind:
            return kind in _NUMBERS


def _by_polars(
    path: str, start: int, rows: int, stored: pa.Schema, columns: Sequence[str]
) -> list[pa.RecordBatch] | None:
    """Read a range of rows; None on failure or if types differ from the file's."""
    import polars as pl  # noqa: PLC0415 - an optional dependency

    try:
        frame = (
            # Polars takes an absolute path literally; it may read others as a home folder or a URL.
            pl.scan_parquet(str(Path(path).absolute()), glob=False, hive_partitioning=False, cache=False)
            .slice(start, rows)
            .select(list(columns))
            .collect()
        )
        # The Arrow stream interface would copy several row groups into one.
        batches = frame.to_arrow(compat_level=pl.CompatLevel.newest()).to_batches()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException, OSError):
        return None  # Arrow reads it, or raises the error
    exact = sum(batch.num_rows for batch in batches) == rows and all(
        _agrees(batch.schema.field(name).type, stored.field(name).type)
        for batch in batches
        for name in columns
    )
    return batches if exact else None


def _agrees(given: pa.DataType, stored: pa.DataType) -> bool:
    texts = kind_of(stored) == "string" and pa.types.is_string_view(given)
    return bool(given == stored or texts)
