"""Aggregates over joins, with and without pairs: the same answers, and failures where the answer does not fit."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.ir.interpret import interpret
from penstock.ir.samples import to_rows, to_table
from penstock.translate import to_ir
from tests.oracle.effort import effort
from tests.oracle.join_cases import KEYS

WHOLE = [0, 1, -1, 7, (1 << 31) - 1, 1 << 31, -(1 << 31), 1 << 40, (1 << 63) - 1, -(1 << 63), None]
BROKEN = [0.0, 1.5, -2.0, float("inf"), float("nan"), None]
COLUMNS = {
    "w": (pa.int64(), WHOLE),
    "s": (pa.int32(), [5, -3, (1 << 31) - 1, None]),
    "f": (pa.float64(), BROKEN),
}
ASKED = {
    "n": pk.count(),
    "nw": pk.count("w"),
    "sw": pk.sum("w"),
    "ss": pk.sum("s"),
    "sf": pk.sum("f_right"),
    "sr": pk.sum("w_right"),
    "m": pk.min("w_right"),
    "x": pk.max("f"),
    "some": pk.count(where=pk.col("s_right") > 0),
    "ratio": pk.sum("s") / pk.count(),
}
GROUPS = {
    "keys": {"by": "k"},
    "nothing": {},
    "a left column": {"by": "s"},
    "key and right column": {"by": ["k", "s_right"]},
    "both sides": {"by": ["s", "s_right"]},
}


@st.composite
def tables(draw: st.DrawFn, keys: str) -> pa.Table:
    dtype, choice = KEYS[keys]
    rows = draw(st.integers(0, 12))
    times = st.lists(st.integers(-15, 30), min_size=rows, max_size=rows).map(sorted)
    made = {"t": pa.array(draw(times), pa.int64())}
    for name, (kind, values) in {"k": (dtype, choice), **COLUMNS}.items():
        some = draw(st.lists(st.sampled_from(values), min_size=rows, max_size=rows))
        made[name] = pa.array(some, kind)
    return pa.table(made)


def shown(table: pa.Table) -> list[str]:
    return sorted(repr(row) for row in table.to_pylist())


def asked(a: pk.Stream, b: pk.Stream, group: str, names: list[str], *, again: bool) -> pk.Stream:
    joined = a.join(b, on="k", window=pk.tumbling(10, offset=3))
    window = [pk.tumbling(10, offset=3)] if again else []
    return joined.window(*window, **GROUPS[group]).agg(**{name: ASKED[name] for name in names})


@effort(40)
@given(data=st.data())
def test_fused_aggregates_equal_their_definition(data: st.DataObject) -> None:
    keys = data.draw(st.sampled_from(sorted(KEYS)))
    rows = {"a": data.draw(tables(keys)), "b": data.draw(tables(keys))}
    a, b = (pk.stream(name, rows[name].schema, time="t") for name in "ab")
    group = data.draw(st.sampled_from(sorted(GROUPS)))
    names = data.draw(st.lists(st.sampled_from(sorted(ASKED)), min_size=1, max_size=4, unique=True))
    query = asked(a, b, group, names, again=data.draw(st.booleans()))
    assert "~w" in query.explain("ir") and ".met[t]" in query.explain("ir")
    try:
        wanted = interpret(to_ir(query.plan), {name: to_rows(table) for name, table in rows.items()})
    except pk.OverflowError:
        with pytest.raises(pk.OverflowError):
            query.collect(rows)
        return
    assert shown(query.collect(rows)) == shown(to_table(wanted, query.schema))


def streams() -> tuple[pk.Stream, pk.Stream]:
    schema = {"t": "int64", "k": "int64", "w": "int64", "s": "int32", "f": "double"}
    return pk.stream("a", schema, time="t"), pk.stream("b", schema, time="t")


def test_explain_says_that_a_join_is_fused() -> None:
    a, b = streams()
    said = asked(a, b, "keys", ["n", "sw"], again=False).explain()
    assert "fused: counts and sums of both sides multiply, no pair is made" in said


@pytest.mark.parametrize(
    "query",
    [
        lambda j: j.window(by="k").agg(m=pk.median("w")),
        lambda j: j.window(by="k").agg(m=pk.sum(pk.col("w") * pk.col("w_right"))),
        lambda j: j.window(by="k").agg(m=pk.sum(pk.col("w") + 1)),  # which may fail for rows that meet nobody
        lambda j: j.window(20).agg(n=pk.count()),
        lambda j: j.filter(pk.col("w") > pk.col("w_right")).window(by="k").agg(n=pk.count()),
    ],
)
def test_what_needs_pairs_has_them(query) -> None:
    a, b = streams()
    assert ".met[t]" not in query(a.join(b, on="k", window=10)).explain("ir")


def test_joins_of_other_kinds_keep_their_pairs() -> None:
    a, b = streams()
    for options in (
        {"window": 10, "how": "left"},
        {"window": pk.sliding(10, every=5)},
        {"within": (-3, 3)},
        {"window": 10, "algorithm": "prj"},
        {"window": 10, "where": pk.left("w") > pk.right("w")},
    ):
        joined = a.join(b, on="k", **options)
        grouped = joined.window(by="k") if "window" in options else joined.window(10, by="k")
        assert ".met[t]" not in grouped.agg(n=pk.count()).explain("ir")


def test_rows_before_the_watermark_are_late_as_they_are_for_pairs() -> None:
    a, b = streams()
    query = asked(a, b, "keys", ["n"], again=False)
    pairs = a.join(b, on="k", window=pk.tumbling(10, offset=3))
    row = {"k": 1, "w": 1, "s": 1, "f": 1.0}
    for asks in (query, pairs):
        live = asks.open()
        for name in "ab":
            for t in (9, 5):  # the second one lies behind the watermark, in a window that is open
                live.push({name: pa.RecordBatch.from_pylist([{"t": t, **row}], schema=live_schema())})
        assert (live.metrics.late, live.metrics.accepted) == (2, 2)
        live.finish()


def live_schema() -> pa.Schema:
    return pa.schema({"t": pa.int64(), "k": pa.int64(), "w": pa.int64(), "s": pa.int32(), "f": pa.float64()})
