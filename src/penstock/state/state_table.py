"""State tables: the form in which stages save their state, and validation of loaded columns."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import pyarrow as pa

from penstock.errors import StateError
from penstock.runtime.buffers import indices, plain, values_view
from penstock.runtime.key_encoding import hash_keys, words_of
from penstock.types.arrow import has_codes


@dataclass(frozen=True)
class StateTable:
    """Rows of a stage's state, identified by the columns of `ranks`, then `keys`.

    Rows are saved in that order, and split into chunks by the hash of `keys`, then by the first of `ranks`: 64-bit
    integers that grow with time.
    """

    table: pa.Table
    keys: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()


def scalars(**numbers: int) -> StateTable:
    """A state table of named integers, as one row.

    >>> read_scalars(scalars(watermark=7).table)
    {'watermark': 7}
    """
    arrays = [indices(np.array([number])) for number in numbers.values()]
    return StateTable(pa.Table.from_arrays(arrays, names=list(numbers)))


def read_scalars(table: pa.Table) -> dict[str, int]:
    """Read the integers that `scalars` wrote."""
    require(table.num_rows == 1, "a row of numbers")
    return {name: int(integers(table, name)[0]) for name in table.column_names}


def integers(table: pa.Table, name: str) -> np.ndarray:
    """A column of 64-bit integers."""
    return values_view(complete(table, name, pa.int64()))


def complete(table: pa.Table, name: str, dtype: pa.DataType) -> pa.Array:
    """A column of a type, without nulls."""
    return without_nulls(typed(table, name, dtype), name)


def typed(table: pa.Table, name: str, dtype: pa.DataType) -> pa.Array:
    """A column that must have the given type: kernels read its memory as such."""
    return of_type(array_of(table, name), name, dtype)


def of_type(array: pa.Array, name: str, dtype: pa.DataType) -> pa.Array:
    """Refuse a column of another type."""
    return array if array.type == dtype else _refuse(name)


def without_nulls(array: pa.Array, name: str) -> pa.Array:
    """Refuse a column with nulls."""
    return _refuse(name) if array.null_count else array


def require(holds: bool | np.bool_, what: str) -> None:
    """Refuse a saved table that violates an invariant of saved states."""
    if not holds:
        raise StateError(f"the saved state is inconsistent in {what}; start the query again")


def require_form(same: bool | np.bool_) -> None:
    """Refuse a state that holds rows where this run holds states per key, or the other way round."""
    if not same:
        raise StateError(
            "the saved state belongs to another choice of what an operator holds, rows or states per key; "
            "open it with the aggregator= of the Engine that saved it"
        )


def numbered_from_zero(table: pa.Table, name: str) -> pa.Table:
    """Sort rows by a column that numbers them; refuse missing or duplicate numbers."""
    numbers = integers(table, name)
    order = np.argsort(numbers, kind="stable")
    require((numbers[order] == np.arange(len(order))).all(), f"the numbers of column {name!r}")
    return table.take(indices(order)).combine_chunks()


def _refuse(name: str) -> NoReturn:
    raise StateError(
        f"column {name!r} of a saved table is not what this query saves there; continue from a state of this query"
    )


def array_of(table: pa.Table, name: str) -> pa.Array:
    """A copy of a column in one piece, which the stage that loads it may write to."""
    return table.column(name).combine_chunks()


def seen(table: pa.Table, name: str) -> pa.Array:
    """A column in one piece for reading only: copied only if it has several chunks."""
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


# --- Hashes of key values that are the same in every process: they assign a key's rows to a chunk.

_PRIME = np.uint64(1099511628211)


def key_hashes(columns: Sequence[pa.Array]) -> np.ndarray:
    """Hash rows of key columns; texts must not be dictionary-encoded."""
    words, nulls = [], np.zeros(len(columns[0]), np.int64)
    for place, column in enumerate(columns):
        null = column.is_null().to_numpy(zero_copy_only=False)
        found = _text_hashes(column) if has_codes(column.type) else words_of(column)
        words.append(np.where(null, np.int64(0), found))
        nulls |= null.astype(np.int64) << place
    return hash_keys(words, nulls)


def _text_hashes(column: pa.Array) -> np.ndarray:
    """A polynomial hash of each text's bytes, vectorised over all texts."""
    texts = column.cast(pa.large_string())
    _, offsets, data = texts.buffers()
    bounds = (
        np.frombuffer(offsets, np.int64, len(texts) + 1, 8 * texts.offset)
        if len(texts)
        else np.zeros(1, np.int64)
    )
    first, last = int(bounds[0]), int(bounds[-1])
    if first == last:
        return np.zeros(len(texts), np.int64)
    lengths = np.diff(bounds)
    place = np.arange(last - first) - np.repeat(bounds[:-1] - first, lengths)
    powers = np.cumprod(np.full(int(lengths.max()), _PRIME))
    terms = (np.frombuffer(data, np.uint8, last - first, first) + np.uint64(1)) * powers[place]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms)])[bounds - first]
    hashes: np.ndarray = np.diff(sums).view(np.int64)
    return hashes


def time_words(column: pa.Array) -> np.ndarray:
    """64-bit integers as unsigned words of the same order."""
    return values_view(column).view(np.uint64) ^ np.uint64(1 << 63)


# --- Buffered rows as state tables: their columns, their time, and their position among rows of equal time.

_PREFIX = "row:"  # keeps row columns distinct from the added columns


def kept_rows(rows: pa.Table, times: np.ndarray, keys: Sequence[str], **beside: pa.Array) -> StateTable:
    """Build a state table of rows sorted by time, stably, with the additional columns `beside`.

    Only positions among rows of equal time are saved: they do not change when other rows are added or removed.
    """
    order = np.argsort(times, kind="stable")
    ordered = times[order]
    number = np.arange(len(order))
    begins = np.diff(ordered, prepend=ordered[:1]) != 0
    place = number - np.maximum.accumulate(np.where(begins, number, 0))
    # Without dictionaries: their order depends on batches that are no longer present.
    columns = {f"{_PREFIX}{name}": plain(array_of(rows, name)) for name in rows.column_names} | beside
    chosen = indices(order)
    arrays = [indices(ordered), indices(place), *(column.take(chosen) for column in columns.values())]
    table = pa.Table.from_arrays(arrays, names=["time", "place", *columns])
    return StateTable(table, tuple(f"{_PREFIX}{name}" for name in keys), ("time", "place"))


def in_order(table: pa.Table) -> pa.Table:
    """Sort saved rows into their order."""
    times, places = (integers(table, name) for name in ("time", "place"))
    return table.take(indices(np.lexsort((places, times)))).combine_chunks()


def rows_of(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """The rows without the additional columns."""
    arrays = [_column(table, field) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(table: pa.Table, field: pa.Field) -> pa.Array:
    name, dtype = f"{_PREFIX}{field.name}", field.type
    if not pa.types.is_dictionary(dtype):
        return typed(table, name, dtype)
    encoded = typed(table, name, dtype.value_type).dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        encoded.indices.cast(dtype.index_type), encoded.dictionary, ordered=dtype.ordered
    )


# --- Merge the states of several runs of one query, each over part of the rows, and split a state into shards.

CELLS, NULLS = "cells", "nulls"
# Cells folded by other runs, which a stage loads in addition to the saved ones.
FRESH = "fresh"


def merged(parts: Iterable[Mapping[str, pa.Table]]) -> dict[str, pa.Table]:
    """Concatenate the tables of runs that have emitted nothing yet into those of one run over all rows.

    Cells of the same pane and key stay separate rows; loading merges them.
    """
    found: dict[str, list[pa.Table]] = {}
    for part in parts:
        for name, table in part.items():
            found.setdefault(name, []).append(table)
    return {name: _together(name.rpartition("/")[2], tables) for name, tables in found.items()}


def with_fresh(saved: Mapping[str, pa.Table], sent: Iterable[tuple[str, pa.Table]]) -> dict[str, pa.Table]:
    """Add the cells and null flags that other runs of the query sent to the saved tables."""
    found: dict[str, list[pa.Table]] = {}
    for name, table in sent:
        found.setdefault(name, []).append(table)
    cells = {name: tables for name, tables in found.items() if _kind(name) == CELLS}
    nulls = {name: tables for name, tables in found.items() if _kind(name) == NULLS}
    return {
        **saved,
        # In pieces: the stage concatenates them with the saved cells.
        **{f"{name.removesuffix(CELLS)}{FRESH}": pa.concat_tables(tables) for name, tables in cells.items()},
        **{name: _combined([saved[name], *tables], max) for name, tables in nulls.items()},
    }


def _together(kind: str, tables: Sequence[pa.Table]) -> pa.Table:
    match kind:
        case "cells":
            return pa.concat_tables(tables).combine_chunks()
        case "nulls":
            return _combined(tables, max)
        case "metrics":
            return _combined(tables, sum)
        case _:
            return tables[0]


def _combined(tables: Sequence[pa.Table], choose: Callable[[list[int]], int]) -> pa.Table:
    read = [read_scalars(table) for table in tables]
    if any(marks.keys() != read[0].keys() for marks in read):
        raise StateError("the parts of a state are not those of one query; merge states of one query only")
    return scalars(**{name: choose([marks[name] for marks in read]) for name in read[0]}).table


def shares(
    kept: Mapping[str, StateTable], keys: Sequence[int], shards: int
) -> dict[int, dict[str, pa.Table]]:
    """Split a run's state into shards by the hash of some keys of its cells; every shard gets the other tables.

    Without keys, shard 0 gets everything. Shards without cells are omitted.
    """
    if shards == 1 or not keys:
        return {0: {name: table.table for name, table in kept.items()}}
    cells = {name: _by_hash(table, keys, shards) for name, table in kept.items() if _kind(name) == CELLS}
    others = {name: table.table for name, table in kept.items() if _kind(name) != CELLS}
    return {
        shard: {**others, **{name: parts[shard] for name, parts in cells.items() if parts[shard].num_rows}}
        for shard in range(shards)
        if any(parts[shard].num_rows for parts in cells.values())
    }


def _kind(name: str) -> str:
    return name.rpartition("/")[2]


def _by_hash(kept: StateTable, keys: Sequence[int], shards: int) -> list[pa.Table]:
    columns = [seen(kept.table, kept.keys[place]) for place in keys]
    return divided(kept.table, shard_of(columns, shards), shards)


def shard_of(columns: Sequence[pa.Array], shards: int) -> np.ndarray:
    """The shard of each row by the hash of its keys, which is the same in every process."""
    found: np.ndarray = (key_hashes(columns).view(np.uint64) % np.uint64(shards)).astype(np.int64)
    return found


def divided(table: pa.Table, shard: np.ndarray, shards: int) -> list[pa.Table]:
    """Split a table into shards, keeping the row order within each."""
    # 16-bit numbers are radix-sorted, three times as fast.
    order = np.argsort(shard.astype(np.uint16) if shards <= 1 << 16 else shard, kind="stable")
    bounds = np.searchsorted(shard[order], np.arange(shards + 1))
    sorted_rows = table.take(indices(order))
    return [sorted_rows.slice(int(lo), int(hi - lo)) for lo, hi in itertools.pairwise(bounds)]
