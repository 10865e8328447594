"""The keys that a long-lived table goes on with: a dense range outlives its windows, unused parts of it do not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.algorithms.hash_table.keys import DenseKeys, Keys
from penstock.operators.pane_aggregate.program import Key
from penstock.operators.pane_aggregate.table import PaneTable

EMPTIEST = 16  # columns of a dense table for each one in use


def keys_in_use(table: PaneTable, keys: Sequence[Key]) -> Keys | None:
    """The key table to go on with: the same, or a shorter dense range; None for a new hash table.

    The table stays while a quarter of its keys are in use.
    """
    used = np.flatnonzero(table.present().any(axis=0))
    if 4 * len(used) > table.keys_held:
        return table.keys
    return _shorter(table.keys, used, keys) if isinstance(table.keys, DenseKeys) else None


def _shorter(dense: DenseKeys, used: np.ndarray, keys: Sequence[Key]) -> DenseKeys | None:
    """A dense table for the range of the columns in use; None if even that would be mostly empty."""
    words, nulls = dense.words_of(used)
    lows, highs = [], []
    for place, key in enumerate(keys):
        there = words[place][(nulls >> place) & 1 == 0]
        codes = key.text or not len(there)  # the texts in use are numbered anew
        lows.append(0 if codes else int(there.min()))
        highs.append(len(there) if codes else int(there.max()))
    within = DenseKeys.of_sample(tuple(lows), tuple(highs))
    kept = within if 2 * within.columns <= dense.columns else dense
    return kept if EMPTIEST * len(used) >= kept.columns else None
