"""Unions of computed streams with plain rows: the answer is the interpreter's, and every row is counted once."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.ir.interpret import interpret
from penstock.ir.samples import to_rows
from penstock.translate import to_ir
from tests.oracle.effort import effort

Operator = Callable[[Any, Any], Any]
SCHEMA = pa.schema({"t": pa.int64(), "k": pa.int64(), "v": pa.int64()})
TABLE = pk.table(pa.table({"k": [0, 1], "w": [5, 6]}), name="names")


def shaped(stream: Any, time: str, value: str) -> Any:
    """Give a result the columns of the plain rows, so that it can be united with them."""
    columns = stream.select(t=pk.col(time), k=pk.col("k"), v=pk.col(value))
    return columns.drop(*(name for name in ("window_start", "window_end") if name in columns.schema.names))


# Each takes a stream and another one to meet, both with the columns t, k and v, and gives such a stream.
PASSING: dict[str, Operator] = {
    "filter": lambda s, _: s.filter(pk.col("v") > 0),
    "select": lambda s, _: s.select("t", "k", v=pk.col("v") + 1),
    "lookup": lambda s, _: s.join(TABLE, on="k").select("t", "k", v=pk.col("v") + pk.col("w")),
    "lookup semi": lambda s, _: s.join(TABLE, on="k", how="semi"),
}
COMPUTED: dict[str, Operator] = {
    "distinct": lambda s, _: s.distinct(["t", "k", "v"]),
    "distinct last": lambda s, _: s.distinct(["t", "k", "v"], keep="last"),
    "distinct within": lambda s, _: s.distinct(["k", "v"], within=5),
    "rolling": lambda s, _: shaped(s.rolling(5, by="k").agg(n=pk.sum("v")), "t", "n"),
    "rolling rows": lambda s, _: shaped(s.rolling(5, by="k").with_columns(n=pk.count()), "t", "n"),
    "attach": lambda s, _: shaped(s.window(5, by="k").with_columns(n=pk.sum("v")), "t", "n"),
    "attach sliding": lambda s, _: shaped(s.window(6, every=4).with_columns(n=pk.count()), "t", "n"),
    "attach session": lambda s, _: shaped(
        s.window(pk.session(3), by="k").with_columns(n=pk.count()), "t", "n"
    ),
    "attach unbounded": lambda s, _: shaped(
        s.window(pk.unbounded(), by="k").with_columns(n=pk.count()), "t", "n"
    ),
    "top_k": lambda s, _: shaped(
        s.window(5).with_columns(n=pk.count()).top_k(2, by="v", ties="all"), "t", "v"
    ),
    "semi": lambda s, other: s.join(other, on="k", within=(-4, 2), how="semi"),
    "anti": lambda s, other: s.join(other, on="k", window=pk.tumbling(6), how="anti"),
    "anti sliding": lambda s, other: s.join(other, on="k", window=pk.sliding(6, 3), how="anti"),
    "interval join": lambda s, other: shaped(s.join(other, on="k", within=(-3, 3)), "join_time", "v_right"),
    "window join": lambda s, other: shaped(
        s.join(other, on="k", window=pk.tumbling(5)), "join_time", "v_right"
    ),
    "asof": lambda s, other: s.join_asof(
        other.window(2, by="k").agg(w=pk.sum("v")), by="k", allow_exact_matches=False
    ).select("t", "k", v=pk.col("w")),
    "join_rolling": lambda s, other: shaped(
        s.join_rolling(other, by="k", within=(-5, 1)).agg(n=pk.count()), "t", "n"
    ),
    "signal": lambda s, _: shaped(
        s.signal("v", by="k", resolve="max").rolling(4).sum().to_stream("sum"), "start", "sum"
    ),
}
OPERATORS = PASSING | COMPUTED


def rows(r: Random, late: bool, sizes: tuple[int, ...] = (0, 1, 5, 14)) -> pa.Table:
    times = [r.randint(-20, 40) for _ in range(r.choice(sizes))]
    return pa.table(
        {
            "t": pa.array(times if late else sorted(times), pa.int64()),
            "k": pa.array([r.choice([0, 1, 2, None]) for _ in times], pa.int64()),
            "v": pa.array([r.choice([None, 1, 2, -3]) for _ in times], pa.int64()),
        },
        schema=SCHEMA,
    )


def program(r: Random, sources: list[Any], depth: int) -> Any:
    """Put operators and unions on top of each other."""
    if depth == 0:
        return r.choice(sources)
    if r.random() < 0.5:
        return OPERATORS[r.choice(list(OPERATORS))](program(r, sources, depth - 1), r.choice(sources))
    parts = [program(r, sources, depth - 1) for _ in range(r.choice([2, 2, 3]))]
    return parts[0].union(*parts[1:])


def shown(found: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(tuple(row.values())) for row in found)


def interpreted(query: Any, data: dict[str, pa.Table]) -> list[str]:
    tables = {"names": [{"k": 0, "w": 5}, {"k": 1, "w": 6}]}
    return shown(
        interpret(to_ir(query.plan), tables | {name: to_rows(value) for name, value in data.items()})
    )


def in_batches(query: Any, data: dict[str, pa.Table], size: int) -> tuple[list[str], dict[str, int]]:
    run = query.run({name: batch.to_batches(max_chunksize=size) for name, batch in data.items()})
    found = [row for batch in run for row in batch.to_pylist()]
    assert run.metrics.balanced
    return shown(found), run.metrics.counts | {"batches": 0}


def pushed(query: Any, data: dict[str, pa.Table], r: Random) -> list[str]:
    """Push row by row, the streams by turns."""
    parts = [(name, batch) for name, table in data.items() for batch in table.to_batches(max_chunksize=1)]
    r.shuffle(parts)
    with query.open() as live:
        found = [
            row for name, batch in parts for made in live.push({name: batch}) for row in made.to_pylist()
        ]
        found += [row for made in live.finish() for row in made.to_pylist()]
        assert live.metrics.balanced
    return shown(found)


@pytest.mark.parametrize("other", ["plain", "same"])
@pytest.mark.parametrize("name", OPERATORS)
def test_a_union_with_plain_rows_counts_every_row_once(name: str, other: str) -> None:
    data = {
        stream: rows(Random(seed), late=False, sizes=(14,)) for seed, stream in enumerate(["a", "b"], start=3)
    }
    a, b = (pk.stream(stream, SCHEMA, time="t", lateness=1000) for stream in data)
    query = OPERATORS[name](a, b).union(b if other == "plain" else a)
    bound = {stream: data[stream] for stream in query.names}
    found = query.collect(bound)
    assert shown(found.to_pylist()) == interpreted(query, bound)
    assert query.metrics.balanced
    assert query.metrics.late == query.metrics.malformed == 0
    assert in_batches(query, bound, 3)[0] == shown(found.to_pylist())


@effort(60)
@given(seed=st.integers(0, 2**32))
def test_any_program_of_operators_and_unions_gives_the_interpreters_answer(seed: int) -> None:
    r = Random(seed)
    data = {"a": rows(r, late=True), "b": rows(r, late=True)}
    sources = [pk.stream(name, SCHEMA, time="t", lateness=1000) for name in data]
    query = program(r, sources, r.randint(1, 3)).union(program(r, sources, r.randint(0, 2)))
    bound = {name: data[name] for name in query.names}
    wanted = interpreted(query, bound)
    found = query.collect(bound)
    assert shown(found.to_pylist()) == wanted
    assert query.metrics.balanced
    assert query.metrics.emitted == len(wanted)
    assert in_batches(query, bound, r.choice([1, 4]))[0] == wanted
    assert pushed(query, bound, r) == wanted


def in_turns(query: Any, data: dict[str, pa.Table], r: Random) -> list[str]:
    """Push rows in the order of each stream, the streams by turns, now and then the time that all have reached."""
    left = {name: batch.to_batches(max_chunksize=2) for name, batch in data.items()}
    found = []
    with query.open() as live:
        while any(left.values()):
            name = r.choice([name for name, batches in left.items() if batches])
            found += live.push({name: left[name].pop(0)})
            coming = [batches[0]["t"][0].as_py() for batches in left.values() if batches]
            if coming and r.random() < 0.3:
                found += live.advance(min(coming))
        found += live.finish()
        assert live.metrics.balanced
        assert live.metrics.late == 0
    return shown([row for batch in found for row in batch.to_pylist()])


@effort(60)
@given(seed=st.integers(0, 2**32))
def test_windows_behind_any_program_miss_no_row_as_time_advances(seed: int) -> None:
    r = Random(seed)
    data = {"a": rows(r, late=False), "b": rows(r, late=False)}
    sources = [pk.stream(name, SCHEMA, time="t") for name in data]
    query = program(r, sources, r.randint(1, 3)).window(8, by="k").agg(n=pk.count(), t=pk.sum("v"))
    bound = {name: data[name] for name in query.names}
    assert in_turns(query, bound, r) == interpreted(query, bound)


@effort(40)
@given(seed=st.integers(0, 2**32))
def test_late_rows_before_a_union_are_counted_once_in_any_batches(seed: int) -> None:
    r = Random(seed)
    data = {"a": rows(r, late=True)}
    source = pk.stream("a", SCHEMA, time="t", lateness=r.choice([0, 3, 10]))
    query = program(r, [source], 2).union(program(r, [source], r.randint(0, 1)))
    query = r.choice([query, query.filter(pk.col("v") > 1), query.window(8).agg(n=pk.count())])
    assert in_batches(query, data, 1) == in_batches(query, data, 4)


def test_counts_of_a_union_say_what_became_of_the_rows_of_each_input() -> None:
    a, b = (pk.stream(name, SCHEMA, time="t", on_bad="drop") for name in "ab")
    query = a.distinct("k").union(b.filter(pk.col("v") > 0)).filter(pk.col("v") < 9)
    first = pa.table({"t": [1, 2, None, 8], "k": [1, 1, 1, 2], "v": [1, 2, 3, 9]}, schema=SCHEMA)
    other = pa.table({"t": [1, None, 3, 4, 5], "k": [1] * 5, "v": [1, 1, 0, 9, 7]}, schema=SCHEMA)
    found = query.collect(a=first, b=other)
    assert [row["t"] for row in found.to_pylist()] == [1, 5, 1]
    # Of a, three rows reach distinct; of b, one is filtered before the union and one behind it.
    assert query.metrics.counts == {
        "read": 9,
        "accepted": 5,
        "late": 0,
        "malformed": 2,
        "filtered": 2,
        "emitted": 3,
        "batches": 2,
        "ties": 0,
        "partly_late": 0,
    }


def test_plain_rows_are_late_behind_a_union_as_they_are_without_it() -> None:
    a, b = (pk.stream(name, SCHEMA, time="t") for name in "ab")
    query = a.distinct(["t", "k"]).union(b).window(10).agg(n=pk.count())
    with query.open() as live:
        for name, times in (("a", [1, 26]), ("b", [2, 27]), ("b", [3, 25]), ("a", [4])):
            data = {"t": times, "k": [1] * len(times), "v": [1] * len(times)}
            live.push({name: pa.table(data, schema=SCHEMA)})
        live.finish()
        # Row 25 lies in an open window; distinct leaves out rows before its watermark.
        assert (live.metrics.read, live.metrics.accepted, live.metrics.late) == (7, 5, 2)


def test_sql_unites_computed_rows_with_plain_ones() -> None:
    a, b = (pk.stream(name, SCHEMA, time="t") for name in "ab")
    query = pk.sql("select distinct t, k, v from a union all select t, k, v from b", a=a, b=b)
    table = pa.table({"t": [1, 1, 2], "k": [1, 1, 2], "v": [3, 3, 4]}, schema=SCHEMA)
    assert query.collect(a=table, b=table).num_rows == 5
    assert (query.metrics.read, query.metrics.accepted) == (6, 6)


def test_states_of_unions_go_on_with_what_was_counted() -> None:
    a, b = (pk.stream(name, SCHEMA, time="t") for name in "ab")
    query = a.rolling(5, by="k").agg(v=pk.sum("v")).union(b).window(10).agg(n=pk.count())
    table = pa.table({"t": [1, 12, 23, 24], "k": [1] * 4, "v": [1] * 4}, schema=SCHEMA)
    first = query.run({name: [table.slice(0, 2)] for name in "ab"}, final=False)
    found = list(first)
    second = query.run({name: [table.slice(2)] for name in "ab"}, state=first.state())
    found += list(second)
    assert [row["n"] for batch in found for row in batch.to_pylist()] == [2, 2, 4]
    assert (second.metrics.read, second.metrics.accepted) == (8, 8)
