"""The contract between the join kernels and the runtime that drives them.

A *code* is a 64-bit number that identifies a row's key: equal codes, equal keys. Kernels work on *words*,
code - least: a window with close codes is joined in 32 bits, or without hashing.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.loop.nodes import U32, U64, Type


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """The assumptions and outputs of a join kernel.

    `dense`: words are small enough to index arrays. `pairs`: output row numbers of both sides, not only their
    count. `shared`: several threads use one table at once. `routed`: rows carry their numbers.
    """

    wide: bool = True
    dense: bool = False
    pairs: bool = False
    shared: bool = False
    routed: bool = False

    @property
    def word(self) -> Type:
        """The machine type of a word."""
        return U64 if self.wide else U32


DIGIT_BITS = 8
"""Bits that one pass of the sort looks at: as many places to write to as the nearest cache has lines."""
MOST_SORTED_RUNS = 1024
"""Sorted runs that one multi-way merge takes: its tree lies on the stack."""
SPARE = 2
"""Places behind a table's own: one for the word whose mark is that of an empty slot, one for no word at all."""
