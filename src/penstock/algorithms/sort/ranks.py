"""Kernels that assign dense ranks after a sort: equal keys share a rank, and the smallest has rank 0."""

from __future__ import annotations

from penstock.algorithms.expressions.cells import is_nan
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import F64, I64, Bitcast, Kernel, Value, const, select

_NAN_BITS = 0x7FF8000000000000


def float_words() -> Kernel:
    """Write integers that order like the floats: all NaNs are one value and the largest, -0.0 equals 0.0.

    The bit patterns of non-negative floats are ordered already; those of negative floats are in reverse order.
    """
    k = KernelBuilder("float_words")
    values, words, rows = k.buffer("values", F64), k.buffer("words", I64), k.scalar("rows")
    with k.for_(0, rows, "i") as i:
        k.store(words, i, float_word(k, values[i]))
    k.ret(0)
    return k.build()


def float_word(k: KernelBuilder, value: Value) -> Value:
    """Return the order-preserving integer of a float."""
    value = k.var("value", value + 0.0)
    bits = k.var("bits", select(is_nan(value), const(_NAN_BITS, I64), Bitcast(value, I64)))
    return bits ^ ((bits >> 63) & ((1 << 63) - 1))


def assign_ranks() -> Kernel:
    """Write the rank of each row's key, and the first row of each rank; return the number of ranks."""
    k = KernelBuilder("assign_ranks")
    keys, order = k.buffer("keys", I64), k.buffer("sorted_order", I64)
    ranks, first, rows = k.buffer("ranks", I64), k.buffer("first", I64), k.scalar("rows")
    found, before = k.var("found", 0), k.var("before", 0)
    with k.for_(0, rows, "i") as i:
        row = k.var("row", order[i])
        key = k.var("key", keys[row])
        new = k.var("new", (i.eq(0) | key.ne(before)).to(I64))
        k.set(found, found + new)
        k.store(ranks, row, found - 1)
        with k.if_(new.ne(0)):
            k.store(first, found - 1, row)
        k.set(before, key)
    k.ret(found)
    return k.build()
