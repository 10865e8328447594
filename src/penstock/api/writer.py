"""Preallocated columns that a program fills in place, to push rows without building Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.api.literals import shown, whole
from penstock.errors import BindingError, UnsupportedError
from penstock.runtime.buffers import stored_type, to_arrow
from penstock.types.arrow import kind_of

BLOCK_ROWS = 1 << 16
_KINDS = ("bool", "int", "uint", "float", "timestamp", "date", "duration")


@dataclass(slots=True)
class Block:
    """Memory for rows of a stream, filled from the front by commits; batches share it."""

    schema: pa.Schema
    columns: list[np.ndarray]
    valid: list[np.ndarray | None]
    end: int = 0

    @classmethod
    def of(cls, schema: pa.Schema, rows: int) -> Block:
        """Allocate a block."""
        columns = [np.empty(rows, _storage(column.type)) for column in schema]
        return cls(schema, columns, [None] * len(columns))

    @property
    def left(self) -> int:
        """The number of rows that still fit."""
        return len(self.columns[0]) - self.end

    def append(self, rows: int, columns: Sequence[np.ndarray], valid: Sequence[np.ndarray | None]) -> None:
        """Copy rows to the end of the block."""
        begin, end = self.end, self.end + rows
        for mine, given in zip(self.columns, columns, strict=True):
            mine[begin:end] = given[:rows]
        for place, flags in enumerate(valid):
            mask = self.valid[place]
            if flags is None and mask is None:
                continue
            if mask is None:
                mask = self.valid[place] = np.ones(len(self.columns[0]), np.bool_)
            mask[begin:end] = True if flags is None else flags[:rows]
        self.end = end

    def batch(self, begin: int, end: int) -> pa.RecordBatch:
        """Return a range of the rows, which later commits do not change."""
        arrays = [
            to_arrow(values[begin:end], None if mask is None else mask[begin:end], column.type)
            for values, mask, column in zip(self.columns, self.valid, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


@dataclass(slots=True)
class Writer(Mapping[str, np.ndarray]):
    """NumPy views of the columns of a stream, by name. `commit(n)` pushes the first n rows; the views stay valid.

    Times are `datetime64`, dates `datetime64[D]` and durations `timedelta64`. A value is null where `valid(name)` is
    False; all are valid again after a commit. One thread at a time may fill and commit a writer.

    >>> import numpy as np, penstock as pk
    >>> ecg = pk.stream("ecg", {"t": "int64", "mv": "float64"}, time="t")
    >>> with ecg.window(4).agg(top=pk.max("mv")).open() as live:
    ...     writer = live.writer(capacity=6)
    ...     writer["t"][:] = range(6)
    ...     writer["mv"][:] = [1, 5, 3, 2, 4, 6]
    ...     made = writer.commit(5)
    >>> made[0].to_pylist()
    [{'window_start': 0, 'window_end': 4, 'top': 5.0}]
    """

    schema: pa.Schema
    capacity: int
    push: Callable[[int, Sequence[np.ndarray], Sequence[np.ndarray | None]], list[pa.RecordBatch]]
    _views: dict[str, np.ndarray] = field(init=False)
    _stored: list[np.ndarray] = field(init=False)
    _valid: list[np.ndarray | None] = field(init=False)
    _direct: Callable[[int], bool] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._views = {
            column.name: np.zeros(self.capacity, _view_type(column.type)) for column in self.schema
        }
        self._stored = [
            view if (goal := _storage(column.type)).itemsize != view.itemsize else view.view(goal)
            for view, column in zip(self._views.values(), self.schema, strict=True)
        ]
        self._valid = [None] * len(self._views)

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            return self._views[name]
        except KeyError:
            raise BindingError(
                f"the writer has no column {shown(name)}; it has {', '.join(map(repr, self._views))}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def valid(self, name: str) -> np.ndarray:
        """The flags of a column: False makes a value null."""
        self[name]
        place = list(self._views).index(name)
        flags = self._valid[place]
        self._direct = None  # which takes no nulls
        if flags is None:
            flags = self._valid[place] = np.ones(self.capacity, np.bool_)
        return flags

    def use(self, direct: Callable[[int], bool], begin: Callable[[Sequence[np.ndarray]], None]) -> None:
        """Commit rows without nulls by `direct`, which is given the columns first, and returns whether it took them."""
        begin(self._stored)
        self._direct = direct

    def commit(self, rows: int | None = None) -> list[pa.RecordBatch]:
        """Push the first rows, all without a number; return the results they complete, none in the background."""
        many = self.capacity if rows is None else rows
        if type(many) is not int or not 0 <= many <= self.capacity:
            many = whole(many, "the number of rows to commit", 0, self.capacity)
        if not many or (self._direct is not None and self._direct(many)):
            return []
        made = self.push(many, self._stored, self._valid)
        for flags in self._valid:
            if flags is not None:
                flags[:many] = True
        return made


def writable(schema: pa.Schema, name: str) -> pa.Schema:
    """Check that a writer can hold the columns of a stream."""
    for column in schema:
        if kind_of(column.type) not in _KINDS or pa.types.is_dictionary(column.type):
            raise UnsupportedError(
                f"a writer holds numbers, truth values and times, and column {column.name!r} of stream {name!r} is "
                f"{column.type}; push batches of that stream, or declare it without the column"
            )
    return schema


def _storage(dtype: pa.DataType) -> np.dtype:
    """The type in which Arrow stores values, one byte for a truth value."""
    return np.dtype(np.bool_) if pa.types.is_boolean(dtype) else stored_type(dtype)


def _view_type(dtype: pa.DataType) -> np.dtype:
    match kind_of(dtype):
        case "timestamp":
            return np.dtype(f"datetime64[{dtype.unit}]")
        case "duration":
            return np.dtype(f"timedelta64[{dtype.unit}]")
        case "date":
            return np.dtype("datetime64[D]" if pa.types.is_date32(dtype) else "datetime64[ms]")
        case _:
            return _storage(dtype)
