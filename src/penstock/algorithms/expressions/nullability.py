"""Nullability of an expression, given the nullable columns."""

from __future__ import annotations

import pyarrow as pa

from penstock.algorithms.expressions.cells import Cell
from penstock.algorithms.expressions.lowering import Lowering
from penstock.expr import nodes as ex
from penstock.loop.build import KernelBuilder
from penstock.loop.machine import machine_type
from penstock.loop.nodes import BOOL, I64, Var


def may_be_null(expr: ex.Expr, schema: pa.Schema, nullable: frozenset[str]) -> bool:
    """Return whether an expression may be null, by lowering it on a scratch kernel: the result has a validity or not."""
    k = KernelBuilder("scratch")

    def valid(name: str) -> Var | None:
        return Var("ok", BOOL) if name in nullable else None

    def column(name: str) -> Cell:
        return Cell(Var("column", machine_type(schema.field(name).type) or I64), valid(name))

    lowering = Lowering(
        k,
        schema,
        column,
        lambda condition: None,
        lambda name, text: Cell(Var("same", BOOL), valid(name)),
        valid,
    )
    return lowering.lower(expr).valid is not None
