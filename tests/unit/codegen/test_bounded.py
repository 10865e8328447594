"""A bounded map forgets what was used least recently."""

from __future__ import annotations

from penstock.codegen.bounded import Bounded


def filled(entries: int, size: int, *values: bytes) -> Bounded[bytes]:
    found: Bounded[bytes] = Bounded(entries, size, len)
    for place, value in enumerate(values):
        found.put(str(place), value)
    return found


def test_the_least_recently_used_leaves_first() -> None:
    bounded = filled(2, 100, b"a", b"b")
    assert bounded.get("0") == b"a"
    assert bounded.put("2", b"c") == [b"b"]
    assert (bounded.get("1"), len(bounded), bounded.bytes) == (None, 2, 2)


def test_as_many_leave_as_the_bytes_of_a_new_value_ask_for() -> None:
    bounded = filled(9, 10, bytes(4), bytes(4), bytes(2))
    assert bounded.put("large", bytes(7)) == [bytes(4), bytes(4)]
    assert (len(bounded), bounded.bytes) == (2, 9)


def test_a_value_that_is_too_large_by_itself_is_kept_alone() -> None:
    bounded = filled(9, 10, bytes(4))
    assert bounded.put("large", bytes(70)) == [bytes(4)]
    assert bounded.get("large") == bytes(70)


def test_a_value_takes_the_place_of_the_one_before() -> None:
    bounded = filled(9, 10, b"aa")
    assert bounded.put("0", b"b") == [b"aa"]
    assert (len(bounded), bounded.bytes, bounded.get("0")) == (1, 1, b"b")


def test_all_leave_at_once() -> None:
    bounded = filled(9, 10, b"a", b"b")
    assert bounded.clear() == [b"a", b"b"]
    assert (len(bounded), bounded.bytes) == (0, 0)
