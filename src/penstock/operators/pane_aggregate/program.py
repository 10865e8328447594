"""The compiled form of a windowed aggregation, as the operator uses it: kernels by variant, and their layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import pyarrow as pa

from penstock.algorithms.window_grid import Grid
from penstock.loop.nodes import Type
from penstock.runtime.kernels import Call, OutputCall, ResultColumn, RowsCall, Texts
from penstock.types.time import Time


@dataclass(frozen=True)
class StateSpec:
    """One state array: its type, its initial value, and whether its sum is guarded against overflow.

    `text` names the column whose interned codes it holds.
    """

    type: Type
    identity: float
    guarded: bool = False
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """The assumptions of a kernel: the kind of key table, the nullable columns, the width of sums."""

    key_table: str
    nullable: frozenset[str]
    wide: bool


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
