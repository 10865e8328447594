"""Joins that hold rows in lists per key: the same results and counts as rows sorted anew at each push, whatever is pushed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.algorithms.keyed_states import row_store
from penstock.operators.joins import asof, incremental, incremental_interval, incremental_overlap
from penstock.operators.joins.incremental import IncrementalJoinStage
from penstock.operators.joins.window_runs import WindowJoinStage
from penstock.physical import choose_join
from tests.oracle.effort import effort
from tests.oracle.join_cases import JOIN_KINDS
from tests.oracle.plans import switched_off

SCHEMA = pa.schema(
    {
        "t": pa.int64(),
        "q": pa.int64(),
        "k": pa.string(),
        "f": pa.float64(),
        "x": pa.int64(),
        "b": pa.bool_(),
        "d": pa.decimal128(9, 2),
        "e": pa.dictionary(pa.int32(), pa.string()),
    }
)
ONE_THREAD, INTERPRETED = pk.Engine(threads=1), pk.Engine(threads=1, backend="interpret")
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Program:
    """Steps of a run: rows pushed to a side, a time that a side advances to, or None to save and go on."""

    steps: list[tuple[str, list[Row] | int] | None]
    lateness: int
    keys: tuple[str, ...]
    sequence: str | None

    def streams(self, **more: Any) -> tuple[Any, Any]:
        given = {"time": "t", "sequence": self.sequence, "lateness": self.lateness, **more}
        return pk.stream("a", SCHEMA, **given), pk.stream("b", SCHEMA, **given)

    def rows(self, side: str) -> list[Row]:
        pushed = (step for step in self.steps if step is not None and step[0] == side)
        return [row for _, given in pushed if isinstance(given, list) for row in given]


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [[]] * len(SCHEMA)
    arrays = []
    for column, field in zip(columns, SCHEMA, strict=True):
        plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        array = pa.array(column, plain)
        arrays.append(array.dictionary_encode() if plain != field.type else array)
    return pa.record_batch(arrays, schema=SCHEMA)


@st.composite
def programs(draw: st.DrawFn, *, keys_are_few: bool = True) -> Program:
    steps: list[tuple[str, list[Row] | int] | None] = []
    drift, spread = draw(st.integers(0, 5)), draw(st.sampled_from([0, 0, 4, 20]))
    at = dict.fromkeys("ab", draw(st.integers(-40, 0)))
    texts = ["a", "b", "", "ü", None] if keys_are_few else [*map(str, range(40)), None]
    rest = st.tuples(
        st.integers(0, 2),
        st.sampled_from(texts),
        st.sampled_from([0.0, -0.0, float("nan"), None]),
        st.none() | st.integers(0, 9),
        st.sampled_from([True, False, None]),
        st.sampled_from([Decimal("1.25"), None]),
        st.sampled_from(["u", "v", None]),
    )
    for _ in range(draw(st.integers(1, 12))):
        side = draw(st.sampled_from("ab"))
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
    by = draw(st.sampled_from([("k",), ("k",), ("f", "k"), ("b",), ("e",), ()]))
    return Program(steps, draw(st.sampled_from([0, 0, 3, 20])), by, draw(st.sampled_from([None, None, "q"])))


Build = Callable[[Program, Any, Any], Any]


def _interval(how: str, within: tuple[int, int], where: bool = False) -> Build:
    condition = {"where": pk.left("x") <= pk.right("x")} if where else {}
    left, right = ("t", "k", "f", "x", "b"), ("t", "k", "f", "x", "b", "d")
    return lambda program, a, b: (a.select(*left) if where else a).join(
        b.select(*right) if where else b,
        on=[key for key in program.keys if not where or key in left] or None,
        within=within,
        how=how,
        **condition,
    )


def _asof(direction: str, tolerance: int | None, exact: bool) -> Build:
    options = {"direction": direction, "tolerance": tolerance, "allow_exact_matches": exact}
    return lambda program, a, b: a.join_asof(b, by=list(program.keys) or None, **options)


INTERVALS: dict[str, Build] = {
    **{
        f"{how} {within}": _interval(how, within)
        for how in JOIN_KINDS
        for within in ((-5, 5), (-7, -2), (2, 7))
    },
    **{f"{how} where": _interval(how, (-4, 6), where=True) for how in JOIN_KINDS},
}
ASOF: dict[str, Build] = {
    f"asof {direction} {tolerance} {exact}": _asof(direction, tolerance, exact)
    for direction in ("backward", "forward", "nearest")
    for tolerance in (None, 4)
    for exact in (True, False)
}


def _rolling(within: tuple[int, int], **fields: Any) -> Build:
    return lambda program, a, b: a.join_rolling(b, by=list(program.keys) or None, within=within).agg(**fields)


SUBTRACTED = {"s": pk.sum("x"), "n": pk.count(), "c": pk.count("x"), "m": pk.mean("x")}
STACKED = {
    "lo": pk.min("x"),
    "hi": pk.max("f"),
    "p": pk.product("x"),
    "l": pk.max_by("x", "f"),
    "some": pk.any("b"),
}
ROLLING: dict[str, Build] = {
    f"rolling {name} {within}": _rolling(within, **fields)
    for name, fields in (("subtracted", SUBTRACTED), ("stacked", STACKED))
    for within in ((-5, 0), (-8, 4), (1, 5), (-9, -3))
}


def _sessions(how: str, gap: int, where: bool = False) -> Build:
    """Join in sessions; rows without a key have sessions, too."""

    def build(program: Program, a: Any, b: Any) -> Any:
        on = [key for key in program.keys if not where or key != "e"]
        condition = {"where": pk.left("x") <= pk.right("x")} if where or not on else {}
        sides = (a.drop("e"), b.drop("e")) if condition else (a, b)
        return sides[0].join(sides[1], on=on or None, window=pk.session(gap), how=how, **condition)

    return build


SESSIONS: dict[str, Build] = {
    **{f"{how} sessions {gap}": _sessions(how, gap) for how in JOIN_KINDS for gap in (1, 6)},
    **{f"{how} sessions where": _sessions(how, 3, where=True) for how in JOIN_KINDS},
}


def _windows(window: Any, how: str, where: bool = False, algorithm: str = "auto") -> Build:
    def build(program: Program, a: Any, b: Any) -> Any:
        on = [key for key in program.keys if not where or key != "e"]
        condition = {"where": pk.left("x") <= pk.right("x")} if where or not on else {}
        sides = (a.drop("e"), b.drop("e")) if condition else (a, b)
        given = {"algorithm": algorithm} if on and algorithm != "auto" else {}
        return sides[0].join(sides[1], on=on or None, window=window, how=how, **condition, **given)

    return build


APART: dict[str, Any] = {
    "tumbling": pk.tumbling(7, offset=2),
    "gaps": pk.sliding(4, 9, offset=-3),
    "all": pk.unbounded(),
}
OVERLAPPING: dict[str, Any] = {
    "sliding": pk.sliding(8, 3, offset=1),
    "several": pk.sliding(20, 2),
    "two": (pk.sliding(9, 3), pk.sliding(4, 3, offset=2)),
    "two apart": (pk.tumbling(6), pk.sliding(2, 6, offset=4)),
}
WINDOWS: dict[str, Build] = {
    **{f"{how} {name}": _windows(window, how) for name, window in APART.items() for how in JOIN_KINDS},
    **{f"{how} tumbling where": _windows(APART["tumbling"], how, where=True) for how in JOIN_KINDS},
    "npj": _windows(APART["tumbling"], "full", algorithm="npj"),
    "npj sliding": _windows(OVERLAPPING["sliding"], "left", algorithm="npj"),
}
OVERLAPS: dict[str, Build] = {
    **{f"{how} {name}": _windows(window, how) for name, window in OVERLAPPING.items() for how in JOIN_KINDS},
    **{f"{how} sliding where": _windows(OVERLAPPING["sliding"], how, where=True) for how in JOIN_KINDS},
}
QUERIES = {**INTERVALS, **ASOF, **ROLLING, **SESSIONS, **WINDOWS, **OVERLAPS}
FAMILIES = {
    "pairs": [name for name in INTERVALS if name.startswith("inner") or "where" in name],
    "outer": [name for name in INTERVALS if name.startswith(("left (", "right (", "full ("))],
    "left rows": [name for name in INTERVALS if name.startswith(("semi (", "anti ("))],
    "asof": list(ASOF),
    "rolling": list(ROLLING),
    "sessions": list(SESSIONS),
    "windows": list(WINDOWS),
    "overlapping windows": list(OVERLAPS),
}


@contextmanager
def lists(allowed: bool = True) -> Iterator[None]:
    """Hold rows in lists, or have them sorted at each push."""
    with ExitStack() as several:
        if not allowed:
            several.enter_context(switched_off(choose_join, "_no_lists", "_no_runs"))
        yield


@contextmanager
def little_room() -> Iterator[None]:
    """Compact stores and forget keys all the time, and stop kernels after a few pairs."""
    limits = (
        (row_store, "FEWEST_DEAD", 2),
        (row_store, "MOST_NEW_KEYS", 2),
        (asof, "FEWEST_DEAD", 2),
    )
    limits += (incremental, "FEWEST_DEAD", 2), (incremental, "_CHUNK", 2)
    limits += (incremental_interval, "FEWEST_PAIRS", 1), (incremental_interval, "MOST_PAIRS", 4)
    limits += ((incremental_overlap, "MOST_PAIRS", 3),)
    with ExitStack() as several:
        for module, name, limit in limits:
            several.enter_context(patch.object(module, name, limit))
        yield


def run(program: Program, query: Any, engine: pk.Engine) -> tuple[list[list[str]], Any]:
    """Return the results of each step in order, and the counts."""
    live, found = query.open(engine=engine), []
    for step in program.steps:
        if step is None:
            live = query.open(state=live.state().to_bytes(), engine=engine)
            continue
        side, given = step
        made = live.advance(given) if isinstance(given, int) else live.push({side: batch_of(given)})
        found.append(made)
    found.append(live.finish())
    return [shown(batches) for batches in found], live


def shown(batches: Sequence[pa.RecordBatch | pa.Table]) -> list[str]:
    """The rows in order; both zeros are one value."""
    rows = (row for batch in batches for row in batch.to_pylist())
    return [repr({n: v + 0.0 if isinstance(v, float) else v for n, v in row.items()}) for row in rows]


def is_incremental(live: Any) -> bool:
    incremental = IncrementalJoinStage | WindowJoinStage
    return any(isinstance(stage, incremental) for stage in live._session._stages.values())


@pytest.mark.parametrize("family", FAMILIES)
@effort(50)
@given(data=st.data())
def test_each_step_gives_what_sorted_rows_give(family: str, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(FAMILIES[family]))
    program = data.draw(programs(keys_are_few=data.draw(st.booleans())))
    late: dict[bool, list[Any]] = {True: [], False: []}
    found = []
    for allowed in (True, False):
        sides = program.streams(
            late_to=lambda batch, allowed=allowed: late[allowed].extend(batch.to_pylist())
        )
        with lists(allowed), little_room():
            results, live = run(program, QUERIES[name](program, *sides), ONE_THREAD)
        assert is_incremental(live) is allowed
        counts = live.metrics
        assert counts.accepted + counts.late == counts.read
        found.append((results, counts.late, counts.accepted, counts.emitted))
    assert found[0] == found[1]
    assert repr(late[True]) == repr(late[False])


@pytest.mark.parametrize("family", FAMILIES)
@effort(20)
@given(program=programs(), data=st.data())
def test_saved_states_are_equal_however_rows_were_pushed(
    family: str, program: Program, data: st.DataObject
) -> None:
    """Whether rows came one by one or together, and whether the run was interrupted before."""
    query = QUERIES[data.draw(st.sampled_from(FAMILIES[family]))](program, *program.streams())
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
@effort(12)
@given(program=programs(), data=st.data())
def test_the_interpreter_runs_the_same_kernels(family: str, program: Program, data: st.DataObject) -> None:
    query = QUERIES[data.draw(st.sampled_from(FAMILIES[family]))](program, *program.streams())
    with little_room():
        assert run(program, query, INTERPRETED)[0] == run(program, query, ONE_THREAD)[0]


@pytest.mark.parametrize("family", FAMILIES)
@effort(20)
@given(program=programs(), data=st.data())
def test_rows_in_time_give_what_collect_gives(family: str, program: Program, data: st.DataObject) -> None:
    steps = [step if step is None or isinstance(step[1], list) else None for step in program.steps]
    program = Program(steps, 1000, program.keys, program.sequence)
    query = QUERIES[data.draw(st.sampled_from(FAMILIES[family]))](program, *program.streams())
    results, _ = run(program, query, ONE_THREAD)
    tables = {side: pa.Table.from_batches([batch_of(program.rows(side))]) for side in "ab"}
    whole = query.collect(tables, engine=ONE_THREAD)
    assert [row for step in results for row in step] == shown([whole])
