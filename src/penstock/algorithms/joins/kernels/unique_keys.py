"""The join against unique right keys: an array from code to right row replaces the hash table.

It applies if codes span a small range and right codes are unique, so each left row has at most one match.

    mark_singles   find_singles
"""

from __future__ import annotations

from penstock.algorithms.joins.kernels.key_words import CodeColumn, blocks
from penstock.loop.abi import JoinSpec
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I32, I64, U32, Kernel, const


def mark_singles(spec: JoinSpec) -> Kernel:
    """Write row number + 1, or 0 if there is no row, for the codes `from … to`. Return 1 if a code occurs twice."""
    k = KernelBuilder("mark_singles")
    column, singles = CodeColumn.declare(k, spec), k.buffer("singles", U32)
    low, high = k.scalar("from"), k.scalar("to")
    with k.for_(low, high, "place") as place:
        k.store(singles, place, const(0, U32))
    twice = k.var("twice", False, BOOL)
    with blocks(k, column.lo, column.hi) as (first, end):
        with k.for_(first, end, "row", scalar=True) as row:
            place = k.var("place", column.word(row).to(I64))
            with k.if_((place >= low) & (place < high)):
                k.set(twice, twice | singles[place].ne(0))
                k.store(singles, place, row.to(U32) + 1)
        with k.if_(twice):
            k.ret(1)
    k.ret(0)
    return k.build()


def find_singles(spec: JoinSpec, outer: bool = False) -> Kernel:
    """Write the pairs of the left rows `lo … hi` from position `lo` on, and return their end.

    If `outer`, unmatched left rows are paired with -1.
    """
    k = KernelBuilder("find_singles")
    column, singles = CodeColumn.declare(k, spec), k.buffer("singles", U32)
    own, other = k.buffer("own", I32), k.buffer("other", I32)
    at = k.var("at", column.lo)
    with column.rows() as (row, word):
        found = k.var("found", singles[word.to(I64)])
        k.store(own, at, row.to(I32))
        k.store(other, at, found.to(I32) - 1)
        k.set(at, at + (1 if outer else found.ne(0).to(I64)))
    k.ret(at)
    return k.build()
