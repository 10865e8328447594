"""Keys to columns and panes to slots, in tables so small that everything collides."""

from __future__ import annotations

import struct
from functools import cache
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.algorithms.expressions.cells import Cell
from penstock.algorithms.hash_table.kernels import (
    DenseGroups,
    KeyReader,
    find_or_insert,
    hash_word,
    index_kernel,
    key_word,
)
from penstock.algorithms.monoids import count, least
from penstock.loop.abi import DONE, KEYS, NEED_KEYS, NEED_SLOTS, SLOTS, STATUS, WORDS, numbered
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import F32, F64, I32, I64, U8, U64, Kernel, Type, const
from penstock.loop.numbers import bits_of
from penstock.operators.pane_aggregate.kernels.fold_panes import PaneSlots
from penstock.runtime.key_encoding import buckets_for, hash_keys
from tests.unit.algorithms.running import run
from tests.unit.codegen.compare import array

WORD = st.integers(-(1 << 63), (1 << 63) - 1)
FEW = st.sampled_from([0, 1, -1, 7, 1 << 40, -(1 << 63), (1 << 63) - 1])
SMALL = settings(max_examples=25, deadline=None)


def first_seen(keys: list[Any]) -> list[int]:
    """Number keys in order of first appearance."""
    numbers: dict[Any, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


# --- the loop all tables share ------------------------------------------------------------------------


@cache
def numbering(collide: bool) -> Kernel:
    k = KernelBuilder("numbering")
    n, keys, known = k.scalar("n"), k.buffer("keys", I64), k.buffer("known", I64)
    head, buckets, mask = k.buffer("head", I64), k.buffer("buckets", I32), k.scalar("mask")
    out = k.buffer("out", I64)
    with k.for_(0, n, "row") as row:
        key = k.var("key", keys[row])

        def insert(key=key):
            new = k.var("new", head[KEYS])
            k.store(known, new, key)
            k.store(head, KEYS, new + 1)
            return new

        hashed = const(3, U64) if collide else hash_word(key)
        entry = find_or_insert(k, hashed, buckets, mask, lambda at, key=key: known[at].eq(key), insert)
        k.store(out, row, entry)
    k.ret(head[KEYS])
    return k.build()


@pytest.mark.parametrize("collide", [True, False], ids=["all hashes equal", "hashed"])
@SMALL
@given(keys=st.lists(FEW, max_size=40))
def test_a_key_is_found_again_in_a_table_with_one_free_bucket(collide: bool, keys: list[int]) -> None:
    memory = {
        "n": len(keys),
        "keys": np.array([*keys, 0], np.int64),
        "known": np.zeros(8, np.int64),
        "head": np.zeros(WORDS, np.int64),
        "buckets": np.zeros(8, np.int32),
        "mask": 7,
        "out": np.zeros(len(keys) + 1, np.int64),
    }
    count, after = run(numbering(collide), memory)
    assert after["out"][: len(keys)].tolist() == first_seen(keys)
    assert count == len(set(keys))


# --- keys by hash -------------------------------------------------------------------------------------


def key_memory(keys: list[tuple[list[int], int]], width: int, buckets: int, capacity: int) -> dict[str, Any]:
    rows = len(keys) + 1
    memory: dict[str, Any] = {
        "lo": 0,
        "hi": len(keys),
        "key_capacity": capacity,
        "head": np.zeros(WORDS, np.int64),
        "key_nulls": np.zeros(capacity + 1, np.int64),
        "buckets": np.zeros(buckets, np.int32),
        "bucket_mask": buckets - 1,
        "in_nulls": np.array([*(mask for _, mask in keys), 0], np.int64),
        "out": np.zeros(rows, np.int64),
    }
    for place in range(width):
        memory[numbered("key_words", place)] = np.zeros(capacity + 1, np.int64)
        memory[numbered("in_words", place)] = np.array([*(words[place] for words, _ in keys), 0], np.int64)
    return memory


def identity_of(words: list[int], mask: int) -> tuple[Any, ...]:
    """A null is one key, whatever lies under it."""
    return tuple(None if mask >> place & 1 else word for place, word in enumerate(words))


def keys_of(width: int) -> st.SearchStrategy[list[tuple[list[int], int]]]:
    words = st.lists(FEW | WORD, min_size=width, max_size=width)
    return st.lists(st.tuples(words, st.integers(0, 2**width - 1)), max_size=30)


@pytest.mark.parametrize("width", [1, 2, 3])
@SMALL
@given(data=st.data())
def test_keys_are_numbered_as_they_arrive(width: int, data: st.DataObject) -> None:
    keys = data.draw(keys_of(width))
    memory = key_memory(keys, width, 32, 31)
    reached, after = run(index_kernel(width), memory)
    assert (reached, after["head"][STATUS]) == (len(keys), DONE)
    assert after["out"][: len(keys)].tolist() == first_seen([identity_of(*key) for key in keys])


@SMALL
@given(keys=keys_of(2), capacity=st.integers(1, 5))
def test_a_full_table_stops_before_a_row_and_goes_on_once_it_has_grown(
    keys: list[tuple[list[int], int]], capacity: int
) -> None:
    memory = key_memory(keys, 2, 8, capacity)
    reached, after = run(index_kernel(2), memory)
    numbers = first_seen([identity_of(*key) for key in keys])
    assert after["out"][:reached].tolist() == numbers[:reached]
    if reached == len(keys):
        assert after["head"][STATUS] == DONE
        return
    assert after["head"][STATUS] == NEED_KEYS
    grown = key_memory(keys, 2, 64, 31) | {"head": after["head"], "out": after["out"], "lo": reached}
    for name in ("key_words", "key_words.1", "key_nulls"):
        grown[name][:capacity] = after[name][:capacity]
    words = [grown[name][:capacity] for name in ("key_words", "key_words.1")]
    grown["buckets"] = buckets_for(hash_keys(words, grown["key_nulls"][:capacity]), 64)
    _, done = run(index_kernel(2), grown)
    assert done["out"][: len(keys)].tolist() == numbers


FLOATS = [0.0, -0.0, 1.5, -1.5, inf, -inf, nan, -nan, struct.unpack("<d", b"\x01\0\0\0\0\0\xf0\x7f")[0]]


def words_of(type: Type, values: list[Any]) -> list[int]:
    k = KernelBuilder("words")
    n, given_, out = k.scalar("n"), k.buffer("given", type), k.buffer("out", I64)
    with k.for_(0, n, "row") as row:
        k.store(out, row, key_word(given_[row]))
    k.ret(n)
    memory = {"n": len(values), "given": array(type, values), "out": np.zeros(len(values), np.int64)}
    return run(k.build(), memory)[1]["out"].tolist()


@pytest.mark.parametrize("type", [F32, F64], ids=str)
def test_floats_are_one_key_when_they_are_equal_or_both_nan(type: Type) -> None:
    words = words_of(type, FLOATS)
    for a, first in zip(FLOATS, words, strict=True):
        for b, second in zip(FLOATS, words, strict=True):
            assert (first == second) == (a == b or (a != a and b != b))
    assert words[2] == bits_of(1.5, F64)


def test_unsigned_keys_keep_their_bits() -> None:
    assert words_of(U64, [0, 1 << 63, (1 << 64) - 1]) == [0, -(1 << 63), -1]


# --- keys by arithmetic -------------------------------------------------------------------------------


@cache
def dense(width: int, nullable: bool) -> Kernel:
    """Locate each key, tell whether it lies outside, and read back those that do not."""
    k = KernelBuilder("dense")
    n = k.scalar("n")
    table = DenseGroups.declare(k, width)
    inputs = [k.buffer("in_words", I64) for _ in range(width)]
    valid = [k.buffer("valid", U8) for _ in range(width)]
    places, outside = k.buffer("places", I64), k.buffer("outside", U8)
    back = [(k.buffer("back", I64), k.buffer("null", U8)) for _ in range(width)]
    with k.for_(0, n, "row") as row:
        cells = [
            Cell(words[row], ok[row].ne(0) if nullable else None)
            for words, ok in zip(inputs, valid, strict=True)
        ]
        place, beyond = table.locate(k, cells)
        assert beyond is not None
        k.store(places, row, place)
        k.store(outside, row, beyond.to(U8))
        with k.if_(~beyond):
            read = KeyReader(table).read(k, k.var("column", place))
            for (words, nulls), (word, null) in zip(back, read, strict=True):
                k.store(words, row, word)
                k.store(nulls, row, null.to(U8))
    k.ret(n)
    return k.build()


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("nullable", [False, True], ids=["no nulls", "nulls"])
@SMALL
@given(data=st.data())
def test_dense_keys_have_columns_of_their_own_and_can_be_read_back(
    width: int, nullable: bool, data: st.DataObject
) -> None:
    bases = data.draw(st.lists(st.sampled_from([0, -3, 100, (1 << 63) - 9]), min_size=width, max_size=width))
    sizes = data.draw(st.lists(st.integers(2, 6), min_size=width, max_size=width))
    near = [st.integers(max(base - 2, -(1 << 63)), min(base + 7, (1 << 63) - 1)) | WORD for base in bases]
    one = st.tuples(*(st.tuples(word, st.booleans() if nullable else st.just(True)) for word in near))
    keys = data.draw(st.lists(one, max_size=20))
    after = run(dense(width, nullable), dense_memory(keys, bases, sizes))[1]
    columns = {}
    for row, key in enumerate(keys):
        inside = all(
            not ok or 0 <= word - base < size - 1
            for (word, ok), base, size in zip(key, bases, sizes, strict=True)
        )
        assert bool(after["outside"][row]) == (not inside)
        if inside:
            value = tuple(word if ok else None for word, ok in key)
            assert columns.setdefault(int(after["places"][row]), value) == value
            assert 0 <= after["places"][row] < np.prod(sizes)
            assert read_back(after, row, width) == value


def dense_memory(keys: list[Any], bases: list[int], sizes: list[int]) -> dict[str, Any]:
    rows = len(keys) + 1
    memory: dict[str, Any] = {
        "n": len(keys),
        "places": np.zeros(rows, np.int64),
        "outside": np.zeros(rows, np.uint8),
    }
    for place, (base, size) in enumerate(zip(bases, sizes, strict=True)):
        memory[numbered("key_base", place)], memory[numbered("key_size", place)] = base, size
        memory[numbered("in_words", place)] = np.array([*(key[place][0] for key in keys), 0], np.int64)
        memory[numbered("valid", place)] = np.array([*(key[place][1] for key in keys), 0], np.uint8)
        memory[numbered("back", place)] = np.zeros(rows, np.int64)
        memory[numbered("null", place)] = np.zeros(rows, np.uint8)
    return memory


def read_back(after: dict[str, Any], row: int, width: int) -> tuple[int | None, ...]:
    return tuple(
        None if after[numbered("null", place)][row] else int(after[numbered("back", place)][row])
        for place in range(width)
    )


# --- panes --------------------------------------------------------------------------------------------


WIDTH = 3
STATES = (count(), least(F64))


@cache
def slots() -> Kernel:
    k = KernelBuilder("slots")
    n, head = k.scalar("n"), k.buffer("head", I64)
    table = PaneSlots.declare(k, head, const(WIDTH, I64), STATES)
    wanted, out = k.buffer("wanted", I64), k.buffer("out", I64)
    with k.for_(0, n, "row") as row:

        def stop(row=row):
            k.store(head, STATUS, NEED_SLOTS)
            k.ret(row)

        k.store(out, row, table.find(k, k.var("pane", wanted[row]), stop))
    k.ret(n)
    return k.build()


@SMALL
@given(panes=st.lists(FEW, max_size=20), capacity=st.integers(1, 7), dirty=st.booleans())
def test_panes_take_slots_in_turn_until_there_are_none(panes: list[int], capacity: int, dirty: bool) -> None:
    memory = {
        "n": len(panes),
        "head": np.zeros(WORDS, np.int64),
        "state": np.full(8 * WIDTH, 7, np.int64),
        "state.1": np.full(8 * WIDTH, 7.5),
        "pane_dirty": int(dirty),
        "panes": np.zeros(8, np.int64),
        "pane_buckets": np.zeros(8, np.int32),
        "pane_mask": 7,
        "pane_capacity": capacity,
        "wanted": np.array([*panes, 0], np.int64),
        "out": np.zeros(len(panes) + 1, np.int64),
    }
    reached, after = run(slots(), memory)
    numbers = first_seen(panes)
    fits = next((row for row, number in enumerate(numbers) if number >= capacity), len(panes))
    assert reached == fits
    assert after["out"][:fits].tolist() == numbers[:fits]
    assert after["head"][STATUS] == (DONE if fits == len(panes) else NEED_SLOTS)
    taken = len(set(panes[:fits]))
    assert after["head"][SLOTS] == taken
    cleared = taken * WIDTH if dirty else 0
    for monoid, name, junk in zip(STATES, ("state", "state.1"), (7, 7.5), strict=True):
        expected = [monoid.states[0].identity] * cleared + [junk] * (8 * WIDTH - cleared)
        np.testing.assert_array_equal(
            after[name], expected, "slots that are taken are cleared, and no others"
        )
