"""What the runtime receives from the compiler: kernels as callables, and facts about their shapes.

The runtime never sees a query. A program answers `fold(variant)`, compiling it when it is new: that is
how a run changes its mind about keys, nulls and overflow while it is running.
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

Call = Callable[[Mapping[str, Any]], int]  # arrays, addresses and numbers, by parameter


class KernelCall(Protocol):
    """A kernel that can be called, and can go through rows by itself."""

    def __call__(self, values: Mapping[str, Any], /) -> int: ...

    def frame(self, values: Mapping[str, Any], /) -> Any:
        """What it is given, but for the limits `lo` and `hi`, in its own form: good for as long as the arrays are there."""

    def over(self, frame: Any, shares: Morsels, /) -> Progress:
        """Call it for share after share of rows, from `lo` up to `hi`, until none is left or it stops; or for some."""

    def together(self, frames: Sequence[Any], shares: Sequence[Morsels], /) -> list[Progress] | None:
        """Do the same for several frames at a time, each on a thread of its own; None if it cannot, or not yet."""


@dataclass(frozen=True, slots=True)
class BoundKernel:
    """A kernel and its arguments for one call. The frame holds addresses only; `given` keeps the arrays alive."""

    call: KernelCall
    frame: Any
    given: Mapping[str, Any]

    @classmethod
    def of(cls, call: KernelCall, given: Mapping[str, Any]) -> BoundKernel:
        """Bind a kernel to all of its arguments but the limits of rows."""
        return cls(call, call.frame(given), given)

    def over(self, shares: Morsels) -> Progress:
        """Call the kernel for share after share of rows, until none is left or it stops."""
        return self.call.over(self.frame, shares)


@dataclass(frozen=True, slots=True)
class Variant:
    """What a kernel may assume: how keys are found, which columns hold nulls, how wide sums are."""

    key_table: str
    nullable: frozenset[str]
    wide: bool


@dataclass(frozen=True)
class RowsCall:
    """A kernel over rows, and what fills its column parameters."""

    call: KernelCall
    bindings: tuple[Binding, ...]


@dataclass(frozen=True)
class OutputCall:
    """A kernel that writes columns, and what fills its parameters."""

    call: Call
    outputs: tuple[Output, ...]
    bindings: tuple[Binding, ...] = ()
    scratch: tuple[PaneScratch, ...] = ()
    written: tuple[
        tuple[str, np.dtype], ...
    ] = ()  # parameters that are columns of results, where all of them are


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """Where a result's column comes from.

    "start" or "end" of the window · "key", by its index · "row": the input's column `source` ·
    "computed" by the kernel.
    """

    name: str
    type: pa.DataType
    origin: str
    key: int = 0
    source: str = ""


@dataclass(frozen=True)
class Texts:
    """Kernels that turn texts into codes: (large offsets, nullable) → kernel."""

    intern: Callable[[bool, bool], Call]


@dataclass(frozen=True)
class Key:
    """A grouping key: its type, and the batch column it is read from (None when it is computed)."""

    type: pa.DataType
    column: str | None
    text: bool

    @cached_property
    def whole(self) -> bool:
        """Whether it is a whole number, or a code, that is read from a column."""
        fractions = pa.types.is_floating(self.type) or pa.types.is_decimal(self.type)
        return self.column is not None and (self.text or not fractions)


@dataclass(frozen=True)
class Grid:
    """Windows [start, start + size), start = offset + n * every."""

    size: int
    every: int
    offset: int


class WindowProgram(Protocol):
    """A windowed aggregation, ready to run."""

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
        """Add the columns that kernels need and Arrow computes; an implied time counts from the first row's number."""

    def layout(self, nullable: frozenset[str], wide: bool) -> tuple[StateSpec, ...]:
        """The states of a pane under an assumption."""

    def sources(self, old: frozenset[str], new: frozenset[str]) -> Sequence[int]:
        """For each state of the new layout, the state of the old one that it continues."""

    def key_may_be_null(self, nullable: frozenset[str]) -> bool:
        """Whether kernels consider nulls when they hash keys."""

    def fold(self, variant: Variant) -> RowsCall: ...

    def emit(self, variant: Variant, several_panes: bool) -> OutputCall:
        """Turn panes into windows and results; `several_panes`: some window has more than one."""

    def absorb(self, nullable: frozenset[str], wide: bool) -> RowsCall:
        """Merge fragments into a table."""

    def blend(self, nullable: frozenset[str], wide: bool) -> RowsCall:
        """Merge a pane of another table with the same columns into one of ours."""

    def index(self, width: int) -> Call: ...


class RowsProgram(Protocol):
    """A filter and computed columns, ready to run."""

    time: Time
    interned: frozenset[str]
    texts: Texts
    schema: pa.Schema
    result: tuple[ResultColumn, ...]
    filters: bool

    def prepare(self, batch: pa.RecordBatch, first_row: int, /) -> pa.RecordBatch: ...

    def rows(self, nullable: frozenset[str]) -> OutputCall | None:
        """The kernel, or None when nothing is computed or filtered."""
