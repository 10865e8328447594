"""Merge pane tables: cell by cell where they hold the same keys in the same columns, else through fragments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from penstock.algorithms.hash_table.indexer import numbers_of
from penstock.algorithms.hash_table.keys import DenseKeys, HashKeys, NoKeys
from penstock.loop.abi import NEED_SLOTS, NEED_WIDE, STATUS, numbered
from penstock.operators.pane_aggregate.fragments import Fragments, pane_count, widened
from penstock.operators.pane_aggregate.program import PaneKernels, WindowProgram
from penstock.operators.pane_aggregate.table import PaneTable
from penstock.physical.nodes import FilterOrder, Sharing
from penstock.physical.specialise import PaneProfile

if TYPE_CHECKING:
    from penstock.operators.pane_aggregate.worker import Worker


def variant_of(
    nullable: frozenset[str],
    table: PaneTable,
    order: FilterOrder | None = None,
    sharing: Sharing = "private",
    runs: bool = False,
) -> PaneProfile:
    """What a table assumes of its rows; the filter's order, the way of sharing and of adding concern the fold alone."""
    return PaneProfile(table.keys.kind, nullable, table.wide, order, sharing, runs)


def kernels_for(program: WindowProgram, nullable: frozenset[str], table: PaneTable) -> PaneKernels:
    """Return the kernels other than the fold of the variant that a table needs."""
    return program.variants.get(variant_of(nullable, table))


def merge_pane(
    program: WindowProgram,
    nullable: frozenset[str],
    own: PaneTable,
    its: PaneTable,
    slots: Sequence[int],
    last: bool,
) -> None:
    """Merge the given slots of `its` into `own`; with `last`, no row is added to `own` afterwards."""
    here = {pane: slot for slot, pane in enumerate(own.panes[: own.slots].tolist())}
    panes = its.panes[: its.slots].tolist()
    others = []
    for slot in slots:
        if panes[slot] in here:
            _merge_pane(program, nullable, own, its, (here[panes[slot]], slot))
        else:
            others.append(slot)
    copy = own.put_behind if last else own.append
    copy(its, others)


def _merge_pane(
    program: WindowProgram, nullable: frozenset[str], own: PaneTable, its: PaneTable, slots: tuple[int, int]
) -> None:
    """Merge a pane that both tables hold; widen both tables to 128 bits if a sum overflows 64."""
    here, there = slots
    columns = own.keys.columns
    done = 0
    while done < columns:
        kernel = kernels_for(program, nullable, own).merge_pane
        inputs = {numbered("in_state", place): state for place, state in enumerate(its.states)}
        limits = {"lo": done, "hi": columns, "own": here * columns, "other": there * columns}
        done = kernel.call({**own.arguments(), **inputs, **limits})
        if own.head[STATUS] == NEED_WIDE:
            own.widen()
            its.widen()


def add_fragments(worker: Worker, fragments: Fragments) -> None:
    """Merge fragments whose words use this worker's codes into the table."""
    table, columns = _table_for(worker, fragments)
    if fragments.wide and not table.wide:
        table.widen()
    panes = np.zeros(len(fragments), np.int64) if table.sparse else fragments.panes
    done = 0
    while done < len(fragments):
        given = widened(fragments) if table.wide else fragments
        kernel = kernels_for(worker.program, worker.nullable, table).merge_fragments_into
        inputs = {numbered("in_state", place): state for place, state in enumerate(given.states)}
        limits = {"lo": done, "hi": len(given), "in_panes": panes, "in_keys": columns}
        done = kernel.call({**table.arguments(), **inputs, **worker.arenas(kernel.bindings), **limits})
        if table.head[STATUS] == NEED_SLOTS:
            table.grow_slots()
        elif table.head[STATUS] == NEED_WIDE:
            table.widen()


def _table_for(worker: Worker, fragments: Fragments) -> tuple[PaneTable, np.ndarray]:
    """The table with room for fragments, and its column of each fragment's key; new keys are added."""
    assert worker.table is not None
    panes = worker.table.slots + pane_count(fragments.panes)
    if worker.table.wasteful(panes, worker.table.keys.columns, len(fragments)):
        worker.use_sparse()
    if isinstance(keys := worker.table.keys, DenseKeys):
        worker.cover(*fragments.key_ranges(keys.bases))
    table, words, nulls = worker.table, fragments.words, fragments.nulls
    if table.sparse:
        return table, _index(worker, table, [fragments.panes, *words], nulls << 1)
    match table.keys:
        case NoKeys():
            return table, np.zeros(len(fragments), np.int64)
        case DenseKeys() as keys:
            return table, keys.columns_of(words, nulls)
    return table, _index(worker, table, words, nulls)


def _index(worker: Worker, table: PaneTable, words: Sequence[np.ndarray], nulls: np.ndarray) -> np.ndarray:
    """Number keys in a hash table; new keys are added."""
    assert isinstance(table.keys, HashKeys)
    if not table.keys.nullable:
        table.keys.nullable = True
        table.keys.rehash()  # the index kernel always hashes nulls
    columns = numbers_of(words, nulls, table.keys, worker.program.index(len(words)), table.grow_keys)
    if not worker.hashes_nulls():
        table.keys.nullable = False
        table.keys.rehash()
    return columns
