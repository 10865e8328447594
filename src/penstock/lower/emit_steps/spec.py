"""What the emit kernel is given, and what it tells the runtime about itself."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.expr import nodes as ex
from penstock.ir.nodes import Reduction
from penstock.kernels.monoids import Monoid
from penstock.loop.abi import Binding, Output, PaneScratch
from penstock.loop.nodes import Kernel
from penstock.lower.partials import MayBeNull, Partial


@dataclass(frozen=True)
class EmitSpec:
    """All that the kernel is specialised to. `fields` are those that must be computed.

    Windows begin every `every` ticks from `offset` on, and are `size` ticks long.
    `algorithms` tells for each monoid how the panes of a window are brought together.
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
        """Whether pairs of pane and key take the place of panes: then a result is one pair's key."""
        return self.key_table == "sparse"


@dataclass(frozen=True)
class EmitKernel:
    """The kernel, its computed columns, its memory, and what fills the texts it compares."""

    kernel: Kernel
    outputs: tuple[Output, ...]
    scratch: tuple[PaneScratch, ...]
    bindings: tuple[Binding, ...]
