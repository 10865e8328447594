"""Order of rows: by time, then sequence, then position in the source."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk

TABLE = pa.table(
    {
        "t": [5, 5, 5, 1, 9],
        "seq": [3, 1, 2, 9, 0],
        "k": ["a", "a", "a", "b", "a"],
        "v": [10, 20, 30, 40, 50],
    }
)


def test_distinct_breaks_ties_by_position() -> None:
    assert sorted(pk.from_arrow(TABLE, time="t").distinct("k").collect()["v"].to_pylist()) == [10, 40]


def test_distinct_breaks_ties_by_sequence_where_there_is_one() -> None:
    stream = pk.from_arrow(TABLE, time="t", sequence="seq")
    assert sorted(stream.distinct("k").collect()["v"].to_pylist()) == [20, 40]
    assert sorted(stream.distinct("k", keep="last").collect()["v"].to_pylist()) == [40, 50]


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 4, 5])
def test_the_first_row_is_the_same_however_the_table_is_cut(cut: int) -> None:
    table = pa.concat_tables([TABLE.slice(0, cut), TABLE.slice(cut)])
    assert sorted(pk.from_arrow(table, time="t").distinct("k").collect()["v"].to_pylist()) == [10, 40]


def test_filters_and_projections_keep_the_order_of_arrival() -> None:
    kept = pk.from_arrow(TABLE, time="t").filter(pk.col("v") != 30).select("v").collect()
    assert kept["v"].to_pylist() == [10, 20, 40, 50]


def test_filters_keep_the_order_of_arrival_with_many_threads() -> None:
    table = pa.table({"t": list(range(5_000)), "v": list(range(5_000))})
    kept = pk.from_arrow(table, time="t").filter(pk.col("v") % 3 == 0)
    assert kept.collect(engine=pk.Engine(threads=3, task_bytes=256))["v"].to_pylist() == list(
        range(0, 5_000, 3)
    )


Verb = Callable[[Any], Any]
PASSED_ON: dict[str, Verb] = {
    "as it is": lambda s: s,
    "dropped": lambda s: s.drop("seq"),
    "renamed": lambda s: s.rename({"seq": "number"}),
    "overwritten": lambda s: s.with_columns(seq=-pk.col("seq")),
    "not selected": lambda s: s.select("t", "k", "v"),
}


@pytest.mark.parametrize("verb", PASSED_ON.values(), ids=PASSED_ON)
def test_distinct_sees_the_sequence_of_the_source_whatever_became_of_its_column(verb: Verb) -> None:
    stream = verb(pk.from_arrow(TABLE, time="t", sequence="seq"))
    assert sorted(stream.distinct("k").collect()["v"].to_pylist()) == [20, 40]
    assert sorted(stream.distinct(["k", "t"], keep="last").collect()["v"].to_pylist()) == [10, 40, 50]


SEQUENCES: dict[str, pa.Array] = {
    "null comes first": pa.array([2, None, 3, None, 0]),
    "NaN comes last": pa.array([math.nan, 1.0, math.nan, 9.0, 0.0]),
    "texts": pa.array(["c", "a", "b", "i", ""]),
    "texts in a dictionary": pa.array(["c", "a", "b", "i", ""]).dictionary_encode(),
    "all of 64 bits": pa.array([2**64 - 1, 0, 2**63, 9, 0], pa.uint64()),
}


@pytest.mark.parametrize("sequence", SEQUENCES.values(), ids=SEQUENCES)
def test_distinct_takes_the_row_that_is_first_in_its_window(sequence: pa.Array) -> None:
    stream = pk.from_arrow(TABLE.set_column(1, "seq", sequence), time="t", sequence="seq")
    assert sorted(stream.distinct("k").collect()["v"].to_pylist()) == [20, 40]
    assert stream.window(10, by="k").agg(v=pk.first("v")).collect().sort_by("v")["v"].to_pylist() == [20, 40]


def test_the_sequence_still_orders_rows_behind_distinct() -> None:
    distinct = pk.from_arrow(TABLE, time="t", sequence="seq").distinct("v")
    assert distinct.window(10).agg(v=pk.list("v")).collect()["v"].to_pylist() == [[40, 20, 30, 10, 50]]


BEHIND_UNION: dict[str, tuple[Verb, list[int]]] = {
    "distinct": (lambda u: u.distinct("t"), [1, 2]),
    "the last": (lambda u: u.distinct("t", keep="last"), [100, 200]),
    "rows behind distinct": (lambda u: u.distinct("v").rolling(pk.rows(1)).with_columns(s=pk.sum("v")), [1, 100, 2, 200]),
    "the top of two results": (
        lambda u: u.window(1).with_columns(n=pk.count()).select("t", "v", "n", "window_start", "window_end").top_k(1, by="n"),
        [1, 2],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("verb", "expected"), BEHIND_UNION.values(), ids=BEHIND_UNION)
def test_rows_of_a_union_are_ordered_by_its_sides_whichever_comes_first(
    verb: Verb, expected: list[int]
) -> None:
    schema = {"t": "int64", "v": "int64"}
    query = verb(pk.stream("a", schema, time="t").union(pk.stream("b", schema, time="t")))
    a, b = pa.table({"t": [1, 2], "v": [1, 2]}), pa.table({"t": [1, 2], "v": [100, 200]})
    assert query.collect(a=a, b=b)["v"].to_pylist() == expected
    with query.open() as live:
        batches = [*live.push(b=b), *live.push(a=a)]
        state = live.state()
    with query.open(state=state) as live:
        batches += live.finish()
    assert [v for batch in batches for v in batch["v"].to_pylist()] == expected


def test_sequences_of_two_types_are_refused() -> None:
    with pytest.raises(pk.SchemaMismatchError, match="int64 and string"):
        pk.stream("a", {"t": "int64", "s": "int64"}, time="t", sequence="s").drop("s").union(
            pk.stream("b", {"t": "int64", "s": "string"}, time="t", sequence="s").drop("s")
        )


def test_a_dictionary_of_texts_beside_texts_is_one_sequence() -> None:
    a = pk.from_arrow(pa.table({"t": [1, 1], "s": ["d", "b"]}), time="t", sequence="s")
    coded = pa.table({"t": [1, 1], "s": pa.array(["c", "a"]).dictionary_encode()})
    b = pk.from_arrow(coded, time="t", sequence="s").with_columns(s=pk.col("s").cast("string"))
    assert a.union(b).window(10).agg(s=pk.list("s")).collect()["s"].to_pylist() == [["a", "b", "c", "d"]]


IN_ORDER: dict[str, Verb] = {
    "a look-back": lambda s: s.rolling(3).with_columns(n=pk.count()),
    "its filter": lambda s: s.rolling(3).with_columns(n=pk.count()).filter(pk.col("n") > 0).drop("seq"),
    "a join around": lambda s: s.join_rolling(s, by="k", within=(-3, 0)).agg(n=pk.count()),
    "a semi join": lambda s: s.join(s, on="k", window=pk.tumbling(10), how="semi"),
    "an interval join": lambda s: s.join(s, on="v", within=(0, 0)),
}


@pytest.mark.parametrize("verb", IN_ORDER.values(), ids=IN_ORDER)
def test_results_in_the_order_of_rows_follow_the_sequence(verb: Verb) -> None:
    query = verb(pk.from_arrow(TABLE, time="t", sequence="seq", lateness=9))
    assert query.collect()["v"].to_pylist() == [40, 20, 30, 10, 50]
    assert [v for batch in query.run() for v in batch["v"].to_pylist()] == [40, 20, 30, 10, 50]


def test_distinct_of_a_union_takes_the_first_branch_whichever_arrives_first() -> None:
    left, right = (
        pk.stream(name, {"t": "int64", "k": "string", "v": "string"}, time="t") for name in ("left", "right")
    )
    rows = {name: pa.table({"t": [0], "k": ["a"], "v": [name]}) for name in ("left", "right")}
    first = left.union(right).distinct("k")
    assert first.collect(rows)["v"].to_pylist() == ["left"]
    with first.open() as live:
        found = [*live.push(right=rows["right"]), *live.push(left=rows["left"]), *live.finish()]
    assert [row["v"] for batch in found for row in batch.to_pylist()] == ["left"]
