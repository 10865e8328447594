"""Times that need not be read: a row group whose times all lie in one step of a query's windows has one time, to the query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.sources import footers
from penstock.sources.ranges import Range
from penstock.types.windows import Steps


@dataclass(frozen=True, slots=True)
class OneTime:
    """A column of times that is known without reading it, in the ticks of its type."""

    name: str
    type: pa.DataType
    tick: int
    _made: list[pa.Array] = field(default_factory=list, compare=False, repr=False)

    def added(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Put the column behind the others; whoever takes the batch finds columns by their names."""
        column = self._column(batch.num_rows)
        return pa.RecordBatch.from_arrays([*batch.columns, column], [*batch.schema.names, self.name])

    def _column(self, rows: int) -> pa.Array:
        """Give the column for so many rows; batches share one, which a processor's cache then holds."""
        if not self._made or len(self._made[0]) < rows:
            # Arrow's pool hands out pages again that somebody has used: fresh ones cost more than what is written to them.
            room = pa.allocate_buffer(rows * self.type.bit_width // 8)
            np.frombuffer(room, f"i{self.type.bit_width // 8}").fill(self.tick)
            self._made[:] = [pa.Array.from_buffers(self.type, rows, [None, room])]
        return self._made[0].slice(0, rows)


def in_steps(
    numbers: Sequence[int],
    metadata: Any,
    schema: pa.Schema,
    columns: Sequence[str],
    names: Mapping[str, str],
    steps: Steps | None,
) -> Iterator[tuple[list[int], OneTime | None]]:
    """Cut row groups into runs whose times lie in one step, which is given, and others.

    Something has to be read, to know how many rows there are: a query that reads nothing but times reads them. The time that
    is given is the latest of a run: whoever asks how far time has come is told the truth.
    """
    if steps is None or steps.column not in columns or len(columns) < 2:
        yield list(numbers), None
        return
    field = schema.field(steps.column)
    leaves = footers.leaves(metadata, schema, {field.name: names.get(field.name, field.name)})
    found = {number: footers.ranges(metadata, number, leaves).get(field.name) for number in numbers}
    for step, run in groupby(numbers, key=lambda number: _step(found[number], steps)):
        held = list(run)
        latest = None if step is None else max(_high(found[number]) for number in held)
        yield held, None if latest is None else OneTime(field.name, field.type, latest)


def _high(times: Range | None) -> int:
    assert times is not None
    assert isinstance(times.high, int)
    return times.high


def _step(times: Range | None, steps: Steps) -> int | None:
    """Number the step that all times lie in; None if they do not, or if that is not known."""
    match times:
        case Range(low=int(low), high=int(high), nulls=False) if steps.number(low) == steps.number(high):
            return steps.number(low)
        case _:
            return None
