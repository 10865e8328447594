"""The points of a temporal object, constant from one point to the next of its partition, and the keys of partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.algorithms.hash_table.keys import Indexer
from penstock.algorithms.sorted_partitions.partitions import SortedPartitions, dense_numbers
from penstock.algorithms.sorted_partitions.rows import Rows
from penstock.runtime.buffers import indices, plain, room, to_arrow, values_view
from penstock.state.state_table import require

BEGINNING = -(1 << 62)  # before all times, with room for shifts within 64 bits


@dataclass(frozen=True)
class Points:
    """Partition i is points bounds[i] … bounds[i + 1], in strict order of time.

    The object is undefined where all columns are null. `marks` flags the instants at which it is sampled.
    Points of a partition are final before `until`; later points may change with rows yet to arrive.
    """

    bounds: np.ndarray
    times: np.ndarray
    marks: np.ndarray
    columns: Mapping[str, pa.Array]
    until: np.ndarray
    multiset: SortedPartitions | None = None
    joined: bool = False  # adjacent points differ in value, and marks have no meaning

    def __len__(self) -> int:
        return len(self.times)

    @property
    def partitions(self) -> int:
        return len(self.bounds) - 1

    @cached_property
    def defined(self) -> np.ndarray:
        """A mask of the points with a value."""
        return defined(self.columns, len(self))

    @cached_property
    def samples(self) -> SortedPartitions:
        """The marks at which the object is defined, as sorted partitions: the input of reductions."""
        if self.multiset is not None:
            return self.multiset
        if self.all_samples:
            return lanes_of(self.columns, self.bounds, self.times)
        chosen = self.marks.view(np.bool_) & self.defined
        places = np.flatnonzero(chosen)
        bounds, times = np.searchsorted(places, self.bounds), fetched(self.times, places)
        return lanes_of(self._defined_at(places), bounds, times)

    def _defined_at(self, places: np.ndarray) -> dict[str, pa.Array]:
        """Gather columns at defined points; a single column is not null there."""
        known = {name: _fixed(column) for name, column in self.columns.items()}
        if len(known) != 1 or any(values is None for values in known.values()):
            return {name: taken(column, places) for name, column in self.columns.items()}
        return {
            name: to_arrow(fetched(values, places), None, self.columns[name].type)
            for name, values in known.items()
            if values is not None
        }

    @cached_property
    def all_samples(self) -> bool:
        """Whether every point is a sample."""
        if self.multiset is not None or not self.marks.all():
            return False
        return any(not column.null_count for column in self.columns.values()) or bool(self.defined.all())

    @cached_property
    def marked(self) -> Points:
        """The points that are marks."""
        return self if self.marks.all() else self.chosen(np.flatnonzero(self.marks))

    def chosen(self, places: np.ndarray) -> Points:
        """Return some of the points, in order."""
        return Points(*_chosen(self, places), self.until)

    def last_final(self) -> np.ndarray:
        """The time of each partition's last final point; `until` in a partition that has none."""
        some, last = self._last_final
        found = self.until.copy()
        found[some] = self.times[last[some]]
        return found

    def ceased(self) -> np.ndarray:
        """Which partitions have no value behind their last final point."""
        some, last = self._last_final
        found = np.zeros(self.partitions, np.bool_)
        found[some] = ~self.defined[last[some]]
        return found

    @cached_property
    def _last_final(self) -> tuple[np.ndarray, np.ndarray]:
        """Which partitions have a final point, and the place of the last."""
        partition = np.repeat(np.arange(self.partitions), np.diff(self.bounds))
        known = np.concatenate([[0], np.cumsum(self.times < self.until[partition])])
        last = self.bounds[:-1] + np.diff(known[self.bounds]) - 1
        return last >= self.bounds[:-1], last


def defined(columns: Mapping[str, pa.Array], rows: int) -> np.ndarray:
    """Return a mask of the rows with a value in some column."""
    found = np.zeros(rows, np.bool_)
    for column in columns.values():
        if not column.null_count:
            return np.ones(rows, np.bool_)
        found |= column.is_valid().to_numpy(zero_copy_only=False)
    return found


def _chosen(
    points: Points, places: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, pa.Array]]:
    which = indices(places)
    columns = {name: column.take(which) for name, column in points.columns.items()}
    return np.searchsorted(places, points.bounds), points.times[places], points.marks[places], columns


def lanes_of(columns: Mapping[str, pa.Array], bounds: np.ndarray, times: np.ndarray) -> SortedPartitions:
    """Wrap rows that are already partitioned."""
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return SortedPartitions(Rows(batch, times, None, None, np.ones(len(times), np.bool_)), bounds, times)


def taken(column: pa.Array, places: np.ndarray) -> pa.Array:
    """Return the values at some indices; index -1 gives null."""
    if not len(column):
        return pa.nulls(len(places), column.type)
    there = places >= 0
    whole = bool(there.all())
    if whole and _is_everything(places, len(column)):
        return column
    plain_values = None if column.null_count else _fixed(column)
    if plain_values is not None:  # faster: Arrow's take checks the validity of each value
        found = fetched(plain_values, places)
        return to_arrow(found, None if whole else there, column.type)
    return column.take(to_arrow(np.where(there, places, 0), None if whole else there, pa.int64()))


def fetched(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the values at some indices, an arbitrary value at -1. (By default NumPy's `take` buffers its output.)"""
    out = room(len(places), values.dtype)
    return values.take(places, out=out, mode="clip") if len(values) else out


def _is_everything(places: np.ndarray, rows: int) -> bool:
    """Whether indices are 0 … rows - 1 in order."""
    ends = len(places) == rows and places[0] == 0 and places[-1] == rows - 1
    return bool(ends and (places[1:] > places[:-1]).all())


def _fixed(column: pa.Array) -> np.ndarray | None:
    """Return a view of values of fixed width; None for other types."""
    dtype = column.type
    number = pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_temporal(dtype)
    return values_view(column) if number and dtype.bit_width in (8, 16, 32, 64) else None


def only_where(column: pa.Array, holds: np.ndarray) -> pa.Array:
    """Return the column with nulls where `holds` is False."""
    return column if holds.all() else taken(column, np.where(holds, np.arange(len(column)), -1))


def changes(columns: Sequence[pa.Array], begins: np.ndarray) -> np.ndarray:
    """Return a mask of rows that differ from the previous row, or begin a partition (`begins`)."""
    rows = len(columns[0]) if columns else 0
    found = np.zeros(rows, np.bool_)
    for column in columns:
        found[1:] |= _differs(plain(column))
    found[begins[begins < rows]] = True
    return found


def _differs(column: pa.Array) -> np.ndarray:
    """Return a mask of rows from the second on that differ from the previous row; NaN is itself, and -0.0 is 0.0."""
    valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
    numbers = _numbers(column)
    if numbers is None:
        differs = _unequal(column)
    else:
        differs = numbers[1:] != numbers[:-1]
        if pa.types.is_floating(column.type):
            differs &= ~_both_nan(numbers)
    if valid is None:
        return np.asarray(differs)
    both = valid[1:] & valid[:-1]
    return np.asarray((differs & both) | (valid[1:] != valid[:-1]))


def _unequal(column: pa.Array) -> np.ndarray:
    """Compare values that are not numbers; the result at nulls is arbitrary."""
    if pa.types.is_nested(column.type):  # Arrow does not compare lists
        from penstock.expr.comparison import equality_key  # noqa: PLC0415 - lists are rarer still

        keys = map(equality_key, column.to_pylist())
        return np.array([a != b for a, b in pairwise(keys)], np.bool_)
    import pyarrow.compute as pc  # noqa: PLC0415 - texts are rare here

    unequal = pc.not_equal(column.slice(1), column.slice(0, max(len(column) - 1, 0)))
    return np.asarray(unequal.fill_null(False).to_numpy(zero_copy_only=False))


def _both_nan(values: np.ndarray) -> np.ndarray:
    unordered = np.isnan(values)
    return np.asarray(unordered[1:] & unordered[:-1])


def _numbers(column: pa.Array) -> np.ndarray | None:
    dtype = column.type
    if pa.types.is_boolean(dtype):
        return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False))
    number = pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_temporal(dtype)
    return values_view(column) if number else None


ROWS_WITHOUT_LOOKUP = 1 << 12  # with fewer rows, a lookup table of keys does not pay


@dataclass
class PartitionKeys:
    """The key of each partition. A signal without keys has one partition."""

    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    new_index: Callable[[], Indexer]
    threads: int
    index: Indexer | None = field(init=False)

    def __post_init__(self) -> None:
        self.index = self.new_index() if self.names else None

    def __len__(self) -> int:
        return 1 if self.index is None else len(self.index)

    def number(self, rows: Rows) -> np.ndarray:
        """Return the partition of each row; new keys get new partitions."""
        if self.index is None:
            return np.zeros(len(rows), np.int64)
        columns = [rows.batch.column(name) for name in self.names]
        dense = (
            dense_numbers(columns[0], self.threads)
            if len(columns) == 1 and len(rows) > ROWS_WITHOUT_LOOKUP
            else None
        )
        return self.index.number(columns) if dense is None else self._by_table(columns[0], dense)

    def _by_table(self, column: pa.Array, dense: np.ndarray) -> np.ndarray:
        """Number the distinct values of many rows, and map the rows by a lookup table."""
        assert self.index is not None
        seen = np.bincount(dense)
        some = np.flatnonzero(seen)
        values = values_view(column)
        own = some + (int(values[0]) - int(dense[0]))
        table = np.zeros(len(seen), np.int64)
        table[some] = self.index.number([to_arrow(own.astype(values.dtype), None, column.type)])
        return dense if (table[some] == some).all() else table[dense]

    def values(self) -> list[pa.Array]:
        """Return the keys of all partitions, one column per component."""
        if self.index is None:
            return []
        found = self.index.values(self.types)
        return [as_type(key, dtype) for key, dtype in zip(found, self.types, strict=True)]

    def keep(self, partitions: np.ndarray) -> None:
        """Drop the keys of all but some partitions, and renumber these in order."""
        if self.index is not None:
            kept = [key.take(indices(partitions)) for key in self.index.values(self.types)]
            self.index = self.new_index()
            self.index.number(kept)

    def load(self, columns: Sequence[pa.Array], partitions: int) -> None:
        """Restore saved keys, one for each partition."""
        if self.index is not None:
            self.index.number(columns)
        require(len(self) == partitions, "the keys of a signal")


def as_type(column: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Cast values to an equivalent type; encode them if it is a dictionary type."""
    if column.type == dtype:
        return column
    if pa.types.is_dictionary(dtype):
        encoded = column.cast(dtype.value_type).dictionary_encode()
        return pa.DictionaryArray.from_arrays(encoded.indices.cast(dtype.index_type), encoded.dictionary)
    return column.cast(dtype)
