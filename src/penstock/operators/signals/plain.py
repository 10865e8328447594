"""The plain twin of `Signals`: the intervals of each key by the definition of each temporal object."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.ir.interpret import signal_rows
from penstock.ir.samples import Sample
from penstock.operators.plain_rows import Rows, in_order
from penstock.physical import nodes as ph


def signals(op: ph.Signals, node: ph.Node, sources: Sequence[tuple[ph.Node, Rows]]) -> Rows:
    """Return the intervals of all keys by start, then key; both evaluations give the same."""
    taken = [(in_order(samples, given.clock), (given.schema, given.clock)) for given, samples in sources]
    return [
        Sample({name: row[name] for name in node.schema.names}, ((), place))
        for place, row in enumerate(signal_rows(op.program, taken))
    ]
