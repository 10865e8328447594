"""The ways to run a case of the matrix, and how answers are compared with the interpreter's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

import penstock as pk
from penstock.ir.interpret import interpret
from penstock.ir.samples import to_rows
from penstock.translate import to_ir
from tests.oracle.approx import Approx
from tests.oracle.brute import Cells
from tests.oracle.compare import assert_same_rows, assert_windows_in_order
from tests.oracle.data import Row, plain_column
from tests.oracle.matrix_queries import Case, Rolling, Windowed, build
from tests.oracle.strategies import to_array


def bound(case: Case, table: pa.Table | None = None) -> Any:
    """Make the stream of a case's rows, or of other rows of the same kind."""
    rows = case.table if table is None else table
    return pk.from_arrow(rows, time="t", name="events", unit=case.time.unit, sequence=case.sequence)


def declared(case: Case, lateness: int) -> Any:
    late = case.time.duration(lateness)
    return pk.stream(
        "events", case.table.schema, time="t", unit=case.time.unit, sequence=case.sequence, lateness=late
    )


def expected(case: Case, table: pa.Table | None = None) -> list[Cells] | None:
    """Compute what the interpreter defines, each float with the error it may have; None if a sum overflows."""
    rows = case.table if table is None else table
    try:
        found = interpret(to_ir(build(case, bound(case, rows), scales=True).plan), {"events": to_rows(rows)})
    except pk.OverflowError:
        return None
    return [_loosened(row, case) for row in found]


def _loosened(row: Row, case: Case) -> Cells:
    return {
        name: _loose(name, cell, row, case) for name, cell in row.items() if not name.startswith("scale_")
    }  # type: ignore[misc]


def _loose(name: str, cell: Any, row: Row, case: Case) -> Any:
    """Widen an approximate answer by its error. One that is not finite has to be met exactly."""
    if isinstance(cell, list):
        return tuple("nan" if x != x else x for x in cell)
    field = case.scaled.get(name.partition("_")[0])
    scale = row.get(f"scale_{name}")
    if field is None or field.loosen is None or cell is None:
        return cell
    if not math.isfinite(cell):
        return Approx(cell, 0.0)
    return Approx(cell, field.loosen(cell, scale) + 1e-15 * abs(cell))  # type: ignore[arg-type]


def results(table: pa.Table) -> list[Row]:
    """List the rows of a result; lists become tuples, in which NaN equals itself."""
    columns = [
        [None if cell is None else tuple("nan" if x != x else x for x in cell) for cell in column.to_pylist()]
        if pa.types.is_list(column.type)
        else plain_column(column).to_pylist()
        for column in table.columns
    ]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


# Here the tails of windows of rows come last: that they are tails is known when input ends.
INCREMENTAL = ("incremental", "driven", "in several lives")


def assert_answer(case: Case, wanted: Sequence[Cells], table: pa.Table, what: str) -> None:
    """Check a result: sound Arrow, the rows, the order of windows; look-backs give theirs in order of time."""
    table.validate(full=True)
    assert_same_rows(wanted, results(table), what)
    last = next(step for step in reversed(case.steps) if isinstance(step, Windowed | Rolling))
    tails = isinstance(last, Windowed) and getattr(last.window, "partial", False)
    if isinstance(last, Windowed) and not last.rows and not (tails and what in INCREMENTAL):
        assert_windows_in_order(table)
    if isinstance(last, Rolling) and len(case.steps) == 1:
        times = [row["t"] for row in results(table)]
        assert times == [row["t"] for row in wanted]


def collected(case: Case, **options: Any) -> pa.Table:
    return build(case, bound(case)).collect(**options)


def streamed(
    case: Case, batches: Sequence[pa.RecordBatch], lateness: int, engine: pk.Engine | None = None
) -> tuple[pa.Table, pk.Metrics]:
    """Run incrementally with a lateness in ticks."""
    query = build(case, declared(case, lateness))
    run = query.run(iter(batches), engine=engine)
    return pa.Table.from_batches(list(run), query.schema), run.metrics


def ticks(case: Case) -> list[int | None]:
    found: list[int | None] = plain_column(case.table["t"]).to_pylist()
    return found


def disorder(case: Case) -> int:
    """How far a row lies behind the latest before it, at most: with so much lateness none is late."""
    known = [t for t in ticks(case) if t is not None]
    return max((seen - t for seen, t in zip(itertools.accumulate(known, max), known, strict=True)), default=0)


@dataclass(frozen=True)
class Push:
    rows: int


@dataclass(frozen=True)
class Advance:
    """Declare a time: so far beyond the latest row, or behind it."""

    beyond: int


def driven(
    case: Case, moves: Sequence[Push | Advance], lateness: int
) -> tuple[pa.Table | None, pa.Table, pk.Metrics]:
    """Push rows and declare times in turn; give the result, the rows that are not late, and what was counted.

    Which rows are late is worked out here row by row: those before the watermark when they come. There is no result
    where a sum overflows.
    """
    query, times = build(case, declared(case, lateness)), ticks(case)
    table = case.table.combine_chunks()
    calls: list[Callable[[Any], list[pa.RecordBatch]]] = []
    kept, at, watermark, latest = [], 0, -math.inf, -math.inf
    for move in [*moves, Push(table.num_rows)]:
        if isinstance(move, Advance):
            if math.isfinite(latest) and case.time.tick != "ns":  # finer than a datetime
                watermark = max(watermark, latest + move.beyond)
                calls.append(partial(_advance, time=_instant(int(latest) + move.beyond, case)))
            continue
        upto = min(at + move.rows, table.num_rows)
        calls += [partial(_push, batch=batch) for batch in table.slice(at, upto - at).to_batches()]
        for place in range(at, upto):
            time = times[place]
            if time is not None and time >= watermark:
                kept.append(place)
            if time is not None:
                latest = max(latest, time)
                watermark = max(watermark, latest - lateness)
        at = upto
    on_time = table.take(pa.array(kept, pa.int64()))
    live = query.open()
    try:
        found = [made for call in calls for made in call(live)] + live.finish()
    except pk.OverflowError:
        return None, on_time, live.metrics
    return pa.Table.from_batches(found, query.schema), on_time, live.metrics


def _advance(live: Any, time: Any) -> list[pa.RecordBatch]:
    return list(live.advance(time))


def _push(live: Any, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    return list(live.push(batch))


def _instant(tick: int, case: Case) -> Any:
    """Spell a time as `advance` takes it."""
    if not pa.types.is_temporal(case.time.type):
        return tick
    scalar = to_array([tick], case.time.type)[0]
    return scalar.cast(pa.timestamp("us", getattr(case.time.type, "tz", None))).as_py()
