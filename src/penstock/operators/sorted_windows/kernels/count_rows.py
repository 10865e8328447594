"""The kernel of windows of rows that read their rows: each key has a list of its rows, from the newest to the oldest.

Rows come in order. The row that fills a window writes the places of the window's rows; the row that completes a stride
marks those that no later window holds. So each step is a row that comes, one of a complete window, or one that leaves.
"""

from __future__ import annotations

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I64, U8, Kernel, Value, const, select

# Words of `marks`: the next row, the places written, and the rows that no window holds.
NEXT, MADE, DEAD = range(3)
NO_ROOM = 1  # returned when there is no room for a window


def count_rows() -> Kernel:
    """Enter rows into the lists of their keys; if it `writes`, write the places of the rows of windows that are full.

    `reach` is the size of a window, or of a stride if that is larger: the oldest `every` of so many rows leave. `seen[key]`
    counts the rows since the first one of the oldest stride.
    """
    k = KernelBuilder("count_rows")
    marks, keys, links = k.buffer("marks", I64), k.buffer("keys", I64), k.buffer("links", I64)
    gone, seen, last = k.buffer("gone", U8), k.buffer("seen", I64), k.buffer("last", I64)
    out, capacity = k.buffer("out", I64), k.scalar("capacity")
    size, every, reach = k.scalar("size"), k.scalar("every"), k.scalar("reach")
    writes, made = k.scalar("writes", BOOL), k.var("made", marks[MADE])

    def leave(row: Value, status: int) -> None:
        k.store(marks, NEXT, row)
        k.store(marks, MADE, made)
        k.ret(status)

    with k.for_(marks[NEXT], k.scalar("end"), "row", scalar=True) as row:
        key = k.var("key", keys[row])
        rows = k.var("rows", seen[key] + 1)
        full = k.var("full", writes & rows.eq(size), BOOL)
        with k.if_(full & (made + size > capacity)):
            leave(row, NO_ROOM)
        k.store(links, row, last[key])
        k.store(last, key, row)
        leaves = k.var("leaves", rows.eq(reach), BOOL)
        k.store(seen, key, select(leaves, reach - every, rows))
        at, left = k.var("at", row), k.var("left", const(0, I64))
        with k.if_(full):
            k.set(left, size)
            with k.while_(left > 0):
                k.set(left, left - 1)
                k.store(out, made + left, at)
                k.set(at, links[at])
            k.set(made, made + size)
        with k.if_(leaves):
            k.set(at, row)
            k.set(left, reach)
            with k.while_(left > 0):
                with k.if_(left <= every):
                    k.store(gone, at, const(1, U8))
                k.set(at, links[at])
                k.set(left, left - 1)
            k.store(marks, DEAD, marks[DEAD] + every)
    k.store(marks, MADE, made)
    k.ret(0)
    return k.build()
