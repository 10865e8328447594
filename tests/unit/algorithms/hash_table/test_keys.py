"""The columns of pane tables: how many there are before any key has come."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.algorithms.hash_table.keys import DenseKeys, HashKeys
from penstock.loop.abi import WORDS


@pytest.mark.parametrize(
    ("rows", "room"), [(0, 64), (1, 64), (64, 64), (65, 128), (3_000, 4_096), (1 << 20, 4_096)]
)
def test_a_hash_table_begins_with_room_for_the_rows_that_bring_its_keys(rows: int, room: int) -> None:
    keys = HashKeys(1, np.zeros(WORDS, np.int64), nullable=False, rows=rows)
    assert keys.columns == room == len(keys.nulls)
    assert len(keys.buckets) > room


def test_the_same_sample_gives_the_same_dense_table_with_room_at_both_ends() -> None:
    keys = DenseKeys.of_sample((0,), (639,))
    assert (keys.bases, keys.sizes) == ((-9,), (659,))
    assert DenseKeys.of_sample((0,), (639,)) is keys
