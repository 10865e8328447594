"""The kernel that numbers keys outside the fold: each distinct tuple of words gets the next number."""

from __future__ import annotations

from penstock.algorithms.expressions.cells import Cell
from penstock.algorithms.hash_table.group_kernels import HashGroups
from penstock.loop.abi import DONE, KEYS, NEED_KEYS, STATUS
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64, Kernel


def index_kernel(width: int) -> Kernel:
    """Write the number of each row's key to `out`, and insert new keys.

    Buffers hold the words and null masks of `width` components. The kernel stops before the table could overflow.
    """
    k = KernelBuilder("index")
    lo, hi, capacity = k.scalar("lo"), k.scalar("hi"), k.scalar("key_capacity")
    head = k.buffer("head", I64)
    table = HashGroups.declare(k, head, width)
    inputs = [k.buffer("in_words", I64) for _ in range(width)]
    nulls = k.buffer("in_nulls", I64)
    out = k.buffer("out", I64)
    with k.for_(lo, hi, "row") as row:
        with k.if_(head[KEYS] >= capacity):
            k.store(head, STATUS, NEED_KEYS)
            k.ret(row)
        cells = [Cell(words[row], ((nulls[row] >> c) & 1).eq(0)) for c, words in enumerate(inputs)]
        place, _ = table.locate(k, cells)
        k.store(out, row, place)
    k.store(head, STATUS, DONE)
    k.ret(hi)
    return k.build()
