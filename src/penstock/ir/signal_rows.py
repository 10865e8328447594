"""Interpret signals inside a program: sample the sources by key, and list the intervals of each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from penstock.expr.evaluate import evaluator
from penstock.ir.order import Rank, canonical, ordering
from penstock.ir.rows import Row
from penstock.ir.samples import time_at
from penstock.ir.signals import nodes as temporal
from penstock.ir.signals.interpret import SignalSample, intervals
from penstock.types.time import Time

Origin = tuple[pa.Schema, Time]  # the columns of a source and the time of its rows
# The samples of one key, by the name of the Sampled object.
Taken = dict[str, list[SignalSample]]


class TimedRow(Protocol):
    """A row of a source."""

    @property
    def row(self) -> Row: ...


def signal_rows(program: temporal.Program, sources: Sequence[tuple[Sequence[TimedRow], Origin]]) -> list[Row]:
    """List the intervals of all keys by start, then key; `sources` are in order of time."""
    keys: dict[Rank, Row] = {}
    taken: dict[Rank, Taken] = {}
    takers = [obj for obj in program.objects if isinstance(obj.body, temporal.Sampled)]
    for this in takers:
        assert isinstance(this.body, temporal.Sampled)
        rows, origin = sources[int(this.body.input)]
        for sample, key in _samples(this.body, rows, origin):
            rank = tuple(ordering(value) for value in key.values())
            keys.setdefault(rank, key)
            taken.setdefault(rank, {taker.name: [] for taker in takers})[this.name].append(sample)
    found = [
        (row[temporal.START], rank, row)
        for rank, samples in taken.items()
        for row in intervals(program, keys[rank], samples)
    ]
    return [row for _, _, row in sorted(found, key=lambda entry: entry[:2])]


def _samples(
    body: temporal.Sampled, rows: Sequence[TimedRow], origin: Origin
) -> list[tuple[SignalSample, Row]]:
    schema, time = origin
    values = {field.name: evaluator(field.expr, schema) for field in body.fields}
    found = []
    for record in rows:
        at = time_at(record.row, time)
        if at is not None:
            until = None if body.hold.until is None else record.row[body.hold.until]
            if until is not None and until <= at:
                continue  # an empty interval
            value = {name: compute(record.row, ()) for name, compute in values.items()}
            found.append(
                (SignalSample(at, until, value), {name: canonical(record.row[name]) for name in body.keys})
            )
    return found
