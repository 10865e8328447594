"""Run a time-centric program the slow and obvious way: the living definition of the IR.

Everything fast is tested against this. Nothing here is incremental, shared or clever: a window is the
list of the samples in it, found by looking at all of them.

Rows are dicts of physical Python values (`rows.py`): times are integer ticks, None is null. A row
whose time is null is malformed and takes no part. Samples are ordered by (time, sequence, position);
results of one window share a time and are ordered by their keys, so that no answer depends on the
order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import BindingError
from penstock.expr.aggregates import reduce
from penstock.expr.evaluate import evaluator
from penstock.expr.nodes import Expr, Field
from penstock.expr.typing import type_of
from penstock.ir.nodes import (
    WINDOW_END,
    WINDOW_START,
    Attach,
    Carried,
    Distinct,
    Domain,
    Grid,
    Input,
    Merge,
    Object,
    Program,
    Reduce,
    Reduction,
    Samples,
    Top,
)
from penstock.ir.order import Rank, canonical, ordering
from penstock.ir.rows import Row
from penstock.ir.scope import result_scope, result_types
from penstock.types.time import Time

Inputs = Mapping[str, Sequence[Mapping[str, Any]]]
Window = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Sample:
    """A row, and its rank among those of the same time."""

    row: Row
    rank: Rank


def interpret(program: Program, inputs: Inputs) -> list[Row]:
    """Compute the program's output from the rows of each input stream, given in order of arrival."""
    values: dict[str, list[Sample]] = {}
    for each in program.objects:
        values[each.name] = _value(each, program, values, inputs)
    return [sample.row for sample in values[program.output]]


def _value(
    this: Object, program: Program, values: Mapping[str, list[Sample]], inputs: Inputs
) -> list[Sample]:
    match this.body:
        case Input() as body:
            return _input(this, body, inputs)
        case Merge(sources=sources):
            return _merge([values[name] for name in sources])
        case Samples() as body:
            return _samples(body, values[body.source], program[body.source].schema)
        case Reduce() as body:
            return _reduce(body, values[body.source], program[body.source])
        case Attach() as body:
            return _attach(body, values[body.source], program[body.source])
        case Distinct() as body:
            return _distinct(body, values[body.source], program[body.source].time)
        case Top() as body:
            return _top(body, values[body.source], program[body.source].time)


# --- samples one by one -----------------------------------------------------------------------------


def _input(this: Object, body: Input, inputs: Inputs) -> list[Sample]:
    """Take the declared columns of each row that has a time."""
    if body.stream not in inputs:
        raise BindingError(f"no rows are bound to the stream {body.stream!r}")
    rows = [_with_time(row, this.time, position) for position, row in enumerate(inputs[body.stream])]
    return [
        Sample({name: row[name] for name in this.schema.names}, _rank(row, body, position))
        for position, row in enumerate(rows)
        if time_at(row, this.time) is not None
    ]


def _with_time(row: Mapping[str, Any], time: Time, position: int) -> Mapping[str, Any]:
    """Add the time where it is implied by the position."""
    return row if time.period is None else {**row, time.column: time.start + position * time.period}


def _rank(row: Mapping[str, Any], body: Input, position: int) -> Rank:
    return (() if body.sequence is None else ordering(row[body.sequence]), position)


def time_at(row: Mapping[str, Any], time: Time) -> int | None:
    """Read a sample's time in ticks."""
    at: int | None = row[time.column]
    return None if at is None else at + time.shift


def _merge(branches: Sequence[Sequence[Sample]]) -> list[Sample]:
    return [
        Sample(sample.row, (branch, *sample.rank))
        for branch, samples in enumerate(branches)
        for sample in samples
    ]


def _samples(body: Samples, source: Iterable[Sample], schema: pa.Schema) -> list[Sample]:
    record = _record(body.fields, schema)
    return [Sample(record(each.row), each.rank) for each in _kept(body.where, source, schema)]


def _record(
    fields: Iterable[Field], schema: pa.Schema, types: Sequence[pa.DataType] = ()
) -> Callable[..., Row]:
    """Prepare the fields of a result: a function of the row and the values of the reductions."""
    values = {each.name: evaluator(each.expr, schema, types) for each in fields}
    return lambda row, reduced=(): {name: value(row, reduced) for name, value in values.items()}


def _kept(where: Expr | None, source: Iterable[Sample], schema: pa.Schema) -> list[Sample]:
    """Keep the samples for which the predicate is true: neither false nor null."""
    if where is None:
        return list(source)
    holds = evaluator(where, schema)
    return [each for each in source if holds(each.row, ()) is True]


# --- windows ----------------------------------------------------------------------------------------


def _reduce(body: Reduce, source: list[Sample], origin: Object) -> list[Sample]:
    """Give one sample per window and key, ordered by the window's end, its start, and the key."""
    scope, types = result_scope(body, origin), result_types(body, origin)
    keys, record = _record(body.keys, origin.schema), _record(body.fields, scope, types)
    holds = None if body.having is None else evaluator(body.having, scope, types)
    results = []
    for window, members in _windows(body.domain, _kept(body.where, source, origin.schema), origin.time):
        for key, group in sorted(_groups(keys, members).items()):
            row = {name: canonical(value) for name, value in keys(group[0].row).items()} | _bounds(window)
            reduced = _reduced(body.reductions, group, origin)
            if holds is None or holds(row, reduced) is True:
                results.append(Sample(record(row, reduced), (window[0], *key)))
    return results


def _attach(body: Attach, source: list[Sample], origin: Object) -> list[Sample]:
    """Repeat every sample once per window that covers it, beside the reductions of its key."""
    record = _record(body.fields, result_scope(body, origin), result_types(body, origin))
    keys = _record(body.keys, origin.schema)
    results = []
    for window, members in _windows(body.domain, _kept(body.where, source, origin.schema), origin.time):
        groups = _groups(keys, members)
        reduced = {key: _reduced(body.reductions, group, origin) for key, group in groups.items()}
        for each in members:
            row = record(each.row | _bounds(window), reduced[_key(keys(each.row))])
            results.append(Sample(row, (*each.rank, window)))
    return results


def _windows(domain: Domain, source: list[Sample], time: Time) -> list[tuple[Window, list[Sample]]]:
    """List the windows that hold a sample, by end and start, each with its samples as they arrived."""
    found: dict[Window, list[Sample]] = {}
    for sample in source:
        for window in _covering(domain, sample.row, time):
            found.setdefault(window, []).append(sample)
    return sorted(found.items(), key=lambda item: (item[0][1], item[0][0]))


def _covering(domain: Domain, row: Row, time: Time) -> list[Window]:
    """List the windows a sample lies in: none when its time, or the window it carries, is null."""
    match domain:
        case Grid(size=size, every=every, offset=offset):
            at = time_at(row, time)
            if at is None:
                return []
            latest = at - (at - offset) % every
            return [(start, start + size) for start in range(latest, at - size, -every)]
        case Carried():
            start, end = row[WINDOW_START], row[WINDOW_END]
            return [] if start is None or end is None else [(start, end)]


def _bounds(window: Window) -> Row:
    return {WINDOW_START: window[0], WINDOW_END: window[1]}


def _groups(keys: Callable[[Row], Row], members: Iterable[Sample]) -> dict[Rank, list[Sample]]:
    found: dict[Rank, list[Sample]] = {}
    for sample in members:
        found.setdefault(_key(keys(sample.row)), []).append(sample)
    return found


def _key(values: Row) -> Rank:
    return tuple(ordering(value) for value in values.values())


def _reduced(reductions: Iterable[Reduction], group: list[Sample], origin: Object) -> tuple[Any, ...]:
    """Compute every ⊕(function, args), each over the samples for which its own predicate is true."""
    ordered = _in_order(group, origin.time)
    return tuple(
        _reduction(each, _kept(each.where, ordered, origin.schema), origin.schema) for each in reductions
    )


def _reduction(reduction: Reduction, group: list[Sample], schema: pa.Schema) -> Any:
    args = [evaluator(arg, schema) for arg in reduction.args]
    rows = [tuple(arg(each.row, ()) for arg in args) for each in group]
    return reduce(
        reduction.function, rows, [type_of(arg, schema) for arg in reduction.args], reduction.options
    )


# --- samples chosen among others --------------------------------------------------------------------


def _in_order(samples: Iterable[Sample], time: Time) -> list[Sample]:
    return sorted(samples, key=lambda each: (ordering(time_at(each.row, time)), each.rank))


def _distinct(body: Distinct, source: list[Sample], time: Time) -> list[Sample]:
    """Keep one sample for each value of the subset; those kept stay in the order they came."""
    chosen: dict[Rank, Sample] = {}
    ordered = _in_order(source, time)
    for sample in ordered if body.keep == "first" else reversed(ordered):
        chosen.setdefault(tuple(ordering(sample.row[name]) for name in body.subset), sample)
    kept = {id(sample) for sample in chosen.values()}
    return [sample for sample in source if id(sample) in kept]


def _top(body: Top, source: list[Sample], time: Time) -> list[Sample]:
    """Keep the k largest samples of each window, the largest first; NaN is largest, nulls come last."""
    windows = _windows(Carried(), source, time)
    return [sample for _, members in windows for sample in _largest(body, _in_order(members, time))]


def _largest(body: Top, members: list[Sample]) -> list[Sample]:
    """Choose among samples in order: sorting is stable, so of equal ones the earlier wins."""
    ranked = sorted(members, key=lambda each: ordering(each.row[body.by]), reverse=True)
    if body.ties == "first" or len(ranked) <= body.k:
        return ranked[: body.k]
    least = ordering(ranked[body.k - 1].row[body.by])
    return [each for each in ranked if ordering(each.row[body.by]) >= least]
