"""The kernel that ranks floats: each row's position in sorted order, for one block of a sliding median.

A word packs the high bits of a float's sort key above the row number. Keys are shifted until the largest fills its
word, so that the highest bits distinguish them. Words are radix-sorted by their highest 32 bits; insertion sort orders
the few words that are equal there.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.algorithms.sort.radix import DIGIT_BITS, DIGITS, settled
from penstock.algorithms.sort.ranks import float_word
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import (
    BOOL,
    F64,
    I32,
    I64,
    U64,
    Bitcast,
    Buffer,
    Kernel,
    Unary,
    Value,
    Var,
    const,
    maximum,
    minimum,
)

_SHIFTS = tuple(range(32, 64, DIGIT_BITS))


def place_floats() -> Kernel:
    """Write each row's rank to `places`, and the sorted values. Return 1, or 0 if the sort failed.

    Row numbers take `bits` bits. The sort fails if insertion takes more than `patience` steps, or if keys that differ
    only in the dropped bits are out of order.
    """
    k = KernelBuilder("place_floats")
    values, rows, bits = k.buffer("values", F64), k.scalar("rows"), k.scalar("bits", U64)
    words, spare = k.buffer("words", U64), k.buffer("spare", U64)
    mask = k.var("mask", (const(1, U64) << bits) - const(1, U64))
    counts = [k.local("counts", I32, DIGITS) for _ in _SHIFTS]
    _pack(k, values, words, rows, mask)
    _count(k, words, rows, counts)
    for shift, count in zip(_SHIFTS, counts, strict=True):
        _carry(k, words, spare, rows, shift, count)
        words, spare = spare, words
    found = settled(k, words, rows, k.scalar("patience"))
    fallen = _placed(k, values, words, rows, mask)
    k.ret((found & ~fallen).to(I64))
    return k.build()


def _pack(k: KernelBuilder, values: Buffer, words: Buffer, rows: Value, mask: Value) -> None:
    first = k.var("first", float_word(k, values[0]))
    least, most = k.var("least", first), k.var("most", first)
    with k.for_(0, rows, "i") as i:
        key = k.var("key", float_word(k, values[i]))
        k.store(words, i, Bitcast(key, U64))
        k.set(least, minimum(least, key))
        k.set(most, maximum(most, key))
    lead = k.var("lead", Unary("clz", Bitcast(most - least, U64) | mask))
    with k.for_(0, rows, "i") as i:
        spread = (words[i] - Bitcast(least, U64)) << lead
        k.store(words, i, (spread & ~mask) | Bitcast(i, U64))


def _count(k: KernelBuilder, words: Buffer, rows: Value, counts: Sequence[Buffer]) -> None:
    """Compute the start of each digit's words, for all digits in one pass."""
    for count in counts:
        with k.for_(0, DIGITS, "d") as d:
            k.store(count, d, 0)
    with k.for_(0, rows, "i") as i:
        word = k.var("word", words[i])
        for shift, count in zip(_SHIFTS, counts, strict=True):
            digit = _digit(k, word, shift)
            k.store(count, digit, count[digit] + 1)
    for count in counts:
        total = k.var("total", 0, I32)
        with k.for_(0, DIGITS, "d") as d:
            here = k.var("here", count[d])
            k.store(count, d, total)
            k.set(total, total + here)


def _carry(k: KernelBuilder, source: Buffer, target: Buffer, rows: Value, shift: int, places: Buffer) -> None:
    with k.for_(0, rows, "i") as i:
        word = k.var("word", source[i])
        digit = _digit(k, word, shift)
        place = k.var("place", places[digit])
        k.store(target, place.to(I64), word)
        k.store(places, digit, place + 1)


def _placed(k: KernelBuilder, values: Buffer, words: Buffer, rows: Value, mask: Value) -> Value:
    """Write the ranks and the sorted values; return whether any value is out of order."""
    places, in_order = k.buffer("places", I32), k.buffer("in_order", F64)
    fallen = k.var("fallen", False, BOOL)
    before = k.var("before", const(-(1 << 63), I64))
    with k.for_(0, rows, "i") as i:
        row = k.var("row", Bitcast(words[i] & mask, I64))
        value = k.var("value", values[row])
        k.store(places, row, i.to(I32))
        k.store(in_order, i, value)
        key = k.var("key", float_word(k, value))
        k.set(fallen, fallen | (key < before))
        k.set(before, key)
    return fallen


def _digit(k: KernelBuilder, word: Value, shift: int) -> Var:
    return k.var("digit", Bitcast((word >> const(shift, U64)) & const(DIGITS - 1, U64), I64))
