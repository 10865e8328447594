"""Sort row numbers by 64-bit keys, digit by digit, the lowest first: equal keys keep their order.

Keys move along with the row numbers, so that every pass reads from one end to the other. Where both fit one word
of 64 bits together, they move as one: the key above, the row number below.
"""

from __future__ import annotations

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, U64, Kernel

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


def pack_words() -> Kernel:
    """Write words of (key - least), without its lowest `drop` bits, above the row number in `bits` bits."""
    k = KernelBuilder("pack_words")
    keys, words, rows = k.buffer("keys", I64), k.buffer("words", I64), k.scalar("rows")
    least, drop, bits = k.scalar("least"), k.scalar("drop", U64), k.scalar("bits", U64)
    with k.for_(0, rows, "i") as i:
        key = ((keys[i] - least).to(U64) >> drop) << bits
        k.store(words, i, (key | i.to(U64)).to(I64))
    k.ret(0)
    return k.build()


def radix_words() -> Kernel:
    """Reorder words by the digit at `shift`."""
    k = KernelBuilder("radix_words")
    words, ordered = k.buffer("words", I64), k.buffer("ordered", I64)
    rows, shift = k.scalar("rows"), k.scalar("shift")
    counts = k.local("counts", I64, DIGITS)
    with k.for_(0, DIGITS, "d") as d:
        k.store(counts, d, 0)
    with k.for_(0, rows, "i") as i:
        digit = k.var("digit", (words[i] >> shift) & (DIGITS - 1))
        k.store(counts, digit, counts[digit] + 1)
    total = k.var("total", 0)
    with k.for_(0, DIGITS, "d") as d:
        here = k.var("here", counts[d])
        k.store(counts, d, total)
        k.set(total, total + here)
    with k.for_(0, rows, "i") as i:
        word = k.var("word", words[i])
        digit = k.var("digit", (word >> shift) & (DIGITS - 1))
        place = k.var("place", counts[digit])
        k.store(ordered, place, word)
        k.store(counts, digit, place + 1)
    k.ret(0)
    return k.build()
