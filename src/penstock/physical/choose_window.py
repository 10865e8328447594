"""Choose how a windowed object runs: in panes or over sorted rows, and its key table."""

from __future__ import annotations

import pyarrow as pa

from penstock.algorithms.sorted_partitions.reducers import FrameReduction
from penstock.expr import nodes as ex
from penstock.expr.typing import type_of
from penstock.ir import nodes as ir
from penstock.ir.scope import result_type
from penstock.loop.machine import is_text
from penstock.physical.choose_algorithm import AlgorithmChoice
from penstock.physical.nodes import Assumption, Choice, Reduction, Rejected
from penstock.types.arrow import kind_of
from penstock.types.windows import WINDOW_BOUNDS, CarriedWindow


def key_table(body: ir.Reduce, schema: pa.Schema) -> Choice:
    """Choose the first key table: dense wherever a key's range may turn out to be small.

    The bounds of a carried window are keys, too.
    """
    bounds = WINDOW_BOUNDS if isinstance(body.domain, CarriedWindow) else ()
    keys = (*(key.expr for key in body.keys), *map(ex.Column, bounds))
    if not keys:
        return Choice("key table", "none", "the window has no keys: states stay in registers")
    if all(_may_be_dense(key, schema) for key in keys):
        small = Assumption("the range of keys is small for the rows seen", "an open-addressing hash table")
        return Choice(
            "key table", "dense", "keys are whole columns: an array index finds a group", (), (small,)
        )
    reason = "a key is computed or a float"
    return Choice("key table", "hash", reason, (Rejected("dense", f"{reason}, so its range is not known"),))


def _may_be_dense(expr: ex.Expr, schema: pa.Schema) -> bool:
    dtype = type_of(expr, schema)
    return ex.path_of(expr) is not None and (is_text(dtype) or kind_of(dtype) != "float")


def state_layout(reductions: tuple[ir.Reduction, ...]) -> Choice:
    """Choose the layout of states: narrow and without null flags until the data requires more."""
    taken = "64-bit sums, no null flags" if reductions else "presence alone"
    return Choice(
        "state layout",
        taken,
        "the narrowest states that may hold",
        (),
        (
            Assumption("no column that is read holds nulls", "states with null flags"),
            Assumption("sums fit 64 bits", "128-bit sums from the first that does not"),
        )
        if reductions
        else (),
    )


def grouping(obstacle: str | None) -> Choice:
    """Choose between panes and sorted rows: `obstacle` says why panes cannot hold what the object needs."""
    if obstacle is None:
        return Choice("grouping", "panes", "states of a fixed size merge in any order, on one grid of time")
    reason = "rows of each key are sorted by time; a window is a range of them"
    return Choice("grouping", "sorted partitions", reason, (Rejected("panes", obstacle),))


def algorithms(chosen: tuple[AlgorithmChoice, ...]) -> tuple[Choice, ...]:
    """The algorithm of each reduction, as choices of the node."""
    return tuple(
        Choice(f"reduction #{number}", choice.algorithm, choice.reason)
        for number, choice in enumerate(chosen)
    )


def reductions_of(
    reductions: tuple[ir.Reduction, ...], schema: pa.Schema, chosen: tuple[AlgorithmChoice, ...]
) -> tuple[Reduction, ...]:
    """The reductions of an object with their algorithms."""
    return tuple(
        Reduction(
            reduction.function,
            reduction.args,
            reduction.where,
            reduction.options,
            result_type(reduction, schema),
            choice.algorithm,
            reduction.span,
        )
        for reduction, choice in zip(reductions, chosen, strict=True)
    )


def reductions_over_columns(
    reductions: tuple[FrameReduction, ...], chosen: tuple[AlgorithmChoice, ...]
) -> tuple[Reduction, ...]:
    """The reductions of an object whose arguments and conditions are columns, with their algorithms."""
    return tuple(
        Reduction(
            reduction.function,
            tuple(map(ex.Column, reduction.args)),
            None if reduction.where is None else ex.Column(reduction.where),
            reduction.options,
            reduction.type,
            choice.algorithm,
            reduction.span,
        )
        for reduction, choice in zip(reductions, chosen, strict=True)
    )
