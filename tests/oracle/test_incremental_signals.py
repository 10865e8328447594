"""Signals from event to event: the same results and counts as values computed anew at each push, whatever is pushed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.algorithms.keyed_states import table
from penstock.operators.signals.incremental import samples
from penstock.operators.signals.incremental.stage import IncrementalSignals
from penstock.physical import choose_signals
from tests.oracle.effort import effort
from tests.oracle.plans import switched_off

SCHEMA = pa.schema(
    {
        "t": pa.int64(),
        "q": pa.int64(),
        "k": pa.string(),
        "e": pa.dictionary(pa.int32(), pa.string()),
        "n": pa.int32(),
        "f": pa.float64(),
        "x": pa.int64(),
        "b": pa.bool_(),
    }
)
ONE_THREAD, INTERPRETED = pk.Engine(threads=1), pk.Engine(threads=1, backend="interpret")
Row = tuple[Any, ...]
Signals = dict[str, pk.Signal]

QUERIES: dict[str, Callable[[Signals], pk.Signal]] = {
    "mean": lambda s: s["f"].rolling(5).mean(),
    "sum": lambda s: s["x"].rolling(7).sum(),
    "max": lambda s: s["f"].rolling(4).max(),
    "min": lambda s: s["x"].rolling(9).min(),
    "count": lambda s: s["f"].rolling(3).count(),
    "std": lambda s: s["f"].rolling(6).std(),
    "any": lambda s: s["b"].rolling(6).any(),
    "trend": lambda s: s["f"].rolling(3).mean() > s["f"].rolling(8).mean(),
    "normal": lambda s: (s["f"] - s["f"].rolling(6).mean()) / s["f"].rolling(6).std(),
    "itself": lambda s: s["x"].map(lambda v: v * 2 + 1),
    "logic": lambda s: s["b"].shift(2),
    "change": lambda s: s["x"] - s["x"].shift(4),
    "before": lambda s: s["x"].shift(-3) - s["x"],
    "later": lambda s: s["x"].shift(6),
    "where": lambda s: s["f"].where(lambda v: v > 0),
    "where rolling": lambda s: s["f"].where(lambda v: v > 0).rolling(6).sum(),
    "delayed": lambda s: s["x"].rolling(4).max().shift(3) - s["x"].rolling(4).min(),
    "window": lambda s: s["x"].window(6, every=2).sum(),
    "window max": lambda s: s["f"].window(5, every=3).max(),
    "per": lambda s: s["f"].per(4).max(),
    "per and itself": lambda s: s["x"] - s["x"].per(5).sum(),
    "lasting": lambda s: s["lasting"].map(lambda v: v + 1),
    "lasting shifted": lambda s: s["lasting"] - s["lasting"].shift(3),
    "lasting rolling": lambda s: s["lasting"].rolling(4).sum() + s["lasting"],
    "two columns": lambda s: s["x"] + s["f"],
    "either": lambda s: s["x"].where(lambda v: v > 2).or_else(s["x"].shift(5)),
    "two streams": lambda s: s["f"] - s["other"],
    "two rollings": lambda s: s["f"].rolling(5).max() - s["other"].rolling(9).min(),
}
FAMILIES = {
    "reductions": ["mean", "sum", "max", "min", "count", "std", "any", "trend", "normal"],
    "moved": ["itself", "logic", "change", "before", "later", "where", "where rolling", "delayed", "either"],
    "grids": ["window", "window max", "per", "per and itself"],
    "lasting": ["lasting", "lasting shifted", "lasting rolling"],
    "several": ["two columns", "two streams", "two rollings"],
}


@dataclass(frozen=True)
class Program:
    """Steps of a run: rows pushed to a side, a time that a side advances to, or None to save and go on."""

    steps: list[tuple[str, list[Row] | int] | None]
    lateness: int
    keys: tuple[str, ...]
    sequence: str | None

    def signals(self, late_to: Any = None) -> Signals:
        given: dict[str, Any] = {"time": "t", "sequence": self.sequence, "lateness": self.lateness}
        if late_to is not None:
            given["late_to"] = late_to
        a, b = pk.stream("a", SCHEMA, **given), pk.stream("b", SCHEMA, **given)
        by: dict[str, Any] = {"by": list(self.keys)} if self.keys else {}
        found = {name: a.signal(name, **by) for name in ("f", "x", "b")}
        return {**found, "lasting": a.signal("x", lasting=4, **by), "other": b.signal("f", **by)}

    def rows(self, side: str) -> list[Row]:
        pushed = (step for step in self.steps if step is not None and step[0] == side)
        return [row for _, given in pushed if isinstance(given, list) for row in given]


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [[]] * len(SCHEMA)
    arrays = []
    for column, field in zip(columns, SCHEMA, strict=True):
        encoded = pa.types.is_dictionary(field.type)
        array = pa.array(column, field.type.value_type if encoded else field.type)
        arrays.append(array.dictionary_encode() if encoded else array)
    return pa.record_batch(arrays, schema=SCHEMA)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    steps: list[tuple[str, list[Row] | int] | None] = []
    drift, spread = draw(st.integers(0, 5)), draw(st.sampled_from([0, 0, 4, 20]))
    at = dict.fromkeys("ab", draw(st.integers(-40, 0)))
    texts = draw(st.sampled_from([["a", "b", "", None], [*map(str, range(40)), None]]))
    rest = st.tuples(
        st.integers(0, 2),
        st.sampled_from(texts),
        st.sampled_from(["u", "v", None]),
        st.sampled_from([1, -1, None]),
        st.sampled_from([0.0, -0.0, 1.5, -2.25, float("nan"), float("inf"), float("-inf"), None]),
        st.none() | st.integers(0, 9),
        st.sampled_from([True, False, None]),
    )
    for _ in range(draw(st.integers(1, 12))):
        side = draw(st.sampled_from("aab"))
        match draw(st.sampled_from(["push", "push", "push", "push", "advance", "save"])):
            case "push":
                rows = []
                for _ in range(draw(st.integers(0, 10))):
                    at[side] += draw(st.integers(0, drift))
                    rows.append((at[side] + draw(st.integers(-spread, spread)), *draw(rest)))
                steps.append((side, rows))
            case "advance":
                steps.append((side, at[side] + draw(st.integers(-10, 20))))
            case _:
                steps.append(None)
    keys = draw(st.sampled_from([("k",), ("k",), ("n", "k"), ("e",), ("n",), ()]))
    return Program(
        steps, draw(st.sampled_from([0, 0, 3, 20])), keys, draw(st.sampled_from([None, None, "q"]))
    )


@contextmanager
def from_events(allowed: bool = True) -> Iterator[None]:
    """Go from event to event, or compute values anew at each push."""
    with ExitStack() as several:
        if not allowed:
            several.enter_context(switched_off(choose_signals, "event_obstacle"))
        yield


@contextmanager
def little_room() -> Iterator[None]:
    """Move samples and forget keys all the time, and stop kernels after few results."""
    limits = (samples, "FEWEST", 2), (table, "FEWEST_RESULTS", 2)
    with ExitStack() as several:
        for module, name, limit in limits:
            several.enter_context(patch.object(module, name, limit))
        yield


def run(program: Program, query: Any, engine: pk.Engine) -> tuple[list[list[Any]], Any]:
    """Return the results of each step, by key and start, and the run."""
    live, found = query.open(engine=engine), []
    for step in program.steps:
        if step is None:
            live = query.open(state=live.state().to_bytes(), engine=engine)
            continue
        side, given = step
        found.append(live.advance(given) if isinstance(given, int) else live.push({side: batch_of(given)}))
    found.append(live.finish())
    return [shown(batches) for batches in found], live


def shown(batches: Sequence[pa.RecordBatch | pa.Table]) -> list[tuple[Any, ...]]:
    """The rows in an order of their own: that of equal starts is not promised."""
    rows = (tuple(row.values()) for batch in batches for row in batch.to_pylist())
    return sorted((tuple(map(_rounded, row)) for row in rows), key=repr)


def _rounded(value: Any) -> Any:
    """A float to nine digits, as text; both zeros are one."""
    if not isinstance(value, float) or not math.isfinite(value):
        return repr(value) if isinstance(value, float) else value
    return f"{value:.9g}" if abs(value) > 1e-9 else "0"


def is_incremental(live: Any) -> bool:
    return any(isinstance(stage, IncrementalSignals) for stage in live._session._stages.values())


def _one_sided(program: Program, name: str) -> Program:
    """Leave out what is pushed to a stream that the query does not read."""
    if name.startswith("two s") or name == "two rollings":
        return program
    steps = [step for step in program.steps if step is None or step[0] == "a"]
    return Program(steps, program.lateness, program.keys, program.sequence)


@pytest.mark.parametrize("family", FAMILIES)
@effort(40)
@given(program=programs(), data=st.data())
def test_each_step_gives_what_values_computed_anew_give(
    family: str, program: Program, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(FAMILIES[family]))
    program = _one_sided(program, name)
    late: dict[bool, list[Any]] = {True: [], False: []}
    found = []
    for allowed in (True, False):
        signals = program.signals(lambda batch, allowed=allowed: late[allowed].extend(batch.to_pylist()))
        with from_events(allowed), little_room():
            results, live = run(program, QUERIES[name](signals), ONE_THREAD)
        assert is_incremental(live) is allowed
        counts = live.metrics
        assert counts.accepted + counts.late == counts.read
        found.append((results, counts.late, counts.accepted, counts.emitted))
    assert found[0] == found[1]
    assert repr(late[True]) == repr(late[False])


@pytest.mark.parametrize("family", FAMILIES)
@effort(15)
@given(program=programs(), data=st.data())
def test_either_way_goes_on_from_what_the_other_saved(
    family: str, program: Program, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(FAMILIES[family]))
    program = _one_sided(program, name)
    with from_events(False):
        wanted, _ = run(program, QUERIES[name](program.signals()), ONE_THREAD)
    ways, found = data.draw(st.lists(st.booleans(), min_size=20, max_size=20)), []
    with from_events(ways[0]):
        live = QUERIES[name](program.signals()).open(engine=ONE_THREAD)
    for number, step in enumerate(program.steps):
        if step is None:
            saved = live.state().to_bytes()
            with from_events(ways[number + 1]):
                live = QUERIES[name](program.signals()).open(state=saved, engine=ONE_THREAD)
            continue
        side, given = step
        found.append(live.advance(given) if isinstance(given, int) else live.push({side: batch_of(given)}))
    found.append(live.finish())
    assert [shown(batches) for batches in found] == wanted


@pytest.mark.parametrize("family", FAMILIES)
@effort(15)
@given(program=programs(), data=st.data())
def test_saved_states_are_equal_however_rows_were_pushed(
    family: str, program: Program, data: st.DataObject
) -> None:
    """Whether rows came one by one or together, and whether the run was interrupted before."""
    name = data.draw(st.sampled_from(FAMILIES[family]))
    program = _one_sided(program, name)
    query = QUERIES[name](program.signals())
    plain, single = query.open(engine=ONE_THREAD), query.open(engine=ONE_THREAD)
    for step in program.steps:
        if step is None:
            with little_room():
                single = query.open(state=single.state(), engine=ONE_THREAD)
            continue
        side, given = step
        if isinstance(given, int):
            plain.advance(given)
            single.advance(given)
            continue
        plain.push({side: batch_of(given)})
        for row in given:
            single.push({side: batch_of([row])})
    assert tables_of(plain) == tables_of(single)


def tables_of(live: Any) -> dict[str, Any]:
    state = live.state()
    return {name: data for name, data in state._chunks.items() if not name.startswith("metrics")}


@pytest.mark.parametrize("family", FAMILIES)
@effort(8)
@given(program=programs(), data=st.data())
def test_the_interpreter_runs_the_same_kernels(family: str, program: Program, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(FAMILIES[family]))
    program = _one_sided(program, name)
    query = QUERIES[name](program.signals())
    with little_room():
        assert run(program, query, INTERPRETED)[0] == run(program, query, ONE_THREAD)[0]


@pytest.mark.parametrize("rows", [1, 7, 100])
def test_a_long_stream_keeps_no_rounding_error(rows: int) -> None:
    """Large values leave without a trace: the last windows hold small ones only."""
    values = [1e16, 1.0, -1e16, float("inf"), float("nan"), *[0.1 * n for n in range(200)]]
    batch = pa.record_batch({"t": pa.array(range(len(values)), pa.int64()), "v": pa.array(values)})
    signal = pk.stream("s", batch.schema, time="t").signal("v").rolling(3).sum()
    live = signal.open(engine=ONE_THREAD)
    found = [
        row
        for b in range(0, len(batch), rows)
        for made in live.push(batch.slice(b, rows))
        for row in made.to_pylist()
    ]
    found += [row for made in live.finish() for row in made.to_pylist()]
    exact = {n: math.fsum(values[n - 2 : n + 1]) for n in range(8, len(values))}
    for row in found:
        if row["start"] in exact:
            assert row["value"] == pytest.approx(exact[row["start"]], rel=1e-12)


def test_what_is_not_an_expression_over_samples_is_computed_anew_and_says_why() -> None:
    signal = pk.stream("s", SCHEMA, time="t").signal("f")
    reasons = {
        "a span is a number of samples": signal.rolling(pk.rows(3)).mean(),
        "the output is not an expression": signal.resample(every=4),
        "the output is an expression over other expressions": (signal - signal.shift(1)).rolling(3).sum(),
        "the output has a value where its inputs have none": signal.shift(1).or_else(0.0),
        "median needs all values of a window": signal.rolling(3).median(),
    }
    for reason, query in reasons.items():
        shown_plan = str(query.explain(stage="physical"))
        assert "held: rows" in shown_plan
        assert reason in shown_plan
