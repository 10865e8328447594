"""The specialisation of the emit kernel, and the description of the compiled result."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.algorithms.monoids import Monoid
from penstock.algorithms.partials import MayBeNull, Partial
from penstock.expr import nodes as ex
from penstock.ir.nodes import Reduction
from penstock.loop.abi import Binding, OutputColumn, PaneScratch
from penstock.loop.nodes import Kernel


@dataclass(frozen=True)
class EmitSpec:
    """The specialisation of the kernel. `fields` are those that must be computed.

    Windows begin every `every` ticks from `offset` on, and are `size` ticks long. `algorithms` gives for each
    monoid the algorithm that merges the panes of a window.
    """

    keys: tuple[tuple[str, pa.DataType], ...]
    bounds: tuple[str, ...]
    size: int
    every: int
    offset: int
    time_type: pa.DataType
    partials: tuple[Partial, ...]
    monoids: tuple[Monoid, ...]
    wide_monoids: tuple[Monoid, ...]
    reductions: tuple[Reduction, ...]
    reduction_types: tuple[pa.DataType, ...]
    fields: tuple[ex.Field, ...]
    having: ex.Expr | None
    may_be_null: MayBeNull
    algorithms: tuple[str, ...]
    key_table: str
    keys_nullable: bool

    @property
    def sparse(self) -> bool:
        """Whether rows of the pane table are (pane, key) pairs: a result then belongs to one pair's key."""
        return self.key_table == "sparse"


@dataclass(frozen=True)
class EmitKernel:
    """The kernel, its computed columns, its scratch memory, and the bindings of the texts it compares."""

    kernel: Kernel
    outputs: tuple[OutputColumn, ...]
    scratch: tuple[PaneScratch, ...]
    bindings: tuple[Binding, ...]
