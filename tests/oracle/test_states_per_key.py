"""States per key between pushes: the same results and counts as rows sorted anew at each push, whatever is pushed."""

from __future__ import annotations

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
from penstock.algorithms.keyed_states import row_store
from penstock.operators.sorted_windows import listed_counts
from tests.oracle.effort import effort

SCHEMA = pa.schema(
    {"t": pa.int64(), "q": pa.int64(), "k": pa.string(), "f": pa.float64(), "v": pa.int64(), "w": pa.int8()}
)
# A forced algorithm reduces rows: the same query without states per key.
KEYED, SORTED = pk.Engine(threads=1), pk.Engine(threads=1, aggregator="two-stacks")
INTERPRETED = pk.Engine(threads=1, backend="interpret")

Row = tuple[int, int, str | None, float | None, int | None, int | None]


@dataclass(frozen=True)
class Program:
    """Steps of a run: rows pushed, a time to advance to, or None to save and go on from the saved state."""

    steps: list[list[Row] | int | None]
    lateness: int
    keys: tuple[str, ...]
    gap: int

    def stream(self, **more: Any) -> Any:
        return pk.stream("s", SCHEMA, time="t", sequence="q", lateness=self.lateness, **more)

    @property
    def rows(self) -> list[Row]:
        return [row for step in self.steps if isinstance(step, list) for row in step]


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [[]] * len(SCHEMA)
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    steps: list[list[Row] | int | None] = []
    drift, spread, at = draw(st.integers(0, 5)), draw(st.integers(0, 30)), draw(st.integers(-40, 0))
    keys = st.sampled_from(["a", "b", "c", "", None])
    floats = st.sampled_from([0.0, -0.0, 1.5, float("nan"), None])
    numbers = st.none() | st.integers(-(1 << 62), 1 << 62)
    for _ in range(draw(st.integers(1, 8))):
        match draw(st.sampled_from(["push", "push", "push", "advance", "save"])):
            case "push":
                rows = []
                for _ in range(draw(st.integers(0, 12))):
                    at += drift
                    time = at + draw(st.integers(-spread, spread))
                    rest = draw(
                        st.tuples(st.integers(0, 3), keys, floats, numbers, st.none() | st.integers(-5, 5))
                    )
                    rows.append((time, *rest))
                steps.append(rows)
            case "advance":
                steps.append(at + draw(st.integers(-10, 20)))
            case _:
                steps.append(None)
    by = draw(st.sampled_from([("k",), ("f", "k"), ()]))
    return Program(steps, draw(st.sampled_from([0, 3, 20])), by, draw(st.integers(1, 15)))


def run(program: Program, query: Any, engine: pk.Engine) -> tuple[list[list[dict[str, Any]]], Any]:
    """Return the results of each step, in a fixed order, and the counts."""
    live, found = query.open(engine=engine), []
    for step in program.steps:
        if step is None:
            live = query.open(state=live.state().to_bytes(), engine=engine)
            continue
        found.append(live.advance(step) if isinstance(step, int) else live.push(batch_of(step)))
    found.append(live.finish())
    return [rows_of(batches) for batches in found], live.metrics


def rows_of(batches: Sequence[pa.RecordBatch | pa.Table]) -> list[dict[str, Any]]:
    """The rows in a fixed order; which zero of several is the greatest depends on their order."""
    rows = (row for batch in batches for row in batch.to_pylist())
    return sorted(
        ({n: v + 0.0 if isinstance(v, float) else v for n, v in row.items()} for row in rows), key=repr
    )


def _exact(window: Any) -> Any:
    """Aggregates whose results do not depend on the order of additions."""
    return window.agg(
        s=pk.sum("w"), n=pk.count(), c=pk.count("v"), lo=pk.min("v"), hi=pk.max("f"), p=pk.product("w"),
        some=pk.count(where=pk.col("w") > 0), best=pk.max_by("w", "v"), any_=pk.any(pk.col("w") > 3),
    )  # fmt: skip


def _window(of: Callable[[int], Any]) -> Callable[[Program, Any], Any]:
    return lambda program, stream: _exact(stream.window(of(program.gap), by=list(program.keys) or None))


def _look_back(
    of: Callable[[int], Any], closed: str, aggregated: Callable[[Any], Any]
) -> Callable[[Program, Any], Any]:
    return lambda program, stream: aggregated(
        stream.rolling(of(program.gap), by=list(program.keys) or None, closed=closed)
    )


def _subtracted(back: Any) -> Any:
    return back.with_columns(s=pk.sum("w"), m=pk.mean("v"), n=pk.count(), c=pk.count(where=pk.col("w") > 0))


def _floats(back: Any) -> Any:
    return back.agg(s=pk.sum("f"), hi=pk.max("v"))


def _of_all_values(window: Any) -> Any:
    """Aggregates that need all values of a window."""
    return window.agg(
        m=pk.median("f"), q=pk.quantile("v", 0.3), d=pk.count_distinct("w"), mo=pk.mode("w"),
        a=pk.col("v").first(), z=pk.col("v").last(), l=pk.list("w"), s=pk.sum("w"),
    )  # fmt: skip


def _ranked(back: Any) -> Any:
    """Aggregates that search trees answer, and one that states do."""
    return back.agg(
        m=pk.median("f"), q=pk.quantile("w", 0.3), d=pk.count_distinct("f"), e=pk.count_distinct("v"),
        n=pk.count_distinct("w", where=pk.col("v") > 0), o=pk.median("w", where=pk.col("v") > 0), hi=pk.max("v"),
    )  # fmt: skip


def _repeated(window: Any) -> Any:
    return window.with_columns(s=pk.sum("w"), m=pk.median("f"))


def _applied(window: Any) -> Any:
    schema = {"n": "int64", "v": "int64"}
    return window.apply(lambda rows: rows.select(["v"]).add_column(0, "n", [[len(rows)] * len(rows)]), schema)


def _rows(
    every: Callable[[int], int], aggregated: Callable[[Any], Any], partial: bool = False
) -> Callable[[Program, Any], Any]:
    """Windows of rows; a window begins every `every(gap)` rows of a key."""
    return lambda program, stream: aggregated(
        stream.window(
            pk.rows(program.gap, every=every(program.gap), partial=partial), by=list(program.keys) or None
        )
    )


ROWS: dict[str, Callable[[Program, Any], Any]] = {
    "rows that overlap": _rows(lambda size: max(size // 3, 1), _exact),
    "rows that overlap, of all values": _rows(lambda size: 1, _of_all_values),
    "rows that overlap, partly": _rows(lambda size: max(size // 2, 1), _of_all_values, partial=True),
    "rows of all values": _rows(lambda size: size, _of_all_values),
    "rows of all values apart": _rows(lambda size: size + 3, _of_all_values, partial=True),
    "repeated rows": _rows(lambda size: size, _repeated),
    "repeated rows that overlap": _rows(lambda size: max(size // 2, 1), _repeated, partial=True),
    "rows of a function": _rows(lambda size: max(size // 2, 1), _applied),
}
WINDOWS: dict[str, Callable[[Program, Any], Any]] = {
    "session": _window(pk.session),
    "rows": _window(pk.rows),
    "rows apart": _window(lambda gap: pk.rows(gap, every=gap + 2, partial=True)),
    "span": _look_back(lambda gap: gap, "right", _exact),
    "span subtracted": _look_back(lambda gap: gap, "both", _subtracted),
    "span without the row": _look_back(lambda gap: gap, "left", _subtracted),
    "span of floats": _look_back(lambda gap: gap, "none", _floats),
    "last rows": _look_back(pk.rows, "right", _exact),
    "last rows subtracted": _look_back(pk.rows, "right", _subtracted),
    "last rows without the row": _look_back(pk.rows, "left", _floats),
    "span of all values": _look_back(lambda gap: gap, "right", _ranked),
    "last rows of all values": _look_back(pk.rows, "left", _ranked),
    "several spans of all values": _look_back(lambda gap: [gap, 2 * gap, pk.rows(gap)], "left", _ranked),
    "several spans": _look_back(lambda gap: [gap, gap + 5, pk.rows(3)], "right", _subtracted),
    "several spans of floats": _look_back(lambda gap: [pk.rows(gap), 2 * gap], "left", _floats),
    **ROWS,
}


@contextmanager
def little_room() -> Iterator[None]:
    """Compact stores and forget keys all the time, and gather few rows at once."""
    limits = (
        (listed_counts, "FEWEST_DEAD", 2),
        (listed_counts, "FEWEST_PLACES", 1),
        (listed_counts, "MOST_GATHERED", 4),
        (listed_counts, "CHUNK", 2),
        (row_store, "MOST_NEW_KEYS", 2),
    )
    with ExitStack() as several:
        for module, name, limit in limits:
            several.enter_context(patch.object(module, name, limit))
        yield


@pytest.mark.parametrize("window", WINDOWS)
@effort(15)
@given(program=programs())
def test_each_step_gives_what_sorted_rows_give(window: str, program: Program) -> None:
    late: dict[int, list[Any]] = {0: [], 1: []}
    found = []
    for place, engine in enumerate((KEYED, SORTED)):
        stream = program.stream(late_to=lambda batch, place=place: late[place].extend(batch.to_pylist()))
        query = WINDOWS[window](program, stream)
        with little_room():
            results, metrics = run(program, query, engine)
        found.append((results, metrics.late, metrics.accepted, metrics.emitted))
        assert metrics.accepted + metrics.late == metrics.read == len(program.rows)
    assert repr(found[0]) == repr(found[1])
    assert repr(late[0]) == repr(late[1])


@pytest.mark.parametrize("window", WINDOWS)
@effort(8)
@given(program=programs())
def test_saved_states_are_equal_however_rows_were_pushed(window: str, program: Program) -> None:
    """Whether rows came one by one or together, and whether the run was interrupted before."""
    query = WINDOWS[window](program, program.stream())
    plain, single = query.open(engine=KEYED), query.open(engine=KEYED)
    for step in program.steps:
        if isinstance(step, int):
            plain.advance(step)
            single.advance(step)
        elif step is None:
            single = query.open(state=single.state(), engine=KEYED)
        else:
            plain.push(batch_of(step))
            for row in step:
                single.push(batch_of([row]))
    assert tables_of(plain) == tables_of(single)


def tables_of(live: Any) -> dict[str, Any]:
    state = live.state()
    return {name: data for name, data in state._chunks.items() if not name.startswith("metrics")}


@pytest.mark.parametrize("window", WINDOWS)
@effort(6)
@given(program=programs())
def test_the_interpreter_runs_the_same_kernels(window: str, program: Program) -> None:
    query = WINDOWS[window](program, program.stream())
    assert repr(run(program, query, INTERPRETED)[0]) == repr(run(program, query, KEYED)[0])


@pytest.mark.parametrize("window", WINDOWS)
@effort(8)
@given(program=programs())
def test_rows_in_time_give_what_collect_gives(window: str, program: Program) -> None:
    steps = [step if isinstance(step, list) else None for step in program.steps]
    program = Program(steps, 1000, program.keys, program.gap)
    query = WINDOWS[window](program, program.stream())
    results, _ = run(program, query, KEYED)
    whole = query.collect(pa.Table.from_batches([batch_of(program.rows)]), engine=KEYED)
    assert repr(rows_of([whole])) == repr(sorted((row for step in results for row in step), key=repr))
