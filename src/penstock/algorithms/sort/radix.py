"""Stable LSD radix sort of row numbers by 64-bit keys.

Keys move with the row numbers, so every pass reads sequentially. If both fit into one 64-bit word they move as one,
with the key above the row number.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I64, U64, Buffer, Kernel, Value, maximum

DIGIT_BITS = 8
DIGITS = 1 << DIGIT_BITS


def radix_pass() -> Kernel:
    """Reorder keys and rows by one digit of (key - least), the one at `shift`."""
    k = KernelBuilder("radix_pass")
    keys, order = k.buffer("keys", I64), k.buffer("order", I64)
    sorted_keys, sorted_order = k.buffer("sorted_keys", I64), k.buffer("sorted_order", I64)
    counts, rows = k.buffer("counts", I64), k.scalar("rows")
    least, shift = k.scalar("least"), k.scalar("shift")
    with k.for_(0, DIGITS, "d") as d:
        k.store(counts, d, 0)
    with k.for_(0, rows, "i") as i:
        digit = k.var("digit", ((keys[i] - least) >> shift) & (DIGITS - 1))
        k.store(counts, digit, counts[digit] + 1)
    total = k.var("total", 0)
    with k.for_(0, DIGITS, "d") as d:
        here = k.var("here", counts[d])
        k.store(counts, d, total)
        k.set(total, total + here)
    with k.for_(0, rows, "i") as i:
        key = k.var("key", keys[i])
        digit = k.var("digit", ((key - least) >> shift) & (DIGITS - 1))
        place = k.var("place", counts[digit])
        k.store(sorted_keys, place, key)
        k.store(sorted_order, place, order[i])
        k.store(counts, digit, place + 1)
    k.ret(0)
    return k.build()


def sort_words() -> Kernel:
    """Write row numbers in key order to `words`. Return 1, or 0 if the sort failed.

    A word is (key - least) without its lowest `drop` bits, above the row number in `bits` bits. The radix sort uses the
    bits from `low` to `high`, two digits at a time. Insertion sort orders the few words that differ only below; it
    fails after `patience` steps. The sort also fails if keys that differ only in the dropped bits are out of order.
    """
    k = KernelBuilder("sort_words")
    keys, rows, mask = k.buffer("keys", I64), k.scalar("rows"), k.scalar("mask")
    words, spare = k.buffer("words", I64), k.buffer("spare", I64)
    low, high, patience = k.scalar("low"), k.scalar("high"), k.scalar("patience")
    _pack(k, keys, words, rows)
    shift = k.var("shift", low)
    counts = k.local("low_counts", I64, DIGITS), k.local("high_counts", I64, DIGITS)
    with k.while_(shift < high):
        _count_digits(k, words, rows, shift, counts)
        _carry_by_digit(k, words, spare, rows, lambda word: word >> shift, counts[0])
        _carry_by_digit(k, spare, words, rows, lambda word: (word >> shift) >> DIGIT_BITS, counts[1])
        k.set(shift, shift + 2 * DIGIT_BITS)
    found = settled(k, words, rows, patience)
    fallen = _unpacked(k, words, keys, rows, mask)
    k.ret((found & ~fallen).to(I64))
    return k.build()


def _pack(k: KernelBuilder, keys: Buffer, words: Buffer, rows: Value) -> None:
    least, drop, bits = k.scalar("least"), k.scalar("drop", U64), k.scalar("bits", U64)
    with k.for_(0, rows, "i") as i:
        key = ((keys[i] - least).to(U64) >> drop) << bits
        k.store(words, i, (key | i.to(U64)).to(I64))


def _count_digits(
    k: KernelBuilder, words: Buffer, rows: Value, shift: Value, counts: tuple[Buffer, Buffer]
) -> None:
    """Compute the start of each digit's words, for two digits in one pass."""
    with k.for_(0, DIGITS, "d") as d:
        for count in counts:
            k.store(count, d, 0)
    with k.for_(0, rows, "i") as i:
        word = k.var("word", words[i] >> shift)
        for place, count in enumerate(counts):
            digit = k.var("digit", (word >> (place * DIGIT_BITS)) & (DIGITS - 1))
            k.store(count, digit, count[digit] + 1)
    totals = [k.var("total", 0) for _ in counts]
    with k.for_(0, DIGITS, "d") as d:
        for total, count in zip(totals, counts, strict=True):
            here = k.var("here", count[d])
            k.store(count, d, total)
            k.set(total, total + here)


def _carry_by_digit(
    k: KernelBuilder,
    source: Buffer,
    target: Buffer,
    rows: Value,
    shifted: Callable[[Value], Value],
    places: Buffer,
) -> None:
    with k.for_(0, rows, "i") as i:
        word = k.var("word", source[i])
        digit = k.var("digit", shifted(word) & (DIGITS - 1))
        place = k.var("place", places[digit])
        k.store(target, place, word)
        k.store(places, digit, place + 1)


def settled(k: KernelBuilder, words: Buffer, rows: Value, patience: Value) -> Value:
    """Insertion-sort nearly sorted words; return whether `patience` steps were enough."""
    i, last, left = k.var("i", 1), k.var("last", words[0]), k.var("left", patience)
    with k.while_((i < rows) & (left >= 0)):
        word = k.var("word", words[i])
        with k.if_(word < last):
            place = k.var("place", i)
            with k.while_((place > 0) & (words[maximum(place - 1, 0)] > word)):
                k.store(words, place, words[place - 1])
                k.set(place, place - 1)
            k.store(words, place, word)
            k.set(left, left - (i - place))
        with k.else_():
            k.set(last, word)
        k.set(i, i + 1)
    return k.var("settled", left >= 0)


def _unpacked(k: KernelBuilder, words: Buffer, keys: Buffer, rows: Value, mask: Value) -> Value:
    """Reduce each word to its row number; return whether keys are out of order."""
    fallen, before = k.var("fallen", False, BOOL), k.var("before", keys[words[0] & mask])
    with k.for_(0, rows, "i") as i:
        row = k.var("row", words[i] & mask)
        key = k.var("key", keys[row])
        k.set(fallen, fallen | (key < before))
        k.set(before, key)
        k.store(words, i, row)
    return fallen
