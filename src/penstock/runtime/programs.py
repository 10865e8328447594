"""The interface between compiler and runtime: kernels as callables, and their layouts.

The runtime does not depend on queries. A program returns `fold(variant)` and compiles it on first use, so a run can
change its assumptions about keys, nulls and overflow while it is running.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.loop.abi import Binding, Output, PaneScratch
from penstock.loop.morsels import Morsels, Progress
from penstock.runtime.fragments import StateSpec
from penstock.types.time import Time

Call = Callable[[Mapping[str, Any]], int]  # arrays, addresses and numbers, by parameter name


class KernelCall(Protocol):
    """A callable kernel that can also iterate over morsels itself."""

    def __call__(self, values: Mapping[str, Any], /) -> int: ...

    def frame(self, values: Mapping[str, Any], /) -> Any:
        """The arguments, except the limits `lo` and `hi`, in the kernel's native form; valid while the arrays live."""

    def over(self, frame: Any, shares: Morsels, /) -> Progress:
        """Call the kernel for each morsel, from `lo` up to `hi`, until none is left or it stops; it may return earlier."""

    def together(self, frames: Sequence[Any], shares: Sequence[Morsels], /) -> list[Progress] | None:
        """Do the same for several frames in parallel, one thread each; None if the kernel cannot, or not yet."""


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


@dataclass(frozen=True, slots=True)
class Variant:
    """The assumptions of a kernel: the kind of key table, the nullable columns, the width of sums."""

    key_table: str
    nullable: frozenset[str]
    wide: bool


@dataclass(frozen=True)
class RowsCall:
    """A kernel over rows, and the bindings of its column parameters."""

    call: KernelCall
    bindings: tuple[Binding, ...]


@dataclass(frozen=True)
class OutputCall:
    """A kernel that writes columns, and the bindings of its parameters."""

    call: Call
    outputs: tuple[Output, ...]
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
class Texts:
    """Kernels that intern texts as codes: (large offsets, nullable) → kernel."""

    intern: Callable[[bool, bool], Call]


@dataclass(frozen=True)
class Key:
    """A grouping key: its type, and the batch column it is read from (None if it is computed)."""

    type: pa.DataType
    column: str | None
    text: bool

    @cached_property
    def whole(self) -> bool:
        """Whether it is an integer, or a code, that is read from a column."""
        fractions = pa.types.is_floating(self.type) or pa.types.is_decimal(self.type)
        return self.column is not None and (self.text or not fractions)


@dataclass(frozen=True)
class Grid:
    """Windows [start, start + size), start = offset + n * every."""

    size: int
    every: int
    offset: int


class WindowProgram(Protocol):
    """A compiled windowed aggregation."""

    time: Time
    grid: Grid
    carried: bool
    strict: bool
    keys: tuple[Key, ...]
    columns: tuple[str, ...]
    row_bytes: int | None
    interned: frozenset[str]
    texts: Texts
    schema: pa.Schema
    result: tuple[ResultColumn, ...]

    def prepare(self, batch: pa.RecordBatch, first_row: int, /) -> pa.RecordBatch:
        """Add the columns that kernels need and Arrow computes; an implied time is computed from the first row's number."""

    def layout(self, nullable: frozenset[str], wide: bool) -> tuple[StateSpec, ...]:
        """The states of a pane under an assumption about nulls and widths."""

    def sources(self, old: frozenset[str], new: frozenset[str]) -> Sequence[int]:
        """For each state of the new layout, the state of the old layout that it continues."""

    def key_may_be_null(self, nullable: frozenset[str]) -> bool:
        """Whether kernels include nulls when they hash keys."""

    def fold(self, variant: Variant) -> RowsCall: ...

    def emit(self, variant: Variant, several_panes: bool) -> OutputCall:
        """The kernel that merges panes into windows and writes results; `several_panes`: some window has more than one."""

    def absorb(self, nullable: frozenset[str], wide: bool) -> RowsCall:
        """The kernel that merges fragments into a table."""

    def blend(self, nullable: frozenset[str], wide: bool) -> RowsCall:
        """The kernel that merges a pane of another table with the same columns into a pane of this table."""

    def index(self, width: int) -> Call: ...


class RowsProgram(Protocol):
    """A compiled filter and projection."""

    time: Time
    interned: frozenset[str]
    texts: Texts
    schema: pa.Schema
    result: tuple[ResultColumn, ...]
    filters: bool

    def prepare(self, batch: pa.RecordBatch, first_row: int, /) -> pa.RecordBatch: ...

    def rows(self, nullable: frozenset[str]) -> OutputCall | None:
        """The kernel, or None if nothing is computed or filtered."""
