"""The kernel that decides which rows are late for sessions: the same interpreted and compiled, also at the limits."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from penstock.loop.nodes import Kernel
from penstock.operators.sorted_windows.kernels.session_lateness import (
    ACCEPTED,
    CUT,
    END_OF_TIME,
    LATE,
    START_OF_TIME,
    session_lateness,
)
from tests.unit.algorithms.running import run


@cache
def kernel(begin_earlier: bool) -> Kernel:
    return session_lateness(begin_earlier)


def fates(
    rows: list[tuple[int, int]], gap: int, ended: int = START_OF_TIME, begin_earlier: bool = True
) -> list[int]:
    """Judge rows (time, watermark) of one key, of which a session ended."""
    times, marks = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    buckets = np.floor_divide(times, gap)
    known, pairs = np.unique(buckets, return_inverse=True)
    values = {
        "times": times,
        "marks": marks,
        "keys": np.zeros(len(rows), np.int64),
        "pairs": pairs,
        "safe": np.where(marks < START_OF_TIME + gap, START_OF_TIME, marks - gap),
        "buckets": known,
        "low": np.full(len(known), END_OF_TIME),
        "high": np.full(len(known), START_OF_TIME),
        "bounds": np.array([0, len(known)]),
        "front": np.array([len(known)]),
        "reach": np.array([0]),
        "ended": np.array([ended]),
        "upto": np.array([START_OF_TIME]),
        "earliest": np.array([END_OF_TIME]),
        "fates": np.zeros(len(rows), np.uint8),
        "rows": len(rows),
        "gap": gap,
        "twice": min(2 * gap, END_OF_TIME),
        "most": END_OF_TIME - min(2 * gap, END_OF_TIME),
    }
    _, memory = run(kernel(begin_earlier), values)
    found: list[int] = memory["fates"].tolist()
    return found


CASES = {
    "within an open session": ([(0, 0), (9, 0), (5, 9)], [ACCEPTED] * 3),
    "exactly the gap before one": ([(30, 0), (20, 30), (9, 30)], [ACCEPTED, ACCEPTED, LATE]),
    "exactly the gap after one": ([(0, 0), (10, 10), (10, 10)], [ACCEPTED] * 3),
    "within the gap of an emitted one": (
        [(0, 0), (12, 0), (10, 12), (11, 12)],
        [ACCEPTED, ACCEPTED, LATE, ACCEPTED],
    ),
    "beyond a forgotten end": (
        [(0, 0), (41, 0), (32, 41), (22, 41), (12, 41), (10, 41)],
        [*[ACCEPTED] * 5, CUT],
    ),
    "at the first time there is": (
        [
            (START_OF_TIME, START_OF_TIME),
            (START_OF_TIME + 3, START_OF_TIME),
            (START_OF_TIME + 1, START_OF_TIME + 3),
        ],
        [ACCEPTED] * 3,
    ),
    "at the last time there is": (
        [(END_OF_TIME - 1, 0), (END_OF_TIME - 9, END_OF_TIME - 1), (END_OF_TIME - 30, END_OF_TIME - 1)],
        [ACCEPTED, ACCEPTED, LATE],
    ),
    "from one end of time to the other": (
        [(START_OF_TIME, START_OF_TIME), (END_OF_TIME, START_OF_TIME), (0, END_OF_TIME)],
        [ACCEPTED, ACCEPTED, LATE],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_are_judged_one_after_the_other(name: str) -> None:
    rows, expected = CASES[name]
    assert fates(rows, 10) == expected


def test_an_end_that_was_remembered_makes_rows_late() -> None:
    assert fates([(15, 12), (12, 15), (10, 15)], 10, ended=11) == [ACCEPTED, ACCEPTED, LATE]


def test_no_row_behind_the_watermark_begins_a_session_earlier_where_rows_are_read_on() -> None:
    rows = [(30, 0), (36, 30), (29, 36), (31, 36), (33, 36)]
    assert fates(rows, 10, begin_earlier=False) == [ACCEPTED, ACCEPTED, LATE, ACCEPTED, ACCEPTED]


def test_a_gap_wider_than_half_of_time_keeps_rows_together() -> None:
    assert (
        fates([(0, START_OF_TIME), (END_OF_TIME, START_OF_TIME), (1, END_OF_TIME)], END_OF_TIME)
        == [ACCEPTED] * 3
    )
