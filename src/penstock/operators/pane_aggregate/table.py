"""The pane table: partial states by pane and key, and the ranges of key values that decide on a dense layout.

Kernels fill the table and stop when it is full. This module grows it, changes its layout, drops finished panes, and
converts it to *fragments*, its canonical form: one row for each (pane, key) with its partial states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.algorithms.hash_table.keys import DenseKeys, HashKeys, Keys
from penstock.algorithms.kernel_factory import BatchArguments
from penstock.loop.abi import KEYS, SLOTS, WORDS, numbered
from penstock.loop.nodes import I128
from penstock.operators.pane_aggregate.fragments import Fragments, continued, take_cells
from penstock.operators.pane_aggregate.program import KeySpec, StateSpec
from penstock.runtime.buffers import (
    APART,
    LARGE,
    PAGE,
    TOO_LARGE,
    fill_cells,
    filled,
    numpy_type,
    rooms,
    words_per_cell,
)
from penstock.runtime.key_encoding import bucket_count, bucket_of, buckets_for, empty_bucket, hash_words

_FEW = 8  # drop in place if capacity is at most _FEW times the slots
LARGE_GRID = 1 << 26  # bytes
_EMPTIEST = 32  # cells of a large grid for each one that is filled
CELLS_AHEAD = 1 << 20  # cells allocated up front for expected panes
# The same for many keys, where the cells are untouched zero pages and copying them later would be expensive.
ZEROS_AHEAD = 1 << 26


class PaneTable:
    """The state of one worker. `specs[0]` is the presence of a row: a count or a flag, 0 if there is none.

    Arrays are written in place or replaced, `states` with them, so that holders of their addresses detect it (`direct_fold.py`).
    """

    def __init__(self, specs: Sequence[StateSpec], keys: Keys, slots: int = 2) -> None:
        self.head = keys.head if isinstance(keys, HashKeys) else np.zeros(WORDS, np.int64)
        self._hold(specs)
        self.keys = keys
        self.capacity = slots
        self.panes = np.zeros(slots, np.int64)
        self.pane_buckets = np.zeros(bucket_count(slots), np.int32)
        self.states, self.dirty = cells_for(specs, slots * keys.columns)
        if self.sparse:
            self.head[SLOTS] = 1  # one row, whose columns are (pane, key) pairs
            self._clear(self.states, keys.columns)

    @property
    def slots(self) -> int:
        return int(self.head[SLOTS])

    @property
    def sparse(self) -> bool:
        return isinstance(self.keys, HashKeys) and self.keys.sparse

    @property
    def nbytes(self) -> int:
        return sum([state.nbytes for state in self.states])

    @property
    def keys_held(self) -> int:
        """The number of keys of a hash table, or of columns of a dense one."""
        return self.keys.count if isinstance(self.keys, HashKeys) else self.keys.columns

    def occupancy(self) -> float:
        """The fraction of the cells of used slots that are not empty."""
        return float(np.count_nonzero(self.present())) / max(self.slots * self.keys.columns, 1)

    @property
    def too_empty(self) -> bool:
        """Whether the grid wastes memory: it is large, and few keys occur in a pane."""
        if self.sparse or 2 * self.nbytes < LARGE_GRID:
            return False
        return self.occupancy() < (1 / 4 if isinstance(self.keys, HashKeys) else 1 / _EMPTIEST)

    def wasteful(self, slots: int, columns: int, added: int = 0) -> bool:
        """Whether a grid of this size would waste memory when `added` more cells are filled."""
        cells = slots * columns
        if self.sparse or cells * self._cell_bytes() < LARGE_GRID:
            return False
        return _EMPTIEST * (int(np.count_nonzero(self.present())) + added) < cells

    def _cell_bytes(self) -> int:
        return sum(numpy_type(spec.type).itemsize * words_per_cell(spec.type) for spec in self.specs)

    def arguments(self) -> dict[str, object]:
        """The table's arguments for kernels."""
        return {
            "head": self.head,
            "columns": self.keys.columns,
            "panes": self.panes,
            "pane_buckets": self.pane_buckets,
            "pane_mask": len(self.pane_buckets) - 1,
            "pane_capacity": self.capacity,
            "pane_dirty": int(self.dirty),
            **{numbered("state", place): state for place, state in enumerate(self.states)},
            **self.keys.arguments(),
        }

    # -- growth and change of shape ------------------------------------------------------------------

    def grow_slots(self) -> None:
        self._reshape(self.keys, 2 * self.capacity, lambda old, new: _copy_rows(old, new, self.slots))

    def grow_keys(self) -> None:
        """Double the key capacity of a hash table."""
        assert isinstance(self.keys, HashKeys)
        old = self.keys.columns
        kept = self.keys.count
        keys = self.keys
        keys.reserve(2 * old)
        self._reshape(keys, self.capacity, lambda before, after: _copy_columns(before, after, kept), old)

    def change_keys(self, keys: Keys, move: Callable[[np.ndarray, np.ndarray], None]) -> None:
        """Replace the key table; `move` copies cells (slot, column, word) to their new columns."""
        if isinstance(keys, HashKeys):
            keys.head[:] = np.where(np.arange(WORDS) == KEYS, keys.head, self.head)
            self.head = keys.head
        self._reshape(keys, self.capacity, move, self.keys.columns)

    def widen(self) -> None:
        """Turn 64-bit sums into 128-bit ones: the sign fills the upper word."""
        self.states = [
            np.stack([state, state >> 63], axis=1).ravel() if spec.guarded else state
            for state, spec in zip(self.states, self.specs, strict=True)
        ]
        self._hold([StateSpec(I128, 0) if spec.guarded else spec for spec in self.specs])

    def narrow(self, specs: Sequence[StateSpec]) -> None:
        """Turn 128-bit sums that fit into 64-bit ones, as in `specs`."""
        self.states = [
            state[0::2].copy() if spec.guarded else state
            for state, spec in zip(self.states, specs, strict=True)
        ]
        self._hold(specs)

    def relayout(self, specs: Sequence[StateSpec], sources: Sequence[int]) -> None:
        """Replace the states: the i-th new state continues the old state `sources[i]`."""
        self.states = [
            continued(self.states[source], spec) for spec, source in zip(specs, sources, strict=True)
        ]
        self._hold(specs)

    def _hold(self, specs: Sequence[StateSpec]) -> None:
        self.specs = tuple(specs)
        self.wide = not any(spec.guarded for spec in specs)  # no sum can overflow

    def append(self, other: PaneTable, slots: Sequence[int]) -> None:
        """Copy rows from a table with the same columns; its panes must be absent here."""
        self.put_behind(other, slots)
        self._resize_panes(self.capacity)

    def put_behind(self, other: PaneTable, slots: Sequence[int]) -> None:
        """Copy rows as `append` does, without indexing them by pane."""
        begin, columns = self.slots, self.keys.columns
        end = begin + len(slots)
        if end > self.capacity:
            self._reshape(self.keys, 1 << end.bit_length(), lambda old, new: _copy_rows(old, new, begin))
        chosen = as_run(slots)
        for own, its, spec in zip(self.states, other.states, self.specs, strict=True):
            _copy_chosen(its, chosen, own, slice(begin, end), columns * words_per_cell(spec.type))
        _copy_chosen(other.panes, chosen, self.panes, slice(begin, end), 1)
        self.head[SLOTS] = end

    def _reshape(
        self,
        keys: Keys,
        capacity: int,
        move: Callable[[np.ndarray, np.ndarray], None],
        old_columns: int | None = None,
    ) -> None:
        before_columns = self.keys.columns if old_columns is None else old_columns
        states, self.dirty = cells_for(self.specs, capacity * keys.columns)
        if keys is not self.keys or keys.columns != before_columns:
            self._clear(states, keys.columns)
        for old, new, spec in zip(self.states, states, self.specs, strict=True):
            words = words_per_cell(spec.type)
            before = old.reshape(self.capacity, before_columns, words)
            after = new.reshape(capacity, keys.columns, words)
            move(before[: self.slots], after[: self.slots])
        self.states, self.keys = states, keys
        self._resize_panes(capacity)

    def _clear(self, states: Sequence[np.ndarray], columns: int) -> None:
        """Reset the used slots to the identity before cells are moved to some of their columns."""
        if not self.dirty:
            return
        for state, spec in zip(states, self.specs, strict=True):
            fill_cells(state[: self.slots * columns * words_per_cell(spec.type)], spec.type, spec.identity)

    def _resize_panes(self, capacity: int) -> None:
        panes = np.zeros(capacity, np.int64)
        panes[: self.slots] = self.panes[: self.slots]
        self.panes, self.capacity = panes, capacity
        self.pane_buckets = buckets_for(hash_words(panes[: self.slots]), bucket_count(capacity))

    def drop(self, finished: np.ndarray) -> None:
        """Drop the slots for which `finished` is true."""
        gone = np.flatnonzero(finished)
        if 2 * len(gone) <= self.slots and self.capacity <= _FEW * self.slots:
            self._drop_few(gone)
        else:
            self._drop_many(np.flatnonzero(~finished))

    def _drop_few(self, gone: np.ndarray) -> None:
        """Move the last slots into the dropped ones, where fewer move than stay: fresh memory would cost more."""
        end = self.slots - len(gone)
        holes, dropped = gone[gone < end].tolist(), set(gone.tolist())
        movers = [slot for slot in range(end, self.slots) if slot not in dropped]
        for state, spec in zip(self.states, self.specs, strict=True):
            rows = state.reshape(self.capacity, -1)
            rows[holes] = rows[movers]
            if not self.dirty:
                rows[end : self.slots] = spec.identity
        found = len(gone) <= _FEW and all(self._unindex(slot) for slot in gone.tolist())
        moved = zip(holes, movers, strict=True)
        found = found and all(self._reindex(mover, hole) for hole, mover in moved)
        self.panes[holes] = self.panes[movers]
        self.head[SLOTS] = end
        if not found:  # copies of another table's panes are not indexed
            self._resize_panes(self.capacity)

    def _unindex(self, slot: int) -> bool:
        """Remove a slot's pane from the index; False if it is not there."""
        bucket = bucket_of(self.pane_buckets, int(self.panes[slot]), slot)
        if bucket is not None:
            empty_bucket(self.pane_buckets, bucket, self.panes)
        return bucket is not None

    def _reindex(self, slot: int, goal: int) -> bool:
        """Let the index find a slot's pane in another slot; False if it is not there."""
        bucket = bucket_of(self.pane_buckets, int(self.panes[slot]), slot)
        if bucket is not None:
            self.pane_buckets[bucket] = goal + 1
        return bucket is not None

    def _drop_many(self, kept: np.ndarray) -> None:
        capacity = max(2, 1 << len(kept).bit_length())
        states, self.dirty = cells_for(self.specs, capacity * self.keys.columns)
        for old, new in zip(self.states, states, strict=True):
            new.reshape(capacity, -1)[: len(kept)] = old.reshape(self.capacity, -1)[kept]
        self.states = states
        panes = self.panes[kept]
        self.head[SLOTS] = len(kept)
        self.panes = np.zeros(capacity, np.int64)
        self.panes[: len(kept)] = panes
        self._resize_panes(capacity)

    # -- the canonical form --------------------------------------------------------------------------

    def present(self) -> np.ndarray:
        """Which (slot, column) cells are not empty."""
        columns = self.keys.columns
        held: np.ndarray = self.states[0][: self.slots * columns].reshape(self.slots, columns) != 0
        return held

    def fragments(self, slots: Sequence[int] | None = None) -> Fragments:
        """One row for each non-empty (pane, key), of the given slots or of all."""
        columns = self.keys.columns
        if isinstance(self.keys, HashKeys) and self.keys.sparse:
            return self._sparse_fragments(np.arange(self.keys.count))
        if slots is None:
            slots = range(self.slots)
        presence = self.states[0].reshape(self.capacity, columns)
        found = [np.flatnonzero(presence[slot]) + slot * columns for slot in slots]
        places = np.concatenate(found) if found else np.zeros(0, np.int64)
        words, nulls = self.keys.words_of(places % columns)
        states = [
            take_cells(state, spec, places) for state, spec in zip(self.states, self.specs, strict=True)
        ]
        return Fragments(self.panes[places // columns], words, nulls, states, self.specs)

    def _sparse_fragments(self, entries: np.ndarray) -> Fragments:
        assert isinstance(self.keys, HashKeys)
        (panes, *words), nulls = self.keys.words_of(entries)
        states = [
            take_cells(state, spec, entries) for state, spec in zip(self.states, self.specs, strict=True)
        ]
        return Fragments(panes, words, nulls >> 1, states, self.specs)


def as_run(places: Sequence[int]) -> slice | np.ndarray:
    """Turn ascending places into a slice if they are contiguous: a slice copies much faster than single places.

    >>> as_run([2, 3, 4]), as_run([]), as_run([2, 4]).tolist()
    (slice(2, 5, None), slice(0, 0, None), [2, 4])
    """
    if not places:
        return slice(0, 0)
    first, last = places[0], places[-1]
    return slice(first, last + 1) if last - first + 1 == len(places) else np.array(places)


def _copy_chosen(
    before: np.ndarray, chosen: slice | np.ndarray, after: np.ndarray, to: slice, cells: int
) -> None:
    """Copy the chosen rows of `cells` cells each to contiguous rows."""
    if isinstance(chosen, slice):
        begin, end = chosen.start * cells, chosen.stop * cells
        after[to.start * cells : to.stop * cells] = before[begin:end]
        return
    # `clip` writes in place; the default mode makes a copy first. No place is out of range.
    before.reshape(-1, cells).take(chosen, 0, after.reshape(-1, cells)[to], "clip")


def cells_for(specs: Sequence[StateSpec], many: int) -> tuple[list[np.ndarray], bool]:
    """Allocate `many` cells of every state; the flag says whether they are dirty, so that kernels clear each slot they take.

    Few cells are cleared quickly. Very many come from the system as zero pages, of which only touched ones cost.
    """
    sizes = [(many * words_per_cell(spec.type), numpy_type(spec.type)) for spec in specs]
    largest = max(count * dtype.itemsize for count, dtype in sizes)
    if LARGE <= largest <= TOO_LARGE:
        return rooms(sizes), True
    return [_filled(place, spec, many) for place, spec in enumerate(specs)], False


def _filled(place: int, spec: StateSpec, many: int) -> np.ndarray:
    """Allocate identities for the state at `place`; staggered, because large arrays begin at the same offset of a page."""
    apart = place * APART % PAGE // numpy_type(spec.type).itemsize
    return filled(spec.type, spec.identity, many + apart // words_per_cell(spec.type))[apart:]


def _copy_rows(before: np.ndarray, after: np.ndarray, rows: int) -> None:
    after[:rows] = before[:rows]


def _copy_columns(before: np.ndarray, after: np.ndarray, columns: int) -> None:
    after[:, :columns] = before[:, :columns]


def panes_ahead(expected: int, layout: Sequence[StateSpec], columns: int) -> int:
    """The number of panes to allocate: the expected ones, within the memory limits above."""
    zeros = 2 * columns >= CELLS_AHEAD and not any(spec.identity for spec in layout)
    return min(expected, max((ZEROS_AHEAD if zeros else CELLS_AHEAD) // columns, 2))


COMPACT = 1 << 12  # keys of a table that is worth looking at
EMPTIEST = 16  # columns of a dense table for each one in use
SAMPLE = 1 << 14  # rows that choose the first key table


def key_ranges(
    keys: Sequence[KeySpec], arguments: BatchArguments, rows: int | None = None
) -> tuple[list[int], list[int]] | None:
    """The lowest and highest word of each key in the first rows, or in all; None if a key must be computed first."""
    if not may_be_dense(keys):
        return None
    found = [_limits(_words(key, arguments, rows)) for key in keys]
    return [low for low, _ in found], [high for _, high in found]


def _limits(words: np.ndarray) -> tuple[int, int]:
    # As methods, NumPy's min and max run through Python code, which is slow with cold caches.
    return (int(np.minimum.reduce(words)), int(np.maximum.reduce(words))) if len(words) else (0, 0)


def may_be_dense(keys: Sequence[KeySpec]) -> bool:
    """Whether all keys are integers, or codes, that are read from columns."""
    return all(key.whole for key in keys)


def _words(key: KeySpec, arguments: BatchArguments, rows: int | None) -> np.ndarray:
    """The non-null words of the first values of a key's column."""
    assert key.column is not None
    if key.text:
        return arguments.codes(key.column)[:rows]
    array = arguments.column(key.column)
    if pa.types.is_boolean(array.type):
        return np.array([0, 1])
    values = arguments.values(key.column)[:rows]
    if array.null_count:
        values = values[array.slice(0, rows).is_valid().to_numpy(zero_copy_only=False)]
    return values.view(np.int64) if values.dtype == np.uint64 else values


def denser(keys: DenseKeys, used: np.ndarray, program_keys: Sequence[KeySpec]) -> DenseKeys | None:
    """A dense table for the range of the columns in use; None if even that would be mostly empty."""
    words, nulls = keys.words_of(used)
    lows, highs = [], []
    for place, key in enumerate(program_keys):
        there = words[place][(nulls >> place) & 1 == 0]
        codes = key.text or not len(there)  # the texts in use are numbered anew
        lows.append(0 if codes else int(there.min()))
        highs.append(len(there) if codes else int(there.max()))
    within = DenseKeys.of_sample(tuple(lows), tuple(highs))
    kept = within if 2 * within.columns <= keys.columns else keys
    return kept if EMPTIEST * len(used) >= kept.columns else None


class KeyShape(NamedTuple):
    """A key table without its keys: its kind, the ranges of a dense one, and whether sums have 128 bits."""

    kind: str
    ranges: tuple[tuple[int, int], ...]
    wide: bool


def shape_of(table: PaneTable) -> KeyShape:
    """Describe the key table of a pane table."""
    keys = table.keys
    if not isinstance(keys, DenseKeys):
        return KeyShape(keys.kind, (), table.wide)
    ends = zip(keys.bases, keys.sizes, strict=True)
    return KeyShape("dense", tuple((base, base + size - 2) for base, size in ends), table.wide)


def dense_over(ranges: Sequence[tuple[int, int]]) -> DenseKeys:
    """The dense table of these ranges, without spare room."""
    return DenseKeys(tuple(low for low, _ in ranges), tuple(high - low + 2 for low, high in ranges))
