"""The pane table: panes leave, are lent, and lie where the cache can tell their states apart."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.algorithms.hash_table.keys import DenseKeys
from penstock.loop.abi import SLOTS
from penstock.loop.nodes import F64, I64, I128
from penstock.operators.pane_aggregate.program import StateSpec
from penstock.operators.pane_aggregate.table import PaneTable

SPECS = (StateSpec(I64, 0), StateSpec(F64, 0.5), StateSpec(I128, 0))
COLUMNS = 3


def a_table(panes: int, capacity: int = 64) -> PaneTable:
    """A table of panes 100, 101, …, each cell a number that tells its pane and state."""
    table = PaneTable(SPECS, DenseKeys((0,), (COLUMNS,)), capacity)
    table.head[SLOTS] = panes
    table.panes[:panes] = 100 + np.arange(panes)
    for place, state in enumerate(table.states):
        rows = state.reshape(capacity, -1)
        rows[:panes] = 1000 * (place + 1) + np.arange(panes)[:, None]
    return table


def contents(table: PaneTable) -> dict[int, list[list[float]]]:
    rows = [state.reshape(table.capacity, -1) for state in table.states]
    return {int(table.panes[slot]): [row[slot].tolist() for row in rows] for slot in range(table.slots)}


@pytest.mark.parametrize(
    "gone", [[], [0], [39], [5, 38], [36, 37, 38], [3, 4, 5, 6, 7], list(range(30))], ids=str
)
def test_panes_that_are_dropped_leave_the_others_as_they_were(gone: list[int]) -> None:
    table, finished = a_table(40), np.zeros(40, bool)
    finished[gone] = True
    expected = contents(a_table(40))
    table.drop(finished)
    assert contents(table) == {pane: cells for pane, cells in expected.items() if pane - 100 not in gone}
    assert not table.dirty
    for state, spec in zip(table.states, SPECS, strict=True):
        assert (state.reshape(table.capacity, -1)[table.slots :] == spec.identity).all(), (
            "the next pane is empty"
        )


def test_kernels_are_told_to_clear_the_slots_of_tables_that_are_neither_small_nor_huge() -> None:
    dirty = {slots: PaneTable(SPECS, DenseKeys((0,), (1000,)), slots).dirty for slots in (2, 64, 1 << 12)}
    assert dirty == {2: False, 64: True, 1 << 12: False}


def test_columns_that_keys_do_not_move_to_are_cleared() -> None:
    keys, as_many = DenseKeys((0,), (5000,)), DenseKeys((7,), (5000,))
    for other in (DenseKeys((0,), (9000,)), as_many):
        table = PaneTable(SPECS, keys, 4)
        table.head[SLOTS], table.states[0][:], table.states[1][:] = 3, 7, 7.5
        junk = PaneTable(SPECS, other, 4)
        for state in junk.states:
            state[:] = -1
        del junk  # its memory is used again, as likely as not

        def move(before: np.ndarray, after: np.ndarray) -> None:
            after[:, :1] = before[:, :1]

        table.change_keys(other, move)
        assert table.dirty
        counts = table.states[0].reshape(4, other.columns)[:3]
        assert (counts[:, 0] == 7).all() and (counts[:, 1:] == 0).all()


def test_few_panes_are_dropped_where_they_lie_and_no_room_is_kept_for_long() -> None:
    table = a_table(40)
    before = table.states[0]
    table.drop(np.arange(40) == 7)
    assert table.states[0] is before
    large = a_table(7, capacity=64)
    large.drop(np.arange(7) == 7)
    assert large.capacity < 64


@pytest.mark.parametrize("slots", [[3, 4], [3, 5], [0, 1, 19], [7]])
def test_lent_panes_come_behind_and_go_again(slots: list[int]) -> None:
    table, other = a_table(40), a_table(20)
    other.panes[:20] += 40
    own, lent = contents(table), contents(other)
    table.put_behind(other, slots)
    assert contents(table) == own | {140 + slot: lent[140 + slot] for slot in slots}
    table.drop(np.arange(40 + len(slots)) >= 40)
    assert contents(table) == own


def test_the_states_of_a_key_lie_in_different_sets_of_a_cache() -> None:
    for slots in (2, 1 << 10, 1 << 15):
        table = PaneTable(SPECS[:2] * 2, DenseKeys((0,), (100,)), slots)
        sets = [state.ctypes.data // 64 % 64 for state in table.states]
        assert slots < 1 << 10 or len(set(sets)) == 4
        assert all(len(state) == slots * 100 for state in table.states)
