"""The specialisation of an expression's kernel, and the description of the compiled result."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.algorithms.sliding.slide import SlideScratch
from penstock.expr import nodes as ex
from penstock.ir.nodes import Reduction
from penstock.loop.abi import Binding, OutputColumn
from penstock.loop.nodes import Kernel
from penstock.operators.signals.fused.kernels.changes import ChangesSpec

INSTANTS, CHANGES, SAMPLES = "instants", "changes", "samples"


@dataclass(frozen=True)
class AccessSpec:
    """The value of a track before a cursor: `columns` are those that fields read; `always`: the value exists."""

    cursor: int
    track: int
    columns: tuple[str, ...]
    always: bool


@dataclass(frozen=True)
class ReductionSpec:
    """A reduction over a span and its algorithm: None if its result is not read."""

    reduction: Reduction
    type: pa.DataType
    span: int
    algorithm: str | None


@dataclass(frozen=True)
class FusedSpec:
    """The specialisation of the kernel. `schemas` and `nullable` are of tracks; `scope` is what fields read.

    `writes` selects the instants: all; the changes, without instants whose value equals the previous one and
    those before the partition's `emitted`; or the samples alone.
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
    """The kernel, the bindings of each track's columns, the columns it writes, and its scratch memory."""

    kernel: Kernel
    bindings: tuple[tuple[Binding, ...], ...]
    outputs: tuple[OutputColumn, ...]
    scratch: tuple[SlideScratch, ...]
