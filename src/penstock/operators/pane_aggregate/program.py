"""The compiled form of a windowed aggregation, as the operator uses it: kernels by variant, and their layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import pyarrow as pa

from penstock.algorithms.window_grid import Grid
from penstock.loop.nodes import Type
from penstock.physical.nodes import Node
from penstock.physical.order_conjuncts import ConjunctCost
from penstock.physical.profile import ProfileLayout
from penstock.physical.specialise import PaneProfile
from penstock.runtime.kernels import Call, OutputCall, ResultColumn, RowsCall, TextKernels, Variants
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


@dataclass(frozen=True)
class KeySpec:
    """A grouping key: its type, and the batch column it is read from (None if it is computed)."""

    type: pa.DataType
    column: str | None
    text: bool

    @cached_property
    def whole(self) -> bool:
        """Whether it is an integer, or a code, that is read from a column."""
        fractions = pa.types.is_floating(self.type) or pa.types.is_decimal(self.type)
        return self.column is not None and (self.text or not fractions)


class PaneKernels(Protocol):
    """The kernels of one variant, each compiled on first use."""

    @property
    def fold(self) -> RowsCall: ...

    @property
    def instrumented_fold(self) -> RowsCall:
        """The fold kernel that also counts what rows show."""

    @property
    def merge_fragments_into(self) -> RowsCall:
        """The kernel that merges fragments into a table."""

    @property
    def merge_pane(self) -> RowsCall:
        """The kernel that merges a pane of another table with the same columns into a pane of this table."""

    def emit(self, several_panes: bool) -> OutputCall:
        """The kernel that merges panes into windows and writes results; `several_panes`: some window has more than one."""


class WindowProgram(Protocol):
    """A compiled windowed aggregation."""

    time: Time
    grid: Grid
    carried: bool
    strict: bool
    keys: tuple[KeySpec, ...]
    may_be_dense: bool  # the plan's key table, until the keys seen lie too far apart
    columns: tuple[str, ...]
    row_bytes: int | None
    interned: frozenset[str]
    texts: TextKernels
    schema: pa.Schema
    result: tuple[ResultColumn, ...]
    node: Node  # the generic one
    profile_layout: ProfileLayout
    atomic_states: int  # of a cell, if each can be updated by one exact atomic operation; else 0
    exact: bool  # integers only: a result does not depend on how rows are grouped
    conjunct_costs: tuple[ConjunctCost, ...]
    variants: Variants[PaneProfile, PaneKernels]

    prepares: bool  # whether `prepare` adds columns

    def prepare(self, batch: pa.RecordBatch, first_row: int, /) -> pa.RecordBatch:
        """Add the columns that kernels need and Arrow computes; an implied time is computed from the first row's number."""

    def layout(self, nullable: frozenset[str], wide: bool) -> tuple[StateSpec, ...]:
        """The states of a pane under an assumption about nulls and widths."""

    def sources(self, old: frozenset[str], new: frozenset[str]) -> Sequence[int]:
        """For each state of the new layout, the state of the old layout that it continues."""

    def same_without_nulls(self, old: frozenset[str], new: frozenset[str]) -> Sequence[tuple[int, int]]:
        """Pairs of states of the old layout that agree if no row so far has had a null that only it allows."""

    def key_may_be_null(self, nullable: frozenset[str]) -> bool:
        """Whether kernels include nulls when they hash keys."""

    def index(self, width: int) -> Call: ...
