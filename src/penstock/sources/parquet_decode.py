"""Decode row groups with Polars where it is installed, exact and worth loading, else with Arrow.

Polars' decoder takes half to two thirds of Arrow's processor time (decision 20). It decodes only types that both read
alike, and its output is compared with the types in the file. On any difference or error, Arrow decodes instead.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.sources.parquet_footers import leaf_of, legacy_times, open_parquet
from penstock.sources.valid_values import with_valid_values
from penstock.types.arrow import kind_of, width_of

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
        parts = iter(file.read_row_groups(run, columns=columns, use_threads=False).to_batches())
    return with_valid_values(parts)


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
            _plain_name(name) and name not in legacy and _same_in_both(stored.field(name).type)
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
