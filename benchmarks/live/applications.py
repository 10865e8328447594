"""TiLT's eight applications and YSB, pushed buffer by buffer (TiLT's figure 9, Grizzly's section 7.2.3)."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as pk
from benchmarks.answers import agree, normalise
from benchmarks.contenders import PENSTOCK_GROUP
from benchmarks.figures import Case, Figure
from benchmarks.live.suite import LEAST_PUSHES, MOST_PUSHES, LiveOptions
from benchmarks.measure import Outcome
from benchmarks.tilt.applications import APPLICATIONS, Application, Tables
from benchmarks.workloads import YsbKeyed, ysb_keyed

NAMES = ("normalise", "impute", "resample", "trend", "vibration", "fraud", "rsi", "pan-tompkins")
LEAST = 200_000
"""The fewest rows; a window of YSB takes 3.3 M, so that it closes at the end of input alone where rows are fewer."""
SHARE, PLENTY = 0.3, 25.0
"""Of the peak at 10,000 events; at 1,000 the lower of it and so many million events a second."""
JUDGED = (1_000, 10_000)


def _ysb(tables: Tables) -> pk.Stream:
    events = pk.from_arrow(tables[0], time="ts").filter(pk.col("event_type") == 1)
    return events.window(pk.tumbling("10s"), by="campaign_id").agg(n=pk.count())


def asked() -> Iterator[tuple[str, Callable[[int], Tables], Callable[[Tables], Any]]]:
    """Yield the name of each question, its tables of so many rows, and its query."""
    by_name: Mapping[str, Application] = {application.name: application for application in APPLICATIONS}
    for name in NAMES:
        yield name, by_name[name].tables, by_name[name].signal
    yield "ysb", lambda rows: [ysb_keyed(YsbKeyed(rows, keys=1_000))], _ysb


def application_cases(options: LiveOptions, progress: Callable[[str], None]) -> Iterator[Case]:
    """Measure each question at each size of buffers, on one thread."""
    for name, tables, query in asked():
        found: list[tuple[int, int, Outcome]] = []
        for buffer in options.buffers:
            progress(f"{name}, buffers of {buffer:,}")
            rows = max(LEAST, LEAST_PUSHES * buffer, min(MOST_PUSHES * buffer, options.rows))
            found.append((buffer, rows, measured(tables(rows), query, buffer, options.repeat)))
        peak = max((rate(outcome) for _, _, outcome in found), default=0.0)
        for buffer, rows, outcome in found:
            figures = tuple(judged(buffer, rate(outcome), peak))
            yield Case(f"{buffer:,}", rows, 1, (outcome,), figures, f"application {name}", buffer)


def rate(outcome: Outcome) -> float:
    """Million events per second of processor time: neighbours disturb it less than the clock."""
    return (outcome.rows or 0) / outcome.best_cpu / 1e6 if outcome.best_cpu else 0.0


def judged(buffer: int, speed: float, peak: float) -> Iterator[Figure]:
    """Compare a rate with the peak, and with what it must reach where buffers are small."""
    wanted = None
    if buffer in JUDGED and peak:
        wanted = min(SHARE, PLENTY / peak) if buffer == JUDGED[0] else SHARE
    yield Figure("of peak, processor time", speed / peak if peak else None, wanted)


def measured(tables: Tables, query: Callable[[Tables], Any], buffer: int, repeat: int) -> Outcome:
    """Push all buffers and finish, several times; compare the results with those of `collect`."""
    engine, outcome = pk.Engine(threads=1), Outcome("Penstock", PENSTOCK_GROUP, 1, rows=tables[0].num_rows)
    parts = list(
        zip(*(table.combine_chunks().to_batches(max_chunksize=buffer) for table in tables), strict=True)
    )
    expected = comparable(query(tables).collect(engine=engine))
    for _ in range(repeat):
        live = query(tables).open(engine=engine)
        names = [f"stream_{number}" for number in range(1, len(tables) + 1)]
        made: list[pa.RecordBatch] = []
        gc.collect()
        begin, begin_cpu = time.perf_counter(), time.process_time()
        for group in parts:
            made += live.push(dict(zip(names, group, strict=True)))
        made += live.finish()
        outcome.seconds.append(time.perf_counter() - begin)
        outcome.cpu_seconds.append(time.process_time() - begin_cpu)
        found = comparable(pa.Table.from_batches(made, expected_schema(made, expected)))
        outcome.agrees = agree(found, expected) and outcome.agrees is not False
    return outcome


def expected_schema(made: Sequence[pa.RecordBatch], expected: pa.Table) -> pa.Schema:
    """Return the schema of results, that of `collect` if there are none."""
    return made[0].schema if made else expected.schema


def comparable(table: pa.Table) -> pa.Table:
    """Order windows; merge neighbouring intervals of a signal that have the same values, as `collect` does."""
    return merged(table) if "start" in table.column_names else normalise(table)


def merged(table: pa.Table) -> pa.Table:
    """Merge neighbouring intervals with equal values.

    >>> merged(pa.table({"start": [5, 0], "end": [9, 5], "value": [2.0, 2.0]})).to_pylist()
    [{'start': 0, 'end': 9, 'value': 2.0}]
    """
    ordered = table.sort_by([("start", "ascending")]).combine_chunks()
    if not ordered.num_rows:
        return ordered
    start, end = ordered["start"].to_numpy(), ordered["end"].fill_null(np.iinfo(np.int64).max).to_numpy()
    same = start[1:] == end[:-1]
    for name in ordered.column_names[2:]:
        values = ordered[name].to_numpy().astype(np.float64)
        same &= np.isclose(values[1:], values[:-1], rtol=1e-9, atol=1e-9, equal_nan=True)
    first = np.flatnonzero(np.r_[True, ~same])
    last = np.r_[first[1:], len(start)] - 1
    return ordered.take(first).set_column(1, "end", ordered["end"].take(last))
