"""The plain twin of `TopK`: the largest rows of each window that rows carry."""

from __future__ import annotations

from penstock.ir.samples import ordering
from penstock.operators.plain_rows import Rows, frames, in_order
from penstock.physical import nodes as ph
from penstock.types.windows import CarriedWindow


def top_k(op: ph.TopK, node: ph.Node, given: ph.Node, samples: Rows) -> Rows:
    """Keep the k largest rows of each window, largest first; NaN is largest, nulls are last."""
    rows = [(0, sample) for sample in in_order(samples, given.clock)]
    found = frames(CarriedWindow(), {(): rows})
    return [sample for _, _, members in found for sample in _largest(op, members)]


def _largest(op: ph.TopK, members: Rows) -> Rows:
    """The sort is stable, so the earlier of two equal rows wins."""
    ranked = sorted(members, key=lambda sample: ordering(sample.row[op.by]), reverse=True)
    if op.ties == "first" or len(ranked) <= op.k:
        return ranked[: op.k]
    least = ordering(ranked[op.k - 1].row[op.by])
    return [sample for sample in ranked if ordering(sample.row[op.by]) >= least]
