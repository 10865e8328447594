"""Hypothesis strategies for tables of every type and awkwardness (queries: `queries.py`)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import strategies as st

from tests.oracle.describe import TimeSpec

UNITS = ("s", "ms", "us", "ns")
ZONES = (None, "UTC", "Europe/Berlin", "Asia/Kolkata")
AWKWARD_NAMES = (
    "k", "v", "a b", 'quo"te', "it's", "select", "from", "🎈", "new\nline", "%s", "{0}", "é", "__class__", "$1",
    "x;--", "\\", "T", "lambda",
)  # fmt: skip
STRINGS = (
    "",
    "a",
    "view",
    "View",
    "é",
    "🎈",
    "it's",
    'x"y',
    "a\nb",
    "NULL",
    "%",
    "aa",
    "longer than twelve bytes",
)
SPECIAL = (float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 5e-324, -5e-324, 1e-310, 1e308, -1e308)
PLAIN = (1.0, -1.0, 0.5, 2.0, 3.25, -7.75, 1e-3, 1e6, 0.1, 1 / 3, 123456.789, 1e16, -1e16, 1e-16)
SMALL = 100


@dataclass(frozen=True, slots=True)
class Column:
    """A column on offer: `bound` limits |value| of integers fit for arithmetic, None if they are not."""

    name: str
    type: pa.DataType
    bound: int | None = None
    exact: bool = True
    divisor: bool = True


@dataclass(frozen=True, slots=True)
class Dataset:
    """A source: its table, time column and the columns on offer."""

    name: str
    table: pa.Table
    time: TimeSpec
    columns: tuple[Column, ...]


INTEGERS = (
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
)  # fmt: skip
FLOATS = (pa.float32(), pa.float64())
DICTIONARIES = tuple(pa.dictionary(index, pa.string()) for index in (pa.int8(), pa.int32(), pa.uint16()))


def _limits(dtype: pa.DataType) -> tuple[int, int]:
    bits = dtype.bit_width
    return (
        (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if pa.types.is_signed_integer(dtype) else (0, 2**bits - 1)
    )


def _near_limits(dtype: pa.DataType) -> st.SearchStrategy[int]:
    low, high = _limits(dtype)
    return st.sampled_from([low, low + 1, high, high - 1, 0, 1, high // 2, high // 3, low // 2])


def _small_integers(dtype: pa.DataType) -> st.SearchStrategy[int]:
    low, high = _limits(dtype)
    return st.integers(max(low, -SMALL), min(high, SMALL)) | st.integers(max(low, -2), 2)


def integers(dtype: pa.DataType, wide: bool) -> st.SearchStrategy[int]:
    return _near_limits(dtype) | _small_integers(dtype) if wide else _small_integers(dtype)


def floats(dtype: pa.DataType, special: bool) -> st.SearchStrategy[float]:
    pool = st.sampled_from(PLAIN + SPECIAL if special else PLAIN)
    if dtype == pa.float32():
        return pool.map(lambda x: x if abs(x) < 1e38 or x != x else x / 1e270)
    return pool | st.floats(-1e6, 1e6)


def values(column: Column, special: bool) -> st.SearchStrategy[object]:
    """Draw one non-null value of a column, temporal ones as ticks."""
    dtype = column.type
    if pa.types.is_boolean(dtype):
        return st.booleans()
    if pa.types.is_integer(dtype):
        return integers(dtype, column.bound is None)
    if pa.types.is_floating(dtype):
        return floats(dtype, special)
    if pa.types.is_string(dtype) or pa.types.is_dictionary(dtype):
        return st.sampled_from(STRINGS)
    if pa.types.is_date(dtype):
        return st.integers(-30_000, 30_000) | st.integers(-2, 2)
    return st.integers(-(10**6), 10**6) | st.integers(-3, 3)


@st.composite
def column_specs(draw: st.DrawFn, name: str) -> Column:
    """Draw a column's type; half of the integer columns stay small, so that arithmetic cannot overflow."""
    kind = draw(
        st.sampled_from(["int", "int", "float", "string", "dict", "bool", "date", "duration", "time"])
    )
    match kind:
        case "int":
            small = draw(st.sampled_from([True, True, False]))
            return Column(name, draw(st.sampled_from(INTEGERS)), SMALL if small else None)
        case "float":
            return Column(name, draw(st.sampled_from(FLOATS)))
        case "string":
            return Column(name, pa.string())
        case "dict":
            return Column(name, draw(st.sampled_from(DICTIONARIES)))
        case "bool":
            return Column(name, pa.bool_())
        case "date":
            return Column(name, pa.date32())
        case "duration":
            return Column(name, pa.duration(draw(st.sampled_from(UNITS))))
        case _:
            return Column(name, pa.timestamp(draw(st.sampled_from(UNITS)), draw(st.sampled_from(ZONES))))


@st.composite
def time_specs(draw: st.DrawFn) -> TimeSpec:
    """Draw any way of telling time."""
    kind = draw(st.sampled_from(["timestamp", "timestamp", "timestamp", "date", "int", "ticks"]))
    unit = draw(st.sampled_from(UNITS))
    match kind:
        case "timestamp":
            return TimeSpec(pa.timestamp(unit, draw(st.sampled_from(ZONES))), None, unit)
        case "date":
            return TimeSpec(pa.date32(), None, "d")
        case "int":
            return TimeSpec(draw(st.sampled_from([pa.int64(), pa.int32(), pa.uint32()])), unit, unit)
        case _:
            return TimeSpec(draw(st.sampled_from([pa.int64(), pa.int32()])), None, None)


def _bases(spec: TimeSpec) -> st.SearchStrategy[int]:
    if spec.type == pa.uint32():
        return st.sampled_from([1000, 2**31 - 20, 4_000_000_000])
    if spec.type in (pa.int32(), pa.date32()):
        return st.sampled_from([0, -25, -1000, 20_000])
    scale = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9, None: 1}[spec.tick]
    return st.sampled_from([0, -25, 1_700_000_000 * scale, -2_000_000_000 * scale, 3])


def _distances(spec: TimeSpec) -> st.SearchStrategy[st.SearchStrategy[int]]:
    """Draw how far apart times lie: crowded, spread, or crowded with a lonely row far away."""
    crowded, spread = st.integers(0, 30), st.integers(0, 400)
    far = 5_000 if spec.type in (pa.int32(), pa.uint32(), pa.date32()) else 3_000_000
    return st.sampled_from([crowded, crowded, spread, crowded | st.just(far)])


@st.composite
def times(draw: st.DrawFn, spec: TimeSpec, rows: int) -> list[int | None]:
    """Draw the time of each row: negative, equal, unordered or sorted, sometimes null."""
    base, distance = draw(_bases(spec)), draw(draw(st.just(_distances(spec))))
    ticks = draw(st.lists(distance, min_size=rows, max_size=rows))
    moments: list[int | None] = [base + tick for tick in (sorted(ticks) if draw(st.booleans()) else ticks)]
    if rows and draw(st.integers(0, 5)) == 0:
        moments[draw(st.integers(0, rows - 1))] = None
    return moments


def to_array(cells: list[object], dtype: pa.DataType) -> pa.Array:
    """Make an array from plain values, temporal ones given as ticks."""
    if pa.types.is_dictionary(dtype):
        return pa.array(cells, pa.string()).dictionary_encode().cast(dtype)
    if pa.types.is_date32(dtype):
        return pa.array(cells, pa.int32()).cast(dtype)
    if pa.types.is_temporal(dtype):
        return pa.array(cells, pa.int64()).cast(dtype)
    return pa.array(cells, dtype)


@st.composite
def cells_of(draw: st.DrawFn, column: Column, rows: int) -> list[object]:
    """Draw a column's cells: few or many distinct values, with or without nulls, skewed or not."""
    special = draw(st.booleans())
    value = values(column, special)
    pool = draw(st.lists(value, min_size=1, max_size=draw(st.sampled_from([1, 3, 12]))))
    cell: st.SearchStrategy[object] = st.sampled_from(pool)
    if draw(st.booleans()):
        cell = st.none() | cell | cell | cell
    return draw(st.lists(cell, min_size=rows, max_size=rows))


@st.composite
def cuts(draw: st.DrawFn, rows: int) -> list[int]:
    """Draw where to cut `rows` rows into chunks, empty chunks included."""
    inner = draw(st.lists(st.integers(0, rows), max_size=4))
    return [0, *sorted(inner), rows]


def padded(array: pa.Array, before: int, after: int) -> pa.Array:
    """Return an equal array that is a slice of a larger one, so that its offset is not zero."""
    if len(array) == 0:
        return array
    junk = [array.slice(0, 1)]
    whole = pa.concat_arrays([*junk * before, array, *junk * after])
    return whole.slice(before, len(array))


@st.composite
def chunked(draw: st.DrawFn, cells: list[object], dtype: pa.DataType) -> pa.ChunkedArray:
    """Cut a column in its own way; each chunk has its own dictionary and offset."""
    edges = draw(cuts(len(cells)))
    chunks = [to_array(cells[low:high], dtype) for low, high in itertools.pairwise(edges)]
    if draw(st.booleans()):
        chunks = [padded(chunk, draw(st.integers(0, 9)), draw(st.integers(0, 2))) for chunk in chunks]
    return pa.chunked_array(chunks, dtype)


def row_counts() -> st.SearchStrategy[int]:
    return st.sampled_from([0, 1, 2, 5, 12, 25]) | st.integers(3, 40)


@st.composite
def tables(draw: st.DrawFn, spec: TimeSpec, columns: tuple[Column, ...]) -> pa.Table:
    """Draw a table with time column `t` and the given columns."""
    rows = draw(row_counts())
    arrays = [draw(chunked(draw(times(spec, rows)), spec.type))]  # type: ignore[arg-type]
    arrays += [draw(chunked(draw(cells_of(column, rows)), column.type)) for column in columns]
    return pa.table(arrays, names=["t", *(column.name for column in columns)])


@st.composite
def datasets(draw: st.DrawFn, name: str = "events") -> Dataset:
    """Draw a source of one to five columns besides time."""
    spec = draw(time_specs())
    names = draw(st.lists(st.sampled_from(AWKWARD_NAMES), min_size=1, max_size=5, unique=True))
    columns = tuple(draw(column_specs(column)) for column in names)
    return Dataset(name, draw(tables(spec, columns)), spec, columns)


@st.composite
def batches_of(draw: st.DrawFn, table: pa.Table) -> list[pa.RecordBatch]:
    """Cut a table into record batches, empty ones included."""
    edges = draw(cuts(table.num_rows))
    return [
        batch for low, high in itertools.pairwise(edges) for batch in _batches(table.slice(low, high - low))
    ]


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    return table.combine_chunks().to_batches() or [
        pa.RecordBatch.from_arrays([to_array([], field.type) for field in table.schema], schema=table.schema)
    ]
