"""Put pairs of rows in order: a counting sort by the row of one side, which keeps what was in order before."""

from __future__ import annotations

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I64, U32, Kernel, const


def pairs_ordered() -> Kernel:
    """Return 1 if pairs ascend by (first, second), else 0."""
    k = KernelBuilder("pairs_ordered")
    first, second, pairs = k.buffer("first", I64), k.buffer("second", I64), k.scalar("pairs")
    falls = k.var("falls", const(False, BOOL))
    with k.for_(1, pairs) as i:
        same, less = first[i - 1].eq(first[i]), first[i] < first[i - 1]
        k.set(falls, falls | less | (same & (second[i] < second[i - 1])))
    k.ret((~falls).to(I64))
    return k.build()


def order_pairs() -> Kernel:
    """Carry pairs to where the row of `first` says; `counts` has a zero for each of its rows."""
    k = KernelBuilder("order_pairs")
    first, second, pairs = k.buffer("first", I64), k.buffer("second", I64), k.scalar("pairs")
    to_first, to_second = k.buffer("to_first", I64), k.buffer("to_second", I64)
    counts, rows = k.buffer("counts", U32), k.scalar("rows")
    with k.for_(0, pairs) as i:
        cell = k.var("cell", first[i])
        k.store(counts, cell, counts[cell] + 1)
    total = k.var("total", const(0, U32))
    with k.for_(0, rows, "r") as r:
        here = k.var("here", counts[r])
        k.store(counts, r, total)
        k.set(total, total + here)
    with k.for_(0, pairs) as i:
        row = k.var("row", first[i])
        at = k.var("at", counts[row])
        k.store(to_first, at.to(I64), row)
        k.store(to_second, at.to(I64), second[i])
        k.store(counts, row, at + 1)
    k.ret(pairs)
    return k.build()
