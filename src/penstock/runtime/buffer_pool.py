"""A pool of memory blocks for reuse by later queries.

Allocators return freed pages to the system after some milliseconds, and fresh pages cost more than most kernels
spend on them. The pool keeps blocks of the sizes that queries use repeatedly, up to MOST bytes.
"""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pyarrow as pa

SMALLEST, LARGEST = 1 << 18, 1 << 25  # bytes of a block: allocators reuse smaller ones; larger ones are freed
MOST_POOLED_BYTES = 1 << 26  # bytes of all pooled blocks
PAGE = 4096
# Arrays begin at different offsets of a page, APART bytes from one to the next: kernels that read several arrays in
# step then find them in different sets of the L1 cache, where a way predictor would confuse equal offsets.
APART = 25 * 64
_STEPS = cycle([APART * place % PAGE for place in range(64)])
# Blocks larger than the requested size by more than this factor are left for larger requests.
_LOOSEST = 2


class BufferPool:
    """Free blocks, oldest first.

    The garbage collector releases blocks: on any thread, inside any of these methods, and an interrupt may end a
    release at any point. So there is no lock that could stay locked, only operations that the interpreter runs atomically.
    """

    def __init__(self, most: int = MOST_POOLED_BYTES) -> None:
        self.most = most
        self._blocks: dict[int, pa.Buffer] = {}  # by address

    @property
    def held(self) -> int:
        """The number of bytes in the pool."""
        return sum([block.size for block in list(self._blocks.values())])

    def take(self, size: int) -> pa.Buffer:
        """Acquire a block of at least `size` bytes: the smallest that fits, or a new one."""
        # Not of items: their tuples may start the garbage collector, which gives blocks back meanwhile.
        waiting = list(self._blocks.values())
        fitting = [(block.size, block.address) for block in waiting if size <= block.size <= _LOOSEST * size]
        if fitting:
            found = self._blocks.pop(min(fitting)[1], None)
            if found is not None:  # None if another thread took it first
                return found
        return pa.allocate_buffer(size)

    def give(self, block: pa.Buffer) -> None:
        """Release a block into the pool; evict the oldest blocks while the pool is too large."""
        self._blocks[block.address] = block
        excess = self.held - self.most
        for oldest in list(self._blocks.values()) if excess > 0 else ():
            if excess <= 0:
                return
            self._blocks.pop(oldest.address, None)
            excess -= oldest.size


class _Lease:
    """The owner of an array's block; its deletion releases the block into the pool."""

    __slots__ = ("__array_interface__", "block", "pool")

    def __init__(self, pool: BufferPool, size: int) -> None:
        self.pool, self.block = pool, pool.take(size + PAGE)
        self.__array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (self.block.address + next(_STEPS), False),
            "version": 3,
        }

    def __del__(self) -> None:
        self.pool.give(self.block)


_POOL = BufferPool()


def block_of(size: int, pool: BufferPool = _POOL) -> np.ndarray:
    """Allocate `size` bytes with undefined contents, in a block that returns to the pool with its last view."""
    return np.asarray(_Lease(pool, size))
