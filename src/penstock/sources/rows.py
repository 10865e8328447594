"""Convert rows as Python programs hold them to record batches: dicts, lists of dicts, columns, NumPy records.

A mapping is one row if the value of the deciding column is no sequence, else columns. Among declared types the deciding
column is the first that holds no lists; without types, all values must agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.caches import CACHES
from penstock.errors import SchemaMismatchError, SourceError
from penstock.sources.conform import check
from penstock.types.arrow import kind_of

_FAILURES = (pa.ArrowException, OverflowError, TypeError, ValueError)
_WHOLE = frozenset(["int", "uint", "timestamp", "date", "duration"])
_CHECKED = _WHOLE | {"float"}
_SCALARS = frozenset([int, float, bool, str, bytes, datetime, type(None)])
_HARMLESS = frozenset([int, type(None)])  # values of any type in `_CHECKED`
_kind_of = CACHES.results(most=256)(kind_of)


def is_rows(data: object) -> bool:
    """Check whether data is a row, a list of rows, a mapping of columns, or an array of NumPy records."""
    match data:
        case Mapping() | [Mapping(), *_] | []:
            return True
        case np.ndarray():
            return data.dtype.names is not None
        case _:
            return False


def batch_of(data: Any, schema: pa.Schema, where: str) -> pa.RecordBatch:
    """Convert rows to a batch with the columns of a declared schema. Arrays keep their types, for later checks.

    >>> schema = pa.schema({"t": pa.int64(), "v": pa.float64()})
    >>> batch_of({"t": 1, "v": 2}, schema, "a row").to_pylist()
    [{'t': 1, 'v': 2.0}]
    >>> batch_of([{"t": 1, "v": 2}, {"t": 3}], schema, "rows").to_pylist()
    [{'t': 1, 'v': 2.0}, {'t': 3, 'v': None}]
    """
    if type(data) is dict or isinstance(data, Mapping):
        known = _declared(schema)
        columns = data if _holds_columns(data, known) else {name: (value,) for name, value in data.items()}
        if not columns.keys() >= set(known.names):
            _check_names(columns, schema, where)
        given = zip(known.names, known.types, strict=True)
        return _batch([(name, columns[name], dtype) for name, dtype in given], where, schema)
    if isinstance(data, np.ndarray):
        return batch_of(_fields(data), schema, where)
    return _rows(data, schema, where)


def inferred(data: Any) -> pa.RecordBatch:
    """Convert rows without declared types to a batch.

    >>> inferred([{"t": 1}, {"t": 2, "v": "x"}]).to_pylist()
    [{'t': 1, 'v': None}, {'t': 2, 'v': 'x'}]
    """
    if isinstance(data, np.ndarray):
        data = _fields(data)
    elif not isinstance(data, Mapping):
        _check_rows(data, "the data")
        names = dict.fromkeys(name for row in data for name in row)
        data = {name: [row.get(name) for row in data] for name in names}
    elif not any(map(_is_column, data.values())):
        data = {name: [value] for name, value in data.items()}
    return _batch([(name, values, None) for name, values in data.items()], "the data")


def _rows(rows: Sequence[Any], schema: pa.Schema, where: str) -> pa.RecordBatch:
    _check_rows(rows, where)
    columns = [(field.name, [row.get(field.name) for row in rows], field.type) for field in schema]
    if not (rows and rows[0].keys() >= set(schema.names)):
        _check_names(dict.fromkeys(name for row in rows for name in row) or schema.names, schema, where)
    return _batch(columns, where, schema)


def _check_rows(rows: Sequence[Any], where: str) -> None:
    for place, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise SourceError(
                f"{where} is a list of dicts, but number {place} is a {type(row).__name__}; leave it out"
            )


class _Declared(NamedTuple):
    """What single rows need of a schema. The deciding column is the first that holds no lists, such as the time."""

    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    deciding: str | None


@CACHES.results(most=256)
def _declared(schema: pa.Schema) -> _Declared:
    deciding = (field.name for field in schema if not pa.types.is_nested(field.type))
    return _Declared(tuple(schema.names), tuple(schema.types), next(deciding, None))


def _holds_columns(data: Mapping[str, Any], schema: _Declared) -> bool:
    if schema.deciding is not None and schema.deciding in data:
        return _is_column(data[schema.deciding])
    return all(map(_is_column, data.values()))


def _is_column(value: object) -> bool:
    if type(value) in _SCALARS:
        return False
    if isinstance(value, (str, bytes, bytearray, Mapping)):
        return False
    # NumPy scalars are arrays, but have no length.
    return isinstance(value, (Sequence, pa.Array, pa.ChunkedArray)) or (
        hasattr(value, "__array__") and hasattr(value, "__len__")
    )


def _fields(records: np.ndarray) -> dict[str, np.ndarray]:
    names = records.dtype.names
    if names is None:
        raise SourceError("an array without fields has no columns; give a dict of arrays, by column")
    return {name: records[name] for name in names}


def _check_names(given: Iterable[Any], schema: pa.Schema, where: str) -> None:
    """Raise the error of a table without a declared column."""
    check(pa.schema([(str(name), pa.null()) for name in given]), schema, where)


def _batch(
    columns: Sequence[tuple[str, Any, pa.DataType | None]], where: str, schema: pa.Schema | None = None
) -> pa.RecordBatch:
    """Convert columns to a batch, of the declared schema unless arrays have other types."""
    arrays = [_array(values, dtype, name, where) for name, values, dtype in columns]
    if len({len(array) for array in arrays}) > 1:
        rows = {len(array): name for array, (name, _, _) in zip(arrays, columns, strict=True)}
        (one, first), (other, second), *_ = rows.items()
        raise SchemaMismatchError(
            f"columns of {where} differ in length: {first!r} has {one} values, {second!r} has {other}; "
            "give as many of each"
        )
    if schema is not None and [array.type for array in arrays] == [dtype for _, _, dtype in columns]:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _, _ in columns])


def _array(values: Any, dtype: pa.DataType | None, name: str, where: str) -> pa.Array:
    """Convert one column. NumPy arrays are copied, since their owner may write to them while rows are held."""
    if isinstance(values, (list, tuple)):
        try:
            return _of_values(values, dtype)
        except _FAILURES:
            raise _misfit(values, dtype, name, where) from None
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    try:
        if hasattr(values, "__arrow_c_stream__"):  # a series of pandas, which can be written to, or of Polars
            return pa.chunked_array(values.copy() if hasattr(values, "copy") else values).combine_chunks()
        if isinstance(values, Sequence):
            return _of_values(values, dtype)
        array = np.array(values, copy=True, subok=True)
        return pa.array(array, dtype) if array.dtype == object else pa.array(array)
    except _FAILURES:
        raise _misfit(values, dtype, name, where) from None


def _of_values(values: Sequence[Any], dtype: pa.DataType | None) -> pa.Array:
    """Convert Python values, rejecting those that Arrow would change: fractions, truth values, and times of another kind."""
    kind = None if dtype is None else _kind_of(dtype)
    if kind in _CHECKED:
        for kind_of_value in {*map(type, values)} - _HARMLESS:
            if issubclass(kind_of_value, (bool, np.bool_)) or (
                kind in _WHOLE and issubclass(kind_of_value, (float, np.floating))
            ):
                raise TypeError
            if kind == "timestamp" and issubclass(kind_of_value, datetime):
                _check_zones(values, dtype)
    return pa.array(values, dtype)


def _check_zones(values: Sequence[Any], dtype: pa.TimestampType) -> None:
    for value in values:
        if isinstance(value, datetime) and (value.tzinfo is None) != (dtype.tz is None):
            raise TypeError


def _misfit(values: Any, dtype: pa.DataType | None, name: str, where: str) -> SchemaMismatchError:
    """Name the first row whose value cannot be converted; the value itself is not shown."""
    if dtype is None:
        return SchemaMismatchError(
            f"the values of column {name!r} of {where} have no common type; give values of one type, or declare the types with pk.stream"
        )
    try:
        iterator = iter(values)
    except TypeError:
        return SchemaMismatchError(
            f"column {name!r} of {where} is a single {type(values).__name__}; give a list or an array of values"
        )
    for place, value in enumerate(iterator):
        try:
            _of_values([value], dtype)
        except _FAILURES:
            zone = (
                " (give all times a zone, or none, as the column has)" if isinstance(value, datetime) else ""
            )
            return SchemaMismatchError(
                f"row {place} of {where} has a {type(value).__name__} in column {name!r}, which is no value of "
                f"{dtype}{zone}; convert it, or correct the declaration"
            )
    return SchemaMismatchError(f"the values of column {name!r} of {where} are not of type {dtype}")
