"""Interpret a time-centric program row by row: the reference semantics of the IR.

Every optimised operator is tested against this file. Nothing here is incremental or shared: a window is the
list of its samples, found by a scan over all samples.

Rows are dicts of physical Python values (`samples.py`): times are integer ticks, None is null. A row whose time
is null is malformed and is skipped. Samples are ordered by (time, sequence, position). Results of one window
share a time and are ordered by their keys, so no result depends on the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from penstock.errors import BindingError
from penstock.expr.evaluate import evaluator
from penstock.ir.interpret_joins import JoinSide, joined
from penstock.ir.nodes import (
    Apply,
    Asof,
    Attach,
    Distinct,
    Input,
    Join,
    Lookback,
    Merge,
    Object,
    Program,
    Reduce,
    RollingJoin,
    Samples,
    Signals,
    Table,
    Top,
    result_scope,
    result_types,
)
from penstock.ir.samples import (
    Rank,
    Row,
    Sample,
    as_table,
    canonical,
    kept,
    ordering,
    record,
    reduced_over,
    time_at,
    to_rows,
    to_table,
)
from penstock.ir.signals import nodes as temporal
from penstock.ir.signals.interpret import SignalSample, intervals
from penstock.ir.windows import WindowBounds, behind, windows_of
from penstock.types.time import Time
from penstock.types.windows import WINDOW_END, WINDOW_START, CarriedWindow

# --- Interpret signals inside a program: sample the sources by key, and list the intervals of each key.

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
        for sample, key in _signal_samples(this.body, rows, origin):
            rank = tuple(ordering(value) for value in key.values())
            keys.setdefault(rank, key)
            taken.setdefault(rank, {taker.name: [] for taker in takers})[this.name].append(sample)
    found = [
        (row[temporal.START], rank, row)
        for rank, samples in taken.items()
        for row in intervals(program, keys[rank], samples)
    ]
    return [row for _, _, row in sorted(found, key=lambda entry: entry[:2])]


def _signal_samples(
    body: temporal.Sampled, rows: Sequence[TimedRow], origin: Origin
) -> list[tuple[SignalSample, Row]]:
    schema, time = origin
    values = {field.name: evaluator(field.expr, schema) for field in body.fields}
    found = []
    for sample in rows:
        at = time_at(sample.row, time)
        if at is not None:
            until = None if body.hold.until is None else sample.row[body.hold.until]
            if until is not None and until <= at:
                continue  # an empty interval
            value = {name: compute(sample.row, ()) for name, compute in values.items()}
            found.append(
                (SignalSample(at, until, value), {name: canonical(sample.row[name]) for name in body.keys})
            )
    return found


Inputs = Mapping[str, Sequence[Mapping[str, Any]]]


def interpret(program: Program, inputs: Inputs) -> list[Row]:
    """Compute the program's output from the rows of each input stream, given in order of arrival."""
    values: dict[str, list[Sample]] = {}
    for obj in program.objects:
        values[obj.name] = _value(obj, program, values, inputs)
    return [sample.row for sample in values[program.output]]


def _value(
    this: Object, program: Program, values: Mapping[str, list[Sample]], inputs: Inputs
) -> list[Sample]:
    match this.body:
        case Input() as body:
            return _input(this, body, inputs)
        case Table() as body:
            return _table(this, body, inputs)
        case Join() | Asof() | RollingJoin() as body:
            sides = [JoinSide(program[name], values[name]) for name in (body.left, body.right)]
            return joined(this, body, *sides)
        case Merge(sources=sources):
            return _merge([values[name] for name in sources])
        case Samples() as body:
            return _samples(body, values[body.source], program[body.source].schema)
        case Reduce() as body:
            return _reduce(body, values[body.source], program[body.source])
        case Attach() as body:
            return _attach(body, values[body.source], program[body.source])
        case Lookback() as body:
            return _lookback(body, values[body.source], program[body.source])
        case Apply() as body:
            return _apply(body, values[body.source], this, program[body.source])
        case Distinct() as body:
            return _distinct(body, values[body.source], program[body.source].time)
        case Top() as body:
            return _top(body, values[body.source], program[body.source].time)
        case Signals() as body:
            origins = [(program[name], values[name]) for name in body.sources]
            rows = signal_rows(
                body.program,
                [(_in_order(held, origin.time), (origin.schema, origin.time)) for origin, held in origins],
            )
            return [
                Sample({name: row[name] for name in this.schema.names}, ((), place))
                for place, row in enumerate(rows)
            ]


# --- single samples ---------------------------------------------------------------------------------


def _input(this: Object, body: Input, inputs: Inputs) -> list[Sample]:
    """Select the declared columns of each row that has a time."""
    if body.stream not in inputs:
        raise BindingError(f"no rows are bound to the stream {body.stream!r}")
    rows = [_with_time(row, this.time, position) for position, row in enumerate(inputs[body.stream])]
    return [
        Sample({name: row[name] for name in this.schema.names}, _rank(row, body, position))
        for position, row in enumerate(rows)
        if time_at(row, this.time) is not None
    ]


def _table(this: Object, body: Table, inputs: Inputs) -> list[Sample]:
    if body.name not in inputs:
        raise BindingError(f"no rows are bound to the table {body.name!r}")
    rows = enumerate(inputs[body.name])
    return [Sample({name: row[name] for name in this.schema.names}, ((), place)) for place, row in rows]


def _with_time(row: Mapping[str, Any], time: Time, position: int) -> Mapping[str, Any]:
    """Add the time column where the position implies it."""
    return row if time.period is None else {**row, time.column: time.start + position * time.period}


def _rank(row: Mapping[str, Any], body: Input, position: int) -> Rank:
    return (() if body.sequence is None else ordering(row[body.sequence]), position)


def _merge(branches: Sequence[Sequence[Sample]]) -> list[Sample]:
    return [
        Sample(sample.row, (sample.rank[0], branch, *sample.rank[1:]))  # the sequence sorts before the branch
        for branch, samples in enumerate(branches)
        for sample in samples
    ]


def _samples(body: Samples, source: Iterable[Sample], schema: pa.Schema) -> list[Sample]:
    fill = record(body.fields, schema)
    return [Sample(fill(sample.row), sample.rank) for sample in kept(body.where, source, schema)]


# --- windows ----------------------------------------------------------------------------------------


def _reduce(body: Reduce, source: list[Sample], origin: Object) -> list[Sample]:
    """Return one sample per window and key, ordered by window end, window start and key."""
    scope, types = result_scope(body, origin), result_types(body, origin)
    keys, fill = record(body.keys, origin.schema), record(body.fields, scope, types)
    holds = None if body.having is None else evaluator(body.having, scope, types)
    results = []
    for window, key, group in _windows(body, source, origin):
        row = {name: canonical(value) for name, value in keys(group[0].row).items()} | _bounds(window)
        reduced = reduced_over(body.reductions, [group], origin.schema)
        if holds is None or holds(row, reduced) is True:
            results.append(Sample(fill(row, reduced), ((), window[0], *key)))
    return results


def _attach(body: Attach, source: list[Sample], origin: Object) -> list[Sample]:
    """Repeat each sample once per window that covers it, with the reductions of its key.

    Results are ordered by window, then by the order of the samples; so are results of equal time.
    """
    fill = record(body.fields, result_scope(body, origin), result_types(body, origin))
    arrived = {id(sample): position for position, sample in enumerate(source)}
    found = []
    for window, _, group in _windows(body, source, origin):
        reduced = reduced_over(body.reductions, [group], origin.schema)
        found += [
            (window[::-1], arrived[id(sample)], sample, fill(sample.row | _bounds(window), reduced))
            for sample in group
        ]
    found.sort(key=lambda entry: entry[:2])
    return [Sample(row, ((), window, *sample.rank)) for window, _, sample, row in found]


def _lookback(body: Lookback, source: list[Sample], origin: Object) -> list[Sample]:
    """Return all samples in order of time, each with the reductions over its look-back spans."""
    fill = record(body.fields, origin.schema, result_types(body, origin))
    found: list[tuple[int, Sample]] = []
    for rows in _partitions(body, source, origin).values():
        for place, (time, sample) in enumerate(rows):
            spans = [[row for _, row in behind(span, rows, place)] for span in body.spans]
            reduced = reduced_over(body.reductions, spans, origin.schema)
            found.append((time, Sample(fill(sample.row, reduced), sample.rank)))
    return [sample for _, sample in sorted(found, key=lambda entry: (entry[0], entry[1].rank))]


def _apply(body: Apply, source: list[Sample], this: Object, origin: Object) -> list[Sample]:
    """Call the function with each window's samples as a table; prefix its rows with window bounds and keys."""
    keys = record(body.keys, origin.schema)
    given = this.schema.names[2 + len(body.keys) :]
    results = []
    for window, key, group in _windows(body, source, origin):
        head = _bounds(window) | {name: canonical(v) for name, v in keys(group[0].row).items()}
        made = as_table(
            body.function(to_table([sample.row for sample in group], origin.schema)), this.schema, given
        )
        for position, row in enumerate(to_rows(made)):
            results.append(Sample(head | row, ((), window[0], *key, position)))
    return results


def _windows(
    body: Reduce | Attach | Apply, source: list[Sample], origin: Object
) -> list[tuple[WindowBounds, Rank, list[Sample]]]:
    """List windows and keys by window end, window start and key, each with its samples in order."""
    found = windows_of(body.domain, _partitions(body, source, origin))
    several = [(window, key, rows) for key, members in found.items() for window, rows in members]
    several.sort(key=lambda entry: (entry[0][1], entry[0][0], entry[1]))
    return [(window, key, [sample for _, sample in rows]) for window, key, rows in several]


def _partitions(
    body: Reduce | Attach | Lookback | Apply, source: list[Sample], origin: Object
) -> dict[Rank, list[tuple[int, Sample]]]:
    """Group the samples that pass `where` by key, each group in order of time; drop samples without a time."""
    keys = record(body.keys, origin.schema)
    counting = kept(body.where, source, origin.schema)
    timed = [
        (at, member) for member in counting if (at := _moment(member.row, body, origin.time)) is not None
    ]
    found: dict[Rank, list[tuple[int, Sample]]] = {}
    for at, sample in sorted(timed, key=lambda entry: (entry[0], entry[1].rank)):
        found.setdefault(_key(keys(sample.row)), []).append((at, sample))
    return found


def _moment(row: Row, body: Reduce | Attach | Lookback | Apply, time: Time) -> int | None:
    """Return a sample's time; in a carried window the time may be missing and defaults to 0."""
    carried = not isinstance(body, Lookback) and isinstance(body.domain, CarriedWindow)
    if carried and row.get(time.column) is None:
        return 0
    return time_at(row, time)


def _bounds(window: WindowBounds) -> Row:
    return {WINDOW_START: window[0], WINDOW_END: window[1]}


def _key(values: Row) -> Rank:
    return tuple(ordering(value) for value in values.values())


# --- selection of samples ---------------------------------------------------------------------------


def _in_order(samples: Iterable[Sample], time: Time) -> list[Sample]:
    return sorted(samples, key=lambda sample: (ordering(time_at(sample.row, time)), sample.rank))


def _distinct(body: Distinct, source: list[Sample], time: Time) -> list[Sample]:
    """Keep one sample of each run of equal samples, in the order of the source.

    A run is all samples of one value; with `within`, those less than `within` after the run's first sample.
    """
    runs: dict[Rank, list[list[Sample]]] = {}
    for sample in _in_order(source, time):
        own = runs.setdefault(tuple(ordering(sample.row[name]) for name in body.subset), [])
        if own and (body.within is None or _apart(own[-1][0], sample, time) < body.within):
            own[-1].append(sample)
        else:
            own.append([sample])
    place = 0 if body.keep == "first" else -1
    chosen = {id(run[place]) for several in runs.values() for run in several}
    return [sample for sample in source if id(sample) in chosen]


def _apart(first: Sample, second: Sample, time: Time) -> int:
    return (time_at(second.row, time) or 0) - (time_at(first.row, time) or 0)


def _top(body: Top, source: list[Sample], time: Time) -> list[Sample]:
    """Keep the k largest samples of each window, largest first; NaN is largest, nulls are last."""
    windows = windows_of(CarriedWindow(), {(): [(0, sample) for sample in _in_order(source, time)]})
    return [
        sample
        for members in windows.values()
        for _, rows in members
        for sample in _largest(body, [s for _, s in rows])
    ]


def _largest(body: Top, members: list[Sample]) -> list[Sample]:
    """Select the k largest samples; the sort is stable, so the earlier of two equal samples wins."""
    ranked = sorted(members, key=lambda sample: ordering(sample.row[body.by]), reverse=True)
    if body.ties == "first" or len(ranked) <= body.k:
        return ranked[: body.k]
    least = ordering(ranked[body.k - 1].row[body.by])
    return [sample for sample in ranked if ordering(sample.row[body.by]) >= least]
