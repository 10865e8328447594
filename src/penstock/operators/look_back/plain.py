"""The plain twin of `LookBack`: each row with the reductions over the rows of its key behind it."""

from __future__ import annotations

from penstock.ir.samples import Sample
from penstock.ir.windows import behind
from penstock.operators.plain_rows import Rows, partitions, reduced, with_reduced
from penstock.physical import nodes as ph


def look_back(op: ph.LookBack, node: ph.Node, given: ph.Node, samples: Rows) -> Rows:
    """Return all rows in order of time."""
    found = []
    for rows in partitions(samples, op.keys, given.clock).values():
        for place, (time, sample) in enumerate(rows):
            spans = [[reached for _, reached in behind(span, rows, place)] for span in op.spans]
            values = reduced(op.reductions, spans, given.schema)
            row = with_reduced(sample.row, values, node.schema)
            found.append(((time, sample.rank), Sample(row, sample.rank)))
    return [sample for _, sample in sorted(found, key=lambda pair: pair[0])]
