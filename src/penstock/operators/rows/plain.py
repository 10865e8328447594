"""The plain twin of `Rows`: keep the rows for which each conjunct is true, and compute the fields."""

from __future__ import annotations

from penstock.analysis.predicates import conjunction
from penstock.ir.samples import Sample, kept, record
from penstock.operators.plain_rows import Rows
from penstock.physical import nodes as ph


def rows(op: ph.Rows, node: ph.Node, given: ph.Node, samples: Rows) -> Rows:
    """An implied time, which is computed from row numbers, passes through."""
    implied = (node.clock.column,) if node.clock.implied else ()
    fill = record(op.fields, given.schema)
    return [
        Sample({name: sample.row[name] for name in implied} | fill(sample.row), sample.rank)
        for sample in kept(conjunction(op.conjuncts), samples, given.schema)
    ]
