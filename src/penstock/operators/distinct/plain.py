"""The plain twin of `Distinct`: the first or the last row of each run of rows with one value."""

from __future__ import annotations

from penstock.ir.samples import Rank, Sample, time_at
from penstock.operators.plain_rows import Rows, in_order, rank_of
from penstock.physical import nodes as ph


def distinct(op: ph.Distinct, node: ph.Node, given: ph.Node, samples: Rows) -> Rows:
    """A run is all rows of one value; with `within`, those less than `within` after its first row."""
    runs: dict[Rank, list[Rows]] = {}
    for sample in in_order(samples, given.clock):
        own = runs.setdefault(rank_of(sample.row[name] for name in op.subset), [])
        if own and (op.within is None or _at(sample, given) - _at(own[-1][0], given) < op.within):
            own[-1].append(sample)
        else:
            own.append([sample])
    place = 0 if op.keep == "first" else -1
    chosen = {id(run[place]) for several in runs.values() for run in several}
    return [sample for sample in samples if id(sample) in chosen]


def _at(sample: Sample, given: ph.Node) -> int:
    return time_at(sample.row, given.clock) or 0
