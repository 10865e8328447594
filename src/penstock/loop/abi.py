"""The contract between kernels and the runtime: shared words, stop reasons, and the contents of parameters.

A kernel never allocates. When a table is too small or an assumption fails, it stores the reason in
`head[STATUS]` and returns the row it has reached: the rows before it are applied, those from it on are not,
and none is applied in part. The runtime enlarges the table (or compiles another variant) and calls again from
there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from penstock.loop.nodes import U32, U64, Type

STATUS, KEYS, SLOTS, ACCEPTED, FILTERED, ERRORS, OUTPUT, OTHER = range(8)  # OTHER: a join's second input
WORDS = 8
PUSHED, CUT, ENTERED, LEFT = range(4)  # the places that merging the panes of sliding windows has reached

DONE = 0
NEED_SLOTS = 1
NEED_KEYS = 2
NEED_WIDE = 3
NEED_OUTPUT = 4

LANES = 8  # rows per step of the selection loop, and SIMD lanes of a float reduction


@dataclass(frozen=True, slots=True)
class Binding:
    """The contents of one parameter: `role` of `column`.

    values · bits (packed booleans) · validity (packed) · shift (bit offset of the packed buffers)
    offsets · bytes · size (of plain texts) · codes (interned texts, -1 null)
    literal (the bytes of `text`) · code (the interned code of `text`)
    """

    parameter: str
    column: str
    role: str
    text: str | None = None


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """The parameters of a computed column: its values, and its validity bytes (None: no nulls).

    `text` names the column whose interned codes the values are.
    """

    name: str
    type: Type
    values: str
    valid: str | None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Scratch:
    """A scratch buffer of a kernel: `size` cells, whose contents are valid for one call."""

    parameter: str
    type: Type
    size: int


@dataclass(frozen=True, slots=True)
class PaneScratch:
    """Memory that persists across calls: one row of cells, or (`deep`) one more than a window has panes."""

    parameter: str
    type: Type
    deep: bool


@dataclass(frozen=True, slots=True)
class PastResults:
    """Past results that a kernel reads: the first `kept` cells persist across calls; all start as `initial`."""

    values: str
    valid: str
    type: Type
    size: int
    kept: int
    initial: float


@cache
def numbered(hint: str, place: int) -> str:
    """The name a builder gives the parameter declared `place`-th under a hint."""
    return hint if place == 0 else f"{hint}.{place}"


@cache
def positions_table() -> npt.NDArray[np.uint8]:
    """For each 8-bit mask, the positions of its set bits, in order: 256 rows of 8 bytes."""
    bits = (np.arange(256)[:, None] >> np.arange(LANES)) & 1
    order = np.argsort(1 - bits, axis=1, kind="stable")
    return np.where(np.arange(LANES) < bits.sum(axis=1)[:, None], order, 0).astype(np.uint8).ravel()


# --- The contract between the join kernels and the runtime that drives them.
#
# A *code* is a 64-bit number that identifies a row's key: equal codes, equal keys. Kernels work on *words*,
# code - least: a window with close codes is joined in 32 bits, or without hashing.


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
