"""The pane table: rows are panes of time, columns are keys, cells hold partial states.

Kernels fill it and stop when it is full; here it grows, changes shape, gives up what is finished, and
turns into *fragments*, its canonical form: one row for each (pane, key) with its partial states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.loop.abi import KEYS, SLOTS, WORDS, numbered
from penstock.loop.nodes import I128, Type
from penstock.runtime.buffers import LARGE, TOO_LARGE, filled, numpy_type, rooms, words_per_cell
from penstock.runtime.hashing import bucket_count, buckets_for, hash_words
from penstock.runtime.keys import HashKeys, Keys
from penstock.runtime.recycled import APART

_FEW = 8  # one slot in so many; nor is more room kept than for so many times the slots
LARGE_GRID = 1 << 26  # bytes
MOST_KEPT = 1 << 22  # bytes: making a larger table is a small part of what is done to it


@dataclass(frozen=True)
class StateSpec:
    """One state array: its type, its content before any row, and whether its sum is guarded.

    `text` names the column whose interned codes it holds.
    """

    type: Type
    identity: float
    guarded: bool = False
    text: str | None = None


@dataclass(frozen=True)
class Fragments:
    """State on the move: keys as words, states as flat arrays (two words for each 128-bit cell)."""

    panes: np.ndarray
    words: list[np.ndarray]
    nulls: np.ndarray
    states: list[np.ndarray]
    specs: tuple[StateSpec, ...]

    def __len__(self) -> int:
        return len(self.panes)

    @property
    def wide(self) -> bool:
        return not any(each.guarded for each in self.specs)

    def relaid(self, specs: Sequence[StateSpec], sources: Sequence[int]) -> Fragments:
        """The same fragments with other states: the i-th new one continues old one `sources[i]`.

        It is the old one itself unless several go on from that, each of which may be written to.
        """
        states = [
            continued(self.states[source], spec, copy=sources.count(source) > 1)
            for spec, source in zip(specs, sources, strict=True)
        ]
        return Fragments(self.panes, self.words, self.nulls, states, tuple(specs))

    def keys_there(self) -> list[np.ndarray]:
        """The words of each key that are not null."""
        if not self.nulls.any():
            return list(self.words)
        return [words[(self.nulls >> c) & 1 == 0] for c, words in enumerate(self.words)]

    def chosen(self, rows: np.ndarray) -> Fragments:
        """Only the rows of a mask or list."""
        places = np.flatnonzero(rows) if rows.dtype == bool else rows
        states = [
            _take_cells(state, spec, places) for state, spec in zip(self.states, self.specs, strict=True)
        ]
        return Fragments(
            self.panes[places],
            [words[places] for words in self.words],
            self.nulls[places],
            states,
            self.specs,
        )


class PaneTable:
    """State of one worker. `specs[0]` is the presence of a row: a count or a flag, 0 when there is none."""

    _arguments: Mapping[str, object] | None

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

    def occupancy(self) -> float:
        """The share of cells in use that hold anything."""
        return float(np.count_nonzero(self.present())) / max(self.slots * self.keys.columns, 1)

    @property
    def too_empty(self) -> bool:
        """Whether a grid wastes memory: large, and few keys meet in a pane."""
        if self.sparse or 2 * self.nbytes < LARGE_GRID:
            return False
        return self.occupancy() < (1 / 4 if isinstance(self.keys, HashKeys) else 1 / 32)

    def arguments(self) -> Mapping[str, object]:
        """Everything kernels need to know of the table: the same mapping until that changes, but for keys that change by themselves."""
        if self._arguments is None or isinstance(self.keys, HashKeys):
            self._arguments = self._made_arguments()
        return self._arguments

    def _made_arguments(self) -> dict[str, object]:
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

    # -- use for another run -------------------------------------------------------------------------

    @property
    def lasting(self) -> bool:
        """Whether it is worth keeping for another run: small, and with a column for each key that may come."""
        return not isinstance(self.keys, HashKeys) and self.nbytes <= MOST_KEPT

    def serves(self, specs: Sequence[StateSpec], keys: Keys, slots: int) -> bool:
        """Whether another run that needs such states, keys and slots may use it, once it is cleared."""
        return self.specs == specs and self.keys == keys and slots <= self.capacity <= _FEW * slots

    def clear(self) -> None:
        """Hold nothing, in the same memory."""
        if not self.dirty:
            self._empty(self.states, self.slots * self.keys.columns)
        self.head.fill(0)
        self.pane_buckets.fill(0)

    # -- growth and change of shape ------------------------------------------------------------------

    def grow_slots(self) -> None:
        self._reshape(self.keys, 2 * self.capacity, lambda old, new: _copy_rows(old, new, self.slots))

    def grow_keys(self) -> None:
        """Double a hash table's room for keys."""
        assert isinstance(self.keys, HashKeys)
        old = self.keys.columns
        kept = self.keys.count
        keys = self.keys
        keys.reserve(2 * old)
        self._reshape(keys, self.capacity, lambda before, after: _copy_columns(before, after, kept), old)

    def change_keys(self, keys: Keys, move: Callable[[np.ndarray, np.ndarray], None]) -> None:
        """Take another key table; `move` copies cells (slot, column, word) to their new columns."""
        if isinstance(keys, HashKeys):
            keys.head[:] = np.where(np.arange(WORDS) == KEYS, keys.head, self.head)
            self.head = keys.head
        self._reshape(keys, self.capacity, move, self.keys.columns)

    def widen(self) -> None:
        """Turn 64-bit sums into 128-bit ones: the sign fills the upper word."""
        for place, spec in enumerate(self.specs):
            if spec.guarded:
                low = self.states[place]
                self.states[place] = np.stack([low, low >> 63], axis=1).ravel()
        self._hold([StateSpec(I128, 0) if each.guarded else each for each in self.specs])

    def relayout(self, specs: Sequence[StateSpec], sources: Sequence[int]) -> None:
        """Hold other states: the i-th new one continues old one `sources[i]`."""
        self.states = [
            continued(self.states[source], spec) for spec, source in zip(specs, sources, strict=True)
        ]
        self._hold(specs)

    def _hold(self, specs: Sequence[StateSpec]) -> None:
        self._arguments = None
        self.specs = tuple(specs)
        self.wide = not any(each.guarded for each in specs)  # no sum can become too large

    def append(self, other: PaneTable, slots: np.ndarray) -> None:
        """Copy rows from a table with the same columns, of panes that we do not have."""
        self.put_behind(other, slots)
        self._resize_panes(self.capacity)

    def put_behind(self, other: PaneTable, slots: np.ndarray) -> None:
        """Copy rows as `append` does, but so that they are not found by their panes."""
        begin, columns = self.slots, self.keys.columns
        end = begin + len(slots)
        if end > self.capacity:
            self._reshape(self.keys, 1 << end.bit_length(), lambda old, new: _copy_rows(old, new, begin))
        for own, its, spec in zip(self.states, other.states, self.specs, strict=True):
            cells = columns * words_per_cell(spec.type)
            # `clip` writes in place, where the usual mode makes a copy first; no slot lies outside.
            its.reshape(-1, cells).take(slots, 0, own.reshape(-1, cells)[begin:end], "clip")
        self.panes[begin:end] = other.panes[slots]
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
        """Let the slots in use hold nothing, before cells are moved to some of their columns."""
        if self.dirty:
            self._empty(states, self.slots * columns)

    def _empty(self, states: Sequence[np.ndarray], cells: int) -> None:
        for state, spec in zip(states, self.specs, strict=True):
            state[: cells * words_per_cell(spec.type)] = spec.identity

    def _resize_panes(self, capacity: int) -> None:
        self._arguments = None
        panes = np.zeros(capacity, np.int64)
        panes[: self.slots] = self.panes[: self.slots]
        self.panes, self.capacity = panes, capacity
        self.pane_buckets = buckets_for(hash_words(panes[: self.slots]), bucket_count(capacity))

    def drop(self, finished: np.ndarray) -> None:
        """Forget the slots for which `finished` is true."""
        gone = np.flatnonzero(finished)
        if _FEW * len(gone) <= self.slots and self.capacity <= _FEW * self.slots:
            self._drop_few(gone)
        else:
            self._drop_many(np.flatnonzero(~finished))

    def _drop_few(self, gone: np.ndarray) -> None:
        """Let the last slots take the places of those that go: a copy of all others would be mostly of fresh pages."""
        end = self.slots - len(gone)
        holes, movers = gone[gone < end], np.setdiff1d(np.arange(end, self.slots), gone)
        for state, spec in zip(self.states, self.specs, strict=True):
            rows = state.reshape(self.capacity, -1)
            rows[holes] = rows[movers]
            if not self.dirty:
                rows[end : self.slots] = spec.identity
        self.panes[holes] = self.panes[movers]
        self.head[SLOTS] = end
        self._resize_panes(self.capacity)

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
        """Which (slot, column) cells hold anything."""
        columns = self.keys.columns
        held: np.ndarray = self.states[0][: self.slots * columns].reshape(self.slots, columns) != 0
        return held

    def fragments(self, slots: np.ndarray | None = None) -> Fragments:
        """One row for each pane and key that holds something, of some slots or of all."""
        columns = self.keys.columns
        if isinstance(self.keys, HashKeys) and self.keys.sparse:
            return self._sparse_fragments(np.arange(self.keys.count))
        if slots is None:
            slots = np.arange(self.slots)
        presence = self.states[0].reshape(self.capacity, columns)
        found = [np.flatnonzero(presence[slot]) + slot * columns for slot in slots]
        places = np.concatenate(found) if found else np.zeros(0, np.int64)
        words, nulls = self.keys.words_of(places % columns)
        states = [
            _take_cells(state, spec, places) for state, spec in zip(self.states, self.specs, strict=True)
        ]
        return Fragments(self.panes[places // columns], words, nulls, states, self.specs)

    def _sparse_fragments(self, entries: np.ndarray) -> Fragments:
        assert isinstance(self.keys, HashKeys)
        (panes, *words), nulls = self.keys.words_of(entries)
        states = [
            _take_cells(state, spec, entries) for state, spec in zip(self.states, self.specs, strict=True)
        ]
        return Fragments(panes, words, nulls >> 1, states, self.specs)


def pane_count(panes: np.ndarray) -> int:
    """How many different panes there are. They mostly lie side by side, and need not be sorted then.

    >>> pane_count(np.array([7, 5, 7])), pane_count(np.array([0, 1 << 62]))
    (2, 2)
    """
    low, high = (int(panes.min()), int(panes.max())) if len(panes) else (0, -1)
    if high - low >= len(panes):
        return len(np.unique(panes))
    return int(np.count_nonzero(np.bincount(panes - low))) if len(panes) else 0


def widened(fragments: Fragments) -> Fragments:
    """The same fragments with every guarded sum in 128 bits."""
    states, specs = [], []
    for state, spec in zip(fragments.states, fragments.specs, strict=True):
        if spec.guarded:
            state, spec = np.stack([state, state >> 63], axis=1).ravel(), StateSpec(I128, 0)
        states.append(state)
        specs.append(spec)
    return Fragments(fragments.panes, fragments.words, fragments.nulls, states, tuple(specs))


def narrowed(fragments: Fragments, specs: Sequence[StateSpec]) -> Fragments:
    """The same fragments with guarded sums in 64 bits, as `specs` have them, if all of them fit."""
    states = []
    for state, spec in zip(fragments.states, specs, strict=True):
        if spec.guarded:
            low, high = state[0::2].copy(), state[1::2]
            if bool((high != low >> 63).any()):
                return fragments
            state = low
        states.append(state)
    return Fragments(fragments.panes, fragments.words, fragments.nulls, states, tuple(specs))


def continued(old: np.ndarray, spec: StateSpec, copy: bool = True) -> np.ndarray:
    """A state's cells, or a copy of them, as another state that goes on from them (a count may become a flag)."""
    goal = numpy_type(spec.type)
    if old.dtype == goal:
        return old.copy() if copy else old
    flags: np.ndarray = (old != 0).astype(goal)
    return flags


def cells_for(specs: Sequence[StateSpec], many: int) -> tuple[list[np.ndarray], bool]:
    """Memory for so many cells of every state, and whether it is dirty: then kernels clear each slot that they take.

    Few cells are soon cleared. Very many come as zeros from the system, those of them that are ever touched.
    """
    sizes = [(many * words_per_cell(each.type), numpy_type(each.type)) for each in specs]
    largest = max(count * dtype.itemsize for count, dtype in sizes)
    if LARGE <= largest <= TOO_LARGE:
        return rooms(sizes), True
    return [_filled(place, each, many) for place, each in enumerate(specs)], False


def _filled(place: int, spec: StateSpec, many: int) -> np.ndarray:
    """Memory that holds identities, for the state at a place among all states: large arrays begin at the same place of a page."""
    apart = place * APART // numpy_type(spec.type).itemsize
    return filled(spec.type, spec.identity, many + apart // words_per_cell(spec.type))[apart:]


def _take_cells(state: np.ndarray, spec: StateSpec, places: np.ndarray) -> np.ndarray:
    words = words_per_cell(spec.type)
    return np.ascontiguousarray(state.reshape(-1, words)[places]).ravel()


def _copy_rows(before: np.ndarray, after: np.ndarray, rows: int) -> None:
    after[:rows] = before[:rows]


def _copy_columns(before: np.ndarray, after: np.ndarray, columns: int) -> None:
    after[:, :columns] = before[:, :columns]
