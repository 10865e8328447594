"""The interface between compiler and runtime: kernels as callables, their layouts, and their variants.

The runtime does not depend on queries. `runtime/kernels.py` gives the kernels for what the rows have shown, compiled
on first use, so a run can change its assumptions about keys, nulls and overflow while it is running.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from penstock.loop.abi import Binding, OutputColumn, PaneScratch
from penstock.loop.numbers import Morsels, Progress

Call = Callable[[Mapping[str, Any]], int]  # arrays, addresses and numbers, by parameter name


@dataclass(frozen=True, slots=True, eq=False)
class StandingFrame:
    """The argument words of a kernel, their address, and the place of each parameter: calls overwrite a few words.

    Words hold addresses only; the owner of a frame keeps the arrays alive.
    """

    words: array[int]
    start: int
    places: Mapping[str, int]


class KernelCall(Protocol):
    """A callable kernel that can also iterate over morsels itself."""

    def __call__(self, values: Mapping[str, Any], /) -> int: ...

    def frame(self, values: Mapping[str, Any], /) -> Any:
        """The arguments, except the limits `lo` and `hi`, in the kernel's native form; valid while the arrays live."""

    def standing(self, values: Mapping[str, Any], /) -> StandingFrame | None:
        """All arguments as words that calls overwrite; None if the kernel is not native."""

    def run(self, start: int, /) -> int:
        """Call the kernel with the words at an address."""

    def prepare(self) -> None:
        """Compile at the best level now, so that the first call does not wait."""

    def pinned(self) -> tuple[int, object, bool] | None:
        """The address of the code now in use, what keeps it in memory, and whether it is the last; None if not native."""

    def spend(self, seconds: float, /) -> None:
        """Count the time that native code took to call the kernel by its address."""

    def over(self, frame: Any, shares: Morsels, /) -> Progress:
        """Call the kernel for each morsel, from `lo` up to `hi`, until none is left or it stops; it may return earlier."""

    def together(self, frames: Sequence[Any], shares: Sequence[Morsels], /) -> list[Progress] | None:
        """Do the same for several frames in parallel, one thread each; None if the kernel cannot, or not yet."""

    def apart(self, frames: Sequence[Any], shares: Sequence[Morsels], /) -> list[Progress]:
        """Process the i-th list of morsels with the i-th frame, in parallel where the kernel can."""


@dataclass(frozen=True, slots=True)
class BoundKernel:
    """A kernel bound to its arguments for one call. The frame holds addresses only; `given` keeps the arrays alive."""

    call: KernelCall
    frame: Any
    given: Mapping[str, Any]

    @classmethod
    def of(cls, call: KernelCall, given: Mapping[str, Any]) -> BoundKernel:
        """Bind a kernel to all of its arguments except the row limits."""
        return cls(call, call.frame(given), given)

    def over(self, shares: Morsels) -> Progress:
        """Call the kernel for each morsel until none is left or it stops."""
        return self.call.over(self.frame, shares)


@dataclass(frozen=True)
class RowsCall:
    """A kernel over rows, and the bindings of its column parameters."""

    call: KernelCall
    bindings: tuple[Binding, ...]


@dataclass(frozen=True)
class OutputCall:
    """A kernel that writes columns, and the bindings of its parameters."""

    call: KernelCall
    outputs: tuple[OutputColumn, ...]
    bindings: tuple[Binding, ...] = ()
    scratch: tuple[PaneScratch, ...] = ()
    written: tuple[
        tuple[str, np.dtype], ...
    ] = ()  # the parameters that are result columns, if all of them are


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """The origin of a result column.

    "start" or "end" of the window · "key", by its index · "row": the input column `source` ·
    "computed" by the kernel.
    """

    name: str
    type: pa.DataType
    origin: str
    key: int = 0
    source: str = ""


@dataclass(frozen=True)
class TextKernels:
    """Kernels that intern texts as codes: (large offsets, nullable, codes of 64 bits) → kernel."""

    intern: Callable[..., Call]


Seen = TypeVar("Seen", bound=Hashable)
Made = TypeVar("Made")


class Variants(Generic[Seen, Made]):
    """The variants of one node by what its rows have shown, each made once.

    `make` specialises the node and returns its kernels, which are lowered and compiled on first use. Two threads may
    both make a variant; the two are equal.

    >>> squares = Variants(lambda number: number * number)
    >>> squares.get(3)
    9
    """

    def __init__(self, make: Callable[[Seen], Made]) -> None:
        self._make = make
        self._made: dict[Seen, Made] = {}
        self._preparing: dict[Hashable, bool] = {}  # whether it is done

    def get(self, seen: Seen) -> Made:
        """Return the variant for what the rows have shown so far."""
        found = self._made.get(seen)
        if found is None:
            found = self._made[seen] = self._make(seen)
        return found

    def ready(
        self, key: Hashable, prepare: Callable[[], object], start: Callable[[Callable[[], None]], None]
    ) -> bool:
        """Whether the kernels under a key are compiled; the first call has `start` prepare them, in the background."""
        if key not in self._preparing:
            self._preparing[key] = False
            start(lambda: self._prepare(key, prepare))
        return self._preparing[key]

    def _prepare(self, key: Hashable, prepare: Callable[[], object]) -> None:
        prepare()
        self._preparing[key] = True
