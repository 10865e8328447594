"""Merge the states of several runs of one query, each over part of the rows, and split a state into shards."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.errors import StateError
from penstock.runtime.buffers import indices
from penstock.state.hashing import key_hashes
from penstock.state.state_table import StateTable, read_scalars, scalars, seen

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
        raise StateError("the parts of a state are not those of one query")
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
