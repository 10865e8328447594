"""Memory that is used again: blocks that nobody holds any more wait here for the next query.

Allocators give pages back to the system some milliseconds after they were freed, and pages from the system cost more
than most kernels do with them. So blocks of a size that queries use again and again are kept, up to some megabytes.
"""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pyarrow as pa

SMALLEST, LARGEST = 1 << 18, 1 << 25  # bytes of a block: smaller ones allocators keep, larger ones we do not
MOST = 1 << 26  # bytes that wait, of all blocks together
PAGE = 4096
# Where arrays begin in a page, one after the other: kernels that go through several side by side find them in different sets of
# the nearest cache, in which processors that guess the way from the address would take one for another.
APART = 25 * 64
_STEPS = cycle([APART * place % PAGE for place in range(64)])
# A block that is larger than what is asked for by more than this would be missed elsewhere.
_LOOSEST = 2


class BufferPool:
    """Blocks that wait, the one that has waited longest first.

    Blocks come back when the garbage collector says so: on any thread, while it is in any of these functions, and an interrupt may
    end that wherever it is. So there is no lock that could stay closed, but only steps that the interpreter does in one.
    """

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._blocks: dict[int, pa.Buffer] = {}  # by where they lie

    @property
    def held(self) -> int:
        """How many bytes wait."""
        return sum([block.size for block in list(self._blocks.values())])

    def take(self, size: int) -> pa.Buffer:
        """Give a block of at least so many bytes: the smallest that waits, or a new one."""
        waiting = list(self._blocks.items())
        fitting = [(block.size, place) for place, block in waiting if size <= block.size <= _LOOSEST * size]
        if fitting:
            found = self._blocks.pop(min(fitting)[1], None)
            if found is not None:  # or else another thread was faster
                return found
        return pa.allocate_buffer(size)

    def give(self, block: pa.Buffer) -> None:
        """Let a block wait, and let go of those that have waited longest if it is too much."""
        self._blocks[block.address] = block
        excess = self.held - self.most
        for place, oldest in list(self._blocks.items()):
            if excess <= 0:
                return
            self._blocks.pop(place, None)
            excess -= oldest.size


class _Lease:
    """What an array over a block keeps alive; when it goes, the block may be used again."""

    __slots__ = ("__array_interface__", "block", "shelf")

    def __init__(self, shelf: BufferPool, size: int) -> None:
        self.shelf, self.block = shelf, shelf.take(size + PAGE)
        self.__array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (self.block.address + next(_STEPS), False),
            "version": 3,
        }

    def __del__(self) -> None:
        self.shelf.give(self.block)


_POOL = BufferPool()


def block_of(size: int, shelf: BufferPool = _POOL) -> np.ndarray:
    """So many bytes, their contents undefined, in a block that is kept for others when no array is left that views it."""
    return np.asarray(_Lease(shelf, size))
