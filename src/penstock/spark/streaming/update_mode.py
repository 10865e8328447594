"""Update mode: every batch emits the new or changed results of windows that are still open.

A second session loads the saved state and finishes as if the stream had ended. So results are computed in one way only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.compile import Compiled
from penstock.errors import EngineError, UnsupportedError
from penstock.ir.nodes import Input, Merge, Program, Reduce, Samples, sources_of
from penstock.runtime.buffers import flags, indices
from penstock.spark.decode_dictionaries import decoded
from penstock.spark.tasks import ENGINE
from penstock.types.windows import Calendar, TimeWindow, Unbounded

MODES = APPEND, UPDATE = ("append", "update")
_SIDE = 1


def require_mode(mode: str, streaming: bool) -> None:
    """Reject unknown output modes, and update mode for bounded data."""
    if mode not in MODES:
        raise EngineError(f"there is no output mode {mode!r}; there are {', '.join(map(repr, MODES))}")
    if mode == UPDATE and not streaming:
        raise EngineError("the data ends, so that every result is complete: leave output_mode= out")


def require_updatable(program: Program, schema: pa.Schema) -> None:
    """Reject queries whose results can disappear: update mode cannot retract a result."""
    obstacle = _obstacle(program, schema)
    if obstacle is not None:
        raise UnsupportedError(f"update mode cannot show this query: {obstacle}; use output_mode='append'")


def _obstacle(program: Program, schema: pa.Schema) -> str | None:
    this = program[program.output]
    while isinstance(this.body, Samples) and this.body.where is None:
        this = program[this.body.source]
    body = this.body
    if not isinstance(body, Reduce) or not isinstance(body.domain, TimeWindow | Calendar | Unbounded):
        return (
            f"~{this.name} is no window of a fixed place, so that a result can vanish when further rows come"
        )
    if body.having is not None:
        return (
            f"~{this.name} is filtered, and a result that passed may not pass any more when further rows come"
        )
    if not _rows(body.source, program):
        return f"~{this.name} stands on windows or joins, whose results are there once they are complete"
    nested = [field.name for field in schema if pa.types.is_nested(field.type)]
    return f"{nested[0]!r} is nested, and cannot be compared with what it was" if nested else None


def _rows(name: str, program: Program) -> bool:
    body = program[name].body
    return isinstance(body, Input | Samples | Merge) and all(
        _rows(source, program) for source in sources_of(body)
    )


def if_ended_now(compiled: Compiled, tables: Mapping[str, pa.Table]) -> list[pa.RecordBatch]:
    """Return the results of all open windows."""
    session = compiled.open(ENGINE, bounded=True)
    session.load(tables)
    return session.finish()


def changed(before: Sequence[pa.RecordBatch], now: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Return the results that are not in `before`.

    >>> schema = pa.schema({"k": pa.int64(), "n": pa.int64()})
    >>> old, new = ([pa.record_batch({"k": [1, 2], "n": n}, schema)] for n in ([5, 6], [5, 7]))
    >>> changed(old, new, schema).to_pylist()
    [{'k': 2, 'n': 7}]
    """
    sides = [pa.Table.from_batches(list(batches), schema) for batches in (before, now)]
    plain = [
        pa.Table.from_arrays([decoded(column) for column in table.columns], names=_names(schema))
        for table in sides
    ]
    side = np.repeat(np.arange(len(sides)), [table.num_rows for table in sides])
    place = np.concatenate([np.arange(table.num_rows) for table in sides])
    both = pa.concat_tables(plain).append_column("side", indices(side)).append_column("place", indices(place))
    found = both.group_by(_names(schema)).aggregate([("side", "min"), ("place", "max")])
    fresh = found["place_max"].filter(flags(found["side_min"].to_numpy() == _SIDE))
    return sides[_SIDE].take(indices(np.sort(fresh.to_numpy())))


def _names(schema: pa.Schema) -> list[str]:
    """Return column names that are unique and do not clash with "side" and "place"."""
    return [f"column {place}" for place in range(len(schema))]
