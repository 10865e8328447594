"""Compiled signals = the tick-by-tick interpreter, in any batching, and each pass on = off."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import penstock as pk
from penstock.compile import compile_plan
from penstock.ir.interpret import interpret
from penstock.ir.samples import to_rows
from penstock.translate import to_ir
from tests.oracle.effort import effort
from tests.oracle.signal_cases import Case, cases, moved_cases, regular_cases


def interpreted(case: Case, *, pieces: bool = False) -> list[dict[str, Any]]:
    plan = case.signal.plan
    program = to_ir(replace(plan, program=replace(plan.program, pieces=pieces)))
    rows = {name: to_rows(table) for name, table in case.tables.items()}
    return interpret(program, rows)


def assert_same_pieces(case: Case, found: pa.Table) -> None:
    """Compare samples, too: whatever begins where nothing changes, does so because of a sample."""
    wanted = interpreted(case, pieces=True)
    assert_same(found, wanted)
    got, got_joined = _starts(to_rows(found)), _starts(to_rows(case.signal.collect()))
    want, want_joined = _starts(wanted), _starts(interpreted(case))
    assert got - got_joined <= want
    assert want - want_joined <= got


def _starts(rows: list[dict[str, Any]]) -> set[tuple[Any, int]]:
    return {(row.get("k"), row["start"]) for row in rows}


def assert_same(found: pa.Table, wanted: list[dict[str, Any]]) -> None:
    """Compare as functions of time: a tiny difference of floats may join neighbours or part them."""
    got, want = _by_key(to_rows(found)), _by_key(wanted)
    assert got.keys() == want.keys()
    for key in want:
        cuts = sorted(
            {
                t
                for rows in (got[key], want[key])
                for row in rows
                for t in (row["start"], row["end"])
                if t is not None
            }
        )
        for t in cuts:
            assert _close(_at(got[key], t), _at(want[key], t)), (key, t, got[key], want[key])


def _by_key(rows: list[dict[str, Any]]) -> dict[Any, list[dict[str, Any]]]:
    found: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row.get("k"), []).append(row)
    return found


def _at(rows: list[dict[str, Any]], t: int) -> Any:
    holding = [row["value"] for row in rows if row["start"] <= t and (row["end"] is None or t < row["end"])]
    assert len(holding) <= 1, "intervals of one key overlap"
    return holding[0] if holding else None


def _close(found: Any, wanted: Any) -> bool:
    if found is None or wanted is None:
        return found is wanted
    if math.isnan(found) or math.isnan(wanted):
        return math.isnan(found) and math.isnan(wanted)
    return found == wanted or math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-9)


@given(cases())
def test_compiled_equals_interpreted(case: Case) -> None:
    note(case.text)
    assert_same(case.signal.collect(), interpreted(case))


@given(cases(), st.data())
def test_any_batching_gives_the_same(case: Case, data: st.DataObject) -> None:
    note(case.text)
    wanted = interpreted(case)
    found = []
    tables = {name: table.sort_by("t") for name, table in case.tables.items()}
    with case.signal.open() as live:
        for name, batch in _pushes(tables, data):
            found += live.push(**{name: batch})
        found += live.finish()
    assert_same(pa.Table.from_batches(found, schema=case.signal.schema), wanted)


@given(moved_cases(), st.data())
@effort(300)
def test_a_run_begins_where_collect_does(case: Case, data: st.DataObject) -> None:
    """Any lateness and any batching, row by row too: run = collect = the interpreter."""
    note(case.text)
    wanted = interpreted(case)
    assert_same(case.signal.collect(), wanted)
    tables = {name: table.sort_by("t") for name, table in case.tables.items()}
    found = []
    with case.signal.open() as live:
        for name, batch in _pushes(tables, data):
            found += live.push(**{name: batch})
            if data.draw(st.integers(0, 9)) == 0:
                live = case.signal.open(state=live.state())
        found += live.finish()
    assert_same(pa.Table.from_batches(found, schema=case.signal.schema), wanted)


@given(moved_cases(), st.data())
@effort(120)
def test_a_run_of_samples_gives_those_of_collect(case: Case, data: st.DataObject) -> None:
    """The same of samples, behind which a window reads no ends: they leave as soon as they begin."""
    note(case.text)
    counts = case.signal.to_stream().window(5).agg(n=pk.count(), total=pk.count("value"))
    tables = {name: table.sort_by("t") for name, table in case.tables.items()}
    found = []
    with counts.open() as live:
        for name, batch in _pushes(tables, data):
            found += live.push(**{name: batch})
        found += live.finish()
        assert live.metrics.late == 0
    order = [("window_start", "ascending")]
    got = pa.Table.from_batches(found, schema=counts.schema).sort_by(order)
    assert got.to_pylist() == counts.collect().sort_by(order).to_pylist()


SHIFTED: dict[str, Callable[[pk.Signal], pk.Signal]] = {
    "shifted": lambda x: x.shift(7).or_else(0.0),
    "shifted where it is not defined": lambda x: x.where(lambda v: v > 5).shift(7).or_else(0.0),
    "interpolated between windows": lambda x: x.per(10).sum().resample(every=5),
    "interpolated between means": lambda x: x.per(10).time_mean().resample(every=3),
}


@pytest.mark.parametrize("lateness", [None, 0, 1, 50])
@pytest.mark.parametrize("which", SHIFTED)
def test_a_run_row_by_row_is_collect(which: str, lateness: int | None) -> None:
    table = pa.table({"t": [2, 20, 22, 25, 30, 41], "v": [3.0, 1.0, 4.0, 1.0, 2.0, 5.0]})
    stream = pk.from_arrow(table, time="t", name="s", lateness=lateness)
    signal = SHIFTED[which](stream.signal("v"))
    found = [
        row for batch in signal.run(iter(table.to_batches(max_chunksize=1))) for row in batch.to_pylist()
    ]
    assert found == signal.collect().to_pylist()


def _above(x: pk.Signal) -> pk.Signal:
    return x.where(lambda v: v > 5)


# Each has a value of its own where what it is made of has marks, or windows, without one.
BEGINNINGS: dict[str, Callable[[pk.Signal], pk.Signal]] = {
    "resampled": lambda x: (
        x.shift(-1).resample(every=1, method="last").rolling(1).count().cast("float64").or_else(7.0)
    ),
    "moved back": lambda x: x.shift(-1).rolling(1).count().cast("float64").or_else(7.0),
    "moved on": lambda x: x.shift(2).rolling(1).sum().or_else(7.0),
    "moved back and on": lambda x: x.shift(-4).rolling(2).sum().shift(2).or_else(7.0),
    "last samples": lambda x: _above(x).shift(-1).rolling(pk.rows(2)).sum().or_else(7.0),
    "in stages": lambda x: _above(x).shift(-1).rolling(2).median().or_else(7.0),
    "chopped": lambda x: _above(x).shift(-2).chop(2).rolling(2).sum().or_else(7.0),
    "aligned": lambda x: pk.align(a=_above(x).shift(-3), b=x)["a"].rolling(2).sum().or_else(7.0),
    "read by another": lambda x: _above(x).shift(-2).rolling(2).sum().or_else(7.0) + 1.0,
    "counted": lambda x: _above(x).shift(-2).rolling(2).sum().or_else(7.0).rolling(20).count(),
    "per": lambda x: _above(x).per(4).sum().or_else(7.0),
    "per, moved back": lambda x: _above(x).per(4).sum().shift(-5).or_else(7.0),
    "per, counted": lambda x: _above(x).per(4).sum().or_else(7.0).rolling(20).count(),
    "per, resampled": lambda x: _above(x).per(4).sum().resample(every=3),
    "per, chopped": lambda x: _above(x).per(4).sum().chop(3).rolling(3).count(),
    "window": lambda x: _above(x).window(4, every=2).sum().shift(-9).or_else(7.0),
    "window, counted": lambda x: _above(x).window(4, every=2).mean().or_else(7.0).rolling(20).count(),
    "window, resampled": lambda x: _above(x).window(4, every=2).max().resample(every=1, max_gap=3),
}
SPARSE: dict[str, dict[int, float | None]] = {
    "null first": {-1: None, 0: 0.0, 6: 8.0},
    "low first": {3: 1.0, 6: 10.0},
    "low between": {3: 1.0, 5: 2.0, 6: 10.0, 9: 1.0, 13: 7.0, 14: 1.0},
}


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("samples", SPARSE)
@pytest.mark.parametrize("which", BEGINNINGS)
def test_a_constant_begins_with_the_first_mark_of_what_it_completes(
    which: str, samples: str, keyed: bool
) -> None:
    """In one kernel, in stages, with marks, and row by row."""
    table = pa.table(
        {
            "t": pa.array(SPARSE[samples], pa.int64()),
            "v": pa.array(SPARSE[samples].values(), pa.float64()),
            "k": pa.array(["a"] * len(SPARSE[samples])),
        }
    )
    stream = pk.from_arrow(table, time="t", name="s", lateness=0)
    signal = BEGINNINGS[which](stream.signal("v", by="k") if keyed else stream.signal("v"))
    case = Case({"s": table}, signal, which)
    wanted = interpreted(case)
    assert_same(signal.collect(), wanted)
    assert_same(_unfused(case), wanted)
    assert_same(pa.Table.from_batches(signal.run(iter(table.to_batches(1))), schema=signal.schema), wanted)
    assert_same_pieces(case, signal.to_stream().collect())


@pytest.mark.parametrize("rolling", [False, True])
def test_feedback_begins_with_its_first_mark(rolling: bool) -> None:
    """What it reads may begin earlier, with a constant from the first sample of another stream on."""
    tables = {"a": pa.table({"t": [0], "v": [1.0]}), "b": pa.table({"t": [10], "v": [2.0]})}
    a, b = (pk.from_arrow(table, time="t", name=name).signal("v") for name, table in tables.items())
    smooth = pk.feedback(lambda y: y * 0.5 + b.or_else(1.0).shift(-5))
    read = smooth.rolling(2).sum() if rolling else smooth
    case = Case(tables, pk.align(x=read.or_else(7.0), a=a)["x"], "feedback")
    wanted = interpreted(case)
    assert wanted[0]["start"] == 0
    assert_same(case.signal.collect(), wanted)
    assert_same(_unfused(case), wanted)


@given(regular_cases())
def test_regular_samples_need_no_times(case: Case) -> None:
    note(case.text)
    assert_same(case.signal.collect(), interpreted(case))


@given(cases() | regular_cases())
def test_a_stream_of_a_signal_has_its_samples(case: Case) -> None:
    note(case.text)
    assert_same_pieces(case, case.signal.to_stream().collect())


@given(regular_cases(), st.integers(1, 7))
def test_a_stream_of_regular_samples_has_them_in_any_batching(case: Case, rows: int) -> None:
    note(case.text)
    stream = case.signal.to_stream()
    batches = {name: table.to_batches(max_chunksize=rows) for name, table in case.tables.items()}
    found = []
    with stream.open() as live:
        for turn in range(max(map(len, batches.values()), default=0)):
            for name, several in batches.items():
                found += live.push(**{name: several[turn]}) if turn < len(several) else []
        found += live.finish()
    assert_same_pieces(case, pa.Table.from_batches(found, schema=stream.schema))


@given(regular_cases(), st.integers(1, 7), st.integers(1, 2))
def test_regular_samples_in_any_batching(case: Case, rows: int, threads: int) -> None:
    note(case.text)
    wanted = case.signal.collect()
    batches = {name: table.to_batches(max_chunksize=rows) for name, table in case.tables.items()}
    found = []
    with case.signal.open(engine=pk.Engine(threads=threads)) as live:
        for turn in range(max(map(len, batches.values()), default=0)):
            for name, several in batches.items():
                found += live.push(**{name: several[turn]}) if turn < len(several) else []
        found += live.finish()
    assert_same(pa.Table.from_batches(found, schema=case.signal.schema), to_rows(wanted))


def _pushes(tables: dict[str, pa.Table], data: st.DataObject) -> list[tuple[str, pa.RecordBatch]]:
    """Single rows of all streams in order of time, so that none is late; some put together."""
    rows = sorted(
        (table["t"][i].as_py(), name, i) for name, table in tables.items() for i in range(table.num_rows)
    )
    cut = data.draw(st.integers(1, 3))
    made = []
    for _, name, i in rows:
        before = made[-1] if made else None
        if before is not None and before[0] == name and before[1][1] == i and i - before[1][0] < cut:
            made[-1] = (name, (before[1][0], i + 1))
        else:
            made.append((name, (i, i + 1)))
    return [
        (name, tables[name].slice(lo, hi - lo).combine_chunks().to_batches()[0]) for name, (lo, hi) in made
    ]


@given(cases())
@settings(max_examples=20)
def test_passes_change_nothing(case: Case) -> None:
    note(case.text)
    assert_same(_unfused(case), interpreted(case))


def _unfused(case: Case) -> pa.Table:
    session = compile_plan(case.signal.plan, frozenset({"fuse_signals"})).open(pk.Engine(), bounded=True)
    found = [
        batch for name, table in case.tables.items() for batch in session.push(name, *table.to_batches())
    ]
    found += session.finish()
    return pa.Table.from_batches(found, schema=case.signal.schema)
