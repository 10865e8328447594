"""What the kernel of an expression is specialised to, and what it tells about itself."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.expr import nodes as ex
from penstock.ir.nodes import Reduction
from penstock.kernels.signals.changes import ChangesSpec
from penstock.kernels.swag.slide import Scratch
from penstock.loop.abi import Binding, Output
from penstock.loop.nodes import Kernel

INSTANTS, CHANGES, SAMPLES = "instants", "changes", "samples"


@dataclass(frozen=True)
class AccessSpec:
    """The value of a track before a cursor: `columns` are those that fields read; `always` that there is one."""

    cursor: int
    track: int
    columns: tuple[str, ...]
    always: bool


@dataclass(frozen=True)
class ReductionSpec:
    """A reduction over a span, and how it is computed: not at all where nobody reads it."""

    reduction: Reduction
    type: pa.DataType
    span: int
    algorithm: str | None


@dataclass(frozen=True)
class FusedSpec:
    """All that the kernel is specialised to. `schemas` and `nullable` are of tracks; `scope` is what fields read.

    `writes` says which instants: all; the changes, where one whose value is that of the one before is left out, and so
    is whatever lies before the lane's `emitted`; or the samples alone.
    """

    changes: ChangesSpec
    schemas: tuple[pa.Schema, ...]
    nullable: tuple[frozenset[str], ...]
    accesses: tuple[AccessSpec, ...]
    reductions: tuple[ReductionSpec, ...]
    fields: tuple[ex.Field, ...]
    scope: pa.Schema
    writes: str


@dataclass(frozen=True)
class FusedKernel:
    """The kernel, what fills the columns of each track, the columns it writes, and the memory it asks for."""

    kernel: Kernel
    bindings: tuple[tuple[Binding, ...], ...]
    outputs: tuple[Output, ...]
    scratch: tuple[Scratch, ...]
