"""Migrate a pane table between layouts directly, without its canonical form: hash ↔ dense keys, wide → narrow sums.

What a narrower layout assumes is checked on the whole state first. Growth within a layout belongs to `table.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from penstock.algorithms.hash_table.keys import DenseKeys, HashKeys
from penstock.loop.abi import KEYS
from penstock.loop.nodes import I128
from penstock.operators.pane_aggregate.table import PaneTable

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
