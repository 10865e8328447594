"""Fragments: the canonical form of pane tables, one row for each (pane, key) with its partial states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.algorithms.hash_table.keys import Interner
from penstock.loop.nodes import I128
from penstock.operators.pane_aggregate.program import KeySpec, StateSpec
from penstock.runtime.buffers import numpy_type, words_per_cell


@dataclass(frozen=True)
class Fragments:
    """Rows of (pane, key, states): keys as words, states as flat arrays (two words for each 128-bit cell)."""

    panes: np.ndarray
    words: list[np.ndarray]
    nulls: np.ndarray
    states: list[np.ndarray]
    specs: tuple[StateSpec, ...]

    def __len__(self) -> int:
        return len(self.panes)

    @property
    def wide(self) -> bool:
        return not any(spec.guarded for spec in self.specs)

    def relaid(self, specs: Sequence[StateSpec], sources: Sequence[int]) -> Fragments:
        """The same fragments with other states: the i-th new state continues the old state `sources[i]`.

        An old state is shared without a copy unless several new states continue it, each of which may be written to.
        """
        states = [
            continued(self.states[source], spec, copy=sources.count(source) > 1)
            for spec, source in zip(specs, sources, strict=True)
        ]
        return Fragments(self.panes, self.words, self.nulls, states, tuple(specs))

    def keys_there(self) -> list[np.ndarray]:
        """The non-null words of each key."""
        if not self.nulls.any():
            return list(self.words)
        return [words[(self.nulls >> c) & 1 == 0] for c, words in enumerate(self.words)]

    def key_ranges(self, bases: Sequence[int]) -> tuple[list[int], list[int]]:
        """The lowest and highest word of each key component; its base where all are null."""
        there = list(zip(self.keys_there(), bases, strict=True))
        lows = [int(words.min()) if len(words) else base for words, base in there]
        return lows, [int(words.max()) if len(words) else base for words, base in there]

    def chosen(self, rows: np.ndarray) -> Fragments:
        """The rows selected by a mask or by positions."""
        places = np.flatnonzero(rows) if rows.dtype == bool else rows
        states = [
            take_cells(state, spec, places) for state, spec in zip(self.states, self.specs, strict=True)
        ]
        return Fragments(
            self.panes[places],
            [words[places] for words in self.words],
            self.nulls[places],
            states,
            self.specs,
        )


def pane_count(panes: np.ndarray) -> int:
    """The number of distinct panes. Panes are mostly contiguous, and then need no sorting.

    >>> pane_count(np.array([7, 5, 7])), pane_count(np.array([0, 1 << 62]))
    (2, 2)
    """
    low, high = (int(panes.min()), int(panes.max())) if len(panes) else (0, -1)
    if high - low >= len(panes):
        return len(np.unique(panes))
    return int(np.count_nonzero(np.bincount(panes - low))) if len(panes) else 0


def widened(fragments: Fragments) -> Fragments:
    """The same fragments with every guarded sum widened to 128 bits."""
    states, specs = [], []
    for state, spec in zip(fragments.states, fragments.specs, strict=True):
        if spec.guarded:
            state, spec = np.stack([state, state >> 63], axis=1).ravel(), StateSpec(I128, 0)
        states.append(state)
        specs.append(spec)
    return Fragments(fragments.panes, fragments.words, fragments.nulls, states, tuple(specs))


def narrowed(fragments: Fragments, specs: Sequence[StateSpec]) -> Fragments:
    """The same fragments with guarded sums narrowed to 64 bits, as in `specs`; unchanged unless all sums fit."""
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
    """A state's cells as those of the state that continues it, optionally copied (a count may become a flag)."""
    goal = numpy_type(spec.type)
    if old.dtype == goal:
        return old.copy() if copy else old
    flags: np.ndarray = (old != 0).astype(goal)
    return flags


def take_cells(state: np.ndarray, spec: StateSpec, places: np.ndarray) -> np.ndarray:
    """The cells of a state at some places, contiguous."""
    words = words_per_cell(spec.type)
    return np.ascontiguousarray(state.reshape(-1, words)[places]).ravel()


def translate(
    fragments: Fragments,
    keys: Sequence[KeySpec],
    own: Mapping[str, Interner],
    others: Mapping[str, Interner],
) -> None:
    """Translate text keys and text states, in place, from the codes of other interners to one's own."""
    for place, key in enumerate(keys):
        if key.text:
            assert key.column is not None
            word = fragments.words[place]
            here = ((fragments.nulls >> place) & 1) == 0
            word[here] = own[key.column].translate(others[key.column], word[here])
    for state, spec in zip(fragments.states, fragments.specs, strict=True):
        if spec.text is not None:
            here = state >= 0
            state[here] = own[spec.text].translate(others[spec.text], state[here])
