"""Fetch row groups from a store, and decode them as those of a local file.

The column chunks that a query reads are fetched by at most two requests per row group, and written at their own offsets
into a sparse file in memory, with the footer behind them. Every decoder reads that file.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, BinaryIO, TypeVar

from penstock.sources.parquet_footers import MAGIC, Footer, ending
from penstock.storage.access import Access
from penstock.storage.filesystems import Buffer, Span

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
    leaves = [
        place
        for place, name in enumerate(metadata.schema.column(at).path for at in range(len(metadata.schema)))
        if any(name == column or name.startswith(f"{column}.") for column in columns)
    ]
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
