"""Merge pane tables, and migrate them between layouts: cell by cell where they hold the same keys, else through fragments.

What a narrower layout assumes is checked on the whole state first. Growth within a layout belongs to `table.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from penstock.algorithms.hash_table.keys import DenseKeys, HashKeys, NoKeys, numbers_of
from penstock.loop.abi import KEYS, NEED_SLOTS, NEED_WIDE, STATUS, numbered
from penstock.loop.nodes import I128
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


ROOM = 1 << 62  # sums below it are narrowed: those just within 64 bits would soon be widened again
Bounds = Sequence[tuple[int, int]]  # the smallest and largest word of each key


def used_columns(table: PaneTable) -> np.ndarray:
    """The columns of keys that some pane holds."""
    return np.flatnonzero(table.present().any(axis=0))


def key_bounds(table: PaneTable) -> tuple[int, Bounds] | None:
    """The number of keys that panes hold, and their smallest and largest words; None if there are none."""
    if table.sparse:
        return _pair_bounds(table)
    used = used_columns(table) if table.slots else ()
    if not len(used):
        return None
    words, nulls = table.keys.words_of(np.asarray(used))
    return len(used), _bounds(words, nulls)


def _pair_bounds(table: PaneTable) -> tuple[int, Bounds] | None:
    """The same for (pane, key) pairs: the number of keys in a pane, on average."""
    pairs = table.keys_held
    if not pairs:
        return None
    (panes, *words), nulls = table.keys.words_of(np.arange(pairs))
    return max(pairs // len(np.unique(panes)), 1), _bounds(words, nulls >> 1)


def _bounds(words: Sequence[np.ndarray], nulls: np.ndarray) -> Bounds:
    """The smallest and largest word of each key component that is not null."""
    there = [word[(nulls >> place) & 1 == 0] for place, word in enumerate(words)]
    return [(int(word.min()), int(word.max())) if len(word) else (0, 0) for word in there]


def covering(bounds: Iterable[Bounds]) -> Bounds:
    """The ranges that cover all of the given ones."""
    return [(min(low for low, _ in key), max(high for _, high in key)) for key in zip(*bounds, strict=True)]


def columns_hashed(used: int, keys: HashKeys) -> int:
    """The columns that an empty hash table gets for so many keys."""
    return max(keys.capacity, 1 << (2 * used).bit_length())


def to_hash(table: PaneTable, keys: HashKeys) -> None:
    """Replace a dense key table by an empty hash table, filled with the keys in use."""
    used = used_columns(table)
    words, nulls = table.keys.words_of(used)
    keys.reserve(columns_hashed(len(used), keys))
    for own, word in zip(keys.words, words, strict=True):
        own[: len(used)] = word
    keys.nulls[: len(used)] = nulls
    keys.head[KEYS] = len(used)
    keys.rehash()

    def move(before: np.ndarray, after: np.ndarray) -> None:
        after[:, : len(used)] = before[:, used]

    table.change_keys(keys, move)


def to_dense(table: PaneTable, ranges: Bounds) -> None:
    """Replace a hash table of keys by an array that covers these ranges and the keys in use."""
    held = key_bounds(table)
    covered = ranges if held is None else covering([ranges, held[1]])
    dense = DenseKeys.of_sample(tuple(low for low, _ in covered), tuple(high for _, high in covered))
    used = used_columns(table)
    to = dense.columns_of(*table.keys.words_of(used))

    def move(before: np.ndarray, after: np.ndarray) -> None:
        after[:, to] = before[:, used]

    table.change_keys(dense, move)


def sums_are_narrow(table: PaneTable) -> bool:
    """Whether all 128-bit sums fit 62 bits."""
    cells = table.slots * table.keys.columns
    for state, spec in zip(table.states, table.specs, strict=True):
        if spec.type == I128:
            low, high = state[: 2 * cells].reshape(-1, 2).T
            if not bool(((high == low >> 63) & (low < ROOM) & (low >= -ROOM)).all()):
                return False
    return True


def holds_null_keys(table: PaneTable) -> bool:
    """Whether a key of the table has a null component."""
    if isinstance(table.keys, HashKeys):
        return bool(table.keys.nulls[: table.keys.count].any())
    return bool(table.slots) and bool(table.keys.words_of(used_columns(table))[1].any())


def agree(table: PaneTable, one: int, other: int) -> bool:
    """Whether two states that count, or flag, agree in every cell; as flags if one of them is a flag."""
    cells = table.slots * table.keys.columns
    first, second = (table.states[place][:cells] for place in (one, other))
    if first.dtype != second.dtype:
        first, second = first != 0, second != 0
    return bool(np.array_equal(first, second))
