"""The memory of a dense kernel: block-sized arrays of intermediate results, reused across objects."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import I64 as INDEX
from penstock.loop.nodes import Buffer, Operand, Type, Value, as_value


@dataclass(frozen=True, slots=True)
class Array:
    """Entries of an intermediate result around a block; entry 0 is the block's first and lies at `head`."""

    buffer: Buffer
    head: int

    def __getitem__(self, entry: Operand) -> Value:
        return self.buffer[self.place(entry)]

    def place(self, entry: Operand) -> Value:
        return as_value(entry, INDEX) + self.head if self.head else as_value(entry, INDEX)


@dataclass(frozen=True, slots=True)
class ResultPlacement(Array):
    """Entries of the final result, whose origin lies before the block."""

    origin: Value

    def place(self, entry: Operand) -> Value:
        return as_value(entry, INDEX) + self.origin


@dataclass
class Pool:
    """A pool of scratch buffers; reuse keeps the working set in the cache."""

    k: KernelBuilder
    sizes: dict[str, int] = field(default_factory=dict)
    _free: list[Buffer] = field(default_factory=list)

    def take(self, type: Type, size: int, head: int) -> Array:
        """Acquire an array with undefined contents."""
        found = next(
            (buffer for buffer in reversed(self._free) if buffer.type == type), None
        )  # most recent: hot
        if found is None:
            found = self.k.buffer("scratch", type)
        else:
            self._free.remove(found)
        self.sizes[found.name] = max(self.sizes.get(found.name, 0), size)
        return Array(found, head)

    def give_back(self, array: Array) -> None:
        self._free.append(array.buffer)
