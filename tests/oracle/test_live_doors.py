"""Rows pushed through every door of an open query, however split and gathered, give one answer.

The answer of `push` with one record batch for each step is the reference; where no row is late, it is compared with
`collect` and with the interpreter.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.ir.interpret import interpret
from penstock.ir.samples import to_rows
from penstock.translate import to_ir
from tests.oracle.effort import effort
from tests.unit.runtime.queries import QUERIES, SCHEMA, reported

COLUMNS = pa.schema({name: pa.string() if kind == "string" else pa.int64() for name, kind in SCHEMA.items()})
RIGHT = pa.schema({"t": pa.int64(), "k": pa.int64(), "w": pa.int64()})
pytestmark = pytest.mark.filterwarnings("ignore::penstock.LateRowsWarning")

Row = tuple[int, int, int, str | None]
Step = tuple[str, str, list[Row]]  # door, stream, rows; or ("advance" | "restart" | "flush", …)

DOORS = {
    "batch": lambda table: table.to_batches()[0],
    "table": lambda table: table,
    "small batches": lambda table: table.to_batches(max_chunksize=2),
    "dicts": lambda table: table.to_pylist(),
    "lists": lambda table: table.to_pydict(),
    "arrays": lambda table: {
        name: np.array(column.to_pylist()) if pa.types.is_int64(column.type) else column.to_pylist()
        for name, column in zip(table.column_names, table.columns, strict=True)
    },
    "polars": pl.from_arrow,
    "pandas": lambda table: pd.DataFrame(table.to_pandas(types_mapper=pd.ArrowDtype)),
}

ROWS = st.lists(
    st.tuples(
        st.integers(-30, 60), st.integers(0, 2), st.integers(0, 9), st.sampled_from(["ann", "bob", None])
    ),
    min_size=1,
    max_size=8,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(sorted(DOORS)), st.sampled_from(["left", "right"]), ROWS),
        st.tuples(st.just("each row"), st.sampled_from(["left", "right"]), ROWS),
        st.tuples(st.sampled_from(["restart", "flush"]), st.just(""), st.just([])),
        st.tuples(st.just("advance"), st.just(""), ROWS.map(lambda rows: rows[:1])),
    ),
    min_size=1,
    max_size=10,
)


def table_of(stream: str, rows: Sequence[Row]) -> pa.Table:
    columns = [list(row) for row in zip(*rows, strict=True)]
    if stream == "right":
        return pa.table(dict(zip(RIGHT.names, columns[:3], strict=True)), schema=RIGHT)
    return pa.table(dict(zip(COLUMNS.names, columns, strict=True)), schema=COLUMNS)


def reference(query: Any, steps: Sequence[Step]) -> tuple[list[str], pk.Metrics]:
    live, made = query.open(engine=pk.Engine(threads=1)), []
    for door, stream, rows in steps:
        if door == "advance":
            made += live.advance(rows[0][0])
        elif stream in query.names:
            made += live.push({stream: table_of(stream, rows).to_batches()[0]})
    made += live.finish()
    return sorted(reported(made)), live.metrics


def in_turn(query: Any, steps: Sequence[Step], **options: Any) -> tuple[list[str], pk.Metrics]:
    """Push as the steps say; in the background if the options do."""
    live, made = query.open(**options), []
    for door, stream, rows in steps:
        match door:
            case "advance":
                made += live.advance(rows[0][0]) or []
            case "restart":
                if options:
                    live.flush()
                    made += live.ready()
                state = live.state()
                if options:
                    live.close()
                live = query.open(state=state, **options)
            case "flush":
                made += live.wait() if not options else []
            case "each row":
                for row in rows if stream in query.names else []:
                    made += live.push({stream: table_of(stream, [row]).to_pylist()[0]}) or []
            case _ if stream in query.names:
                made += live.push({stream: DOORS[door](table_of(stream, rows))}) or []
    made += live.finish() or []
    made += list(live) if options else []
    return sorted(reported(made)), live.metrics


async def in_coroutines(query: Any, steps: Sequence[Step]) -> list[str]:
    async with query.open(background=True, max_delay="0s", queue_rows=3) as live:

        async def produce() -> None:
            for door, stream, rows in steps:
                if door == "advance":
                    live.advance(rows[0][0])
                elif stream in query.names:
                    await live.push_async(**{stream: table_of(stream, rows)})
            await live.finish_async()

        producer = asyncio.create_task(produce())
        made = [batch async for batch in live]
        await producer
    return sorted(reported(made))


def by_writer(query: Any, steps: Sequence[Step], **options: Any) -> list[str]:
    """Commit the rows of streams without texts, and push those of others."""
    live, made = query.open(**options), []
    writer = live.writer(capacity=3, stream="right")
    for door, stream, rows in steps:
        if door == "advance":
            made += live.advance(rows[0][0]) or []
        elif stream == "left":
            made += live.push(left=table_of(stream, rows)) or []
        else:
            for begin in range(0, len(rows), 3):
                part = rows[begin : begin + 3]
                for place, name in enumerate(RIGHT.names):
                    if name in writer:
                        writer[name][: len(part)] = [row[place] for row in part]
                made += writer.commit(len(part))
    made += live.finish() or []
    return sorted(reported(made + (list(live) if options else [])))


@pytest.mark.parametrize("name", QUERIES)
@effort(8)
@given(steps=STEPS)
def test_every_door_gives_one_answer(name: str, steps: list[Step]) -> None:
    query = QUERIES[name]()
    expected, counted = reference(query, steps)
    for options in ({}, {"background": True, "max_delay": "0s"}, {"background": True, "queue_rows": 2}):
        answer, metrics = in_turn(query, [step for step in steps if step[0] != "restart"], **options)
        assert answer == expected, options
        found = {**metrics.counts, "batches": 0}
        assert found == {**counted.counts, "batches": 0}, options
    assert in_turn(query, steps)[0] == expected
    assert in_turn(query, steps, background=True)[0] == expected
    assert asyncio.run(in_coroutines(query, steps)) == expected


JOINS = [name for name in QUERIES if "join" in name]


@pytest.mark.parametrize("name", JOINS)
@effort(8)
@given(steps=STEPS)
def test_committed_rows_give_the_answer_of_pushed_ones(name: str, steps: list[Step]) -> None:
    query, pushed = QUERIES[name](), [step for step in steps if step[1] or step[0] == "advance"]
    expected, _ = reference(query, pushed)
    assert by_writer(query, pushed) == expected
    assert by_writer(query, pushed, background=True) == expected


EXACT = ["window", "window by text behind a filter", "session", "count", "rolling rows", "distinct"]


@pytest.mark.parametrize("name", EXACT)
@effort(8)
@given(rows=ROWS, size=st.integers(1, 4), door=st.sampled_from(sorted(DOORS)))
def test_rows_in_order_give_the_answer_of_collect_and_of_the_interpreter(
    name: str, rows: list[Row], size: int, door: str
) -> None:
    query, ordered = QUERIES[name](), sorted(rows, key=lambda row: row[0])
    table = table_of("left", ordered)
    steps = [(door, "left", ordered[begin : begin + size]) for begin in range(0, len(ordered), size)]
    answer, metrics = in_turn(query, steps, background=True)
    assert (metrics.late, metrics.partly_late) == (0, 0)
    assert answer == sorted(reported(query.collect(left=table).to_batches()))
    assert answer == sorted(map(repr, interpret(to_ir(query.plan), {"left": to_rows(table)})))


@effort(8)
@given(steps=STEPS)
def test_a_state_that_was_saved_in_the_background_resumes_anywhere(steps: list[Step]) -> None:
    query = QUERIES["sliding"]()
    steps = [step for step in steps if step[1] or step[0] == "advance"]
    half = len(steps) // 2
    expected, _ = reference(query, steps)
    made: list[pa.RecordBatch] = []
    with tempfile.TemporaryDirectory() as folder, query.open(background=True) as live:
        path = str(Path(folder) / "state")
        for door, stream, rows in steps[:half]:
            if door == "advance":
                live.advance(rows[0][0])
            elif stream == "left":
                live.push(table_of(stream, rows))
        live.flush()
        made += live.ready()
        live.save(path)
        rest = query.open(state=path)
    for door, stream, rows in steps[half:]:
        if door == "advance":
            made += rest.advance(rows[0][0])
        elif stream == "left":
            made += rest.push(table_of(stream, rows))
    assert sorted(reported(made + rest.finish())) == expected
