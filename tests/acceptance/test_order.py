"""Order of rows: by time, then sequence, then position in the source."""

from __future__ import annotations

from collections.abc import Callable

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


SEQUENCED = pa.table({"t": [0, 0, 0], "seq": [3, None, 1], "k": ["a"] * 3, "v": ["x", "y", "z"]})


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("dropped", lambda s: s.drop("seq")),
        ("renamed", lambda s: s.rename({"seq": "number"})),
        ("computed anew", lambda s: s.with_columns(seq=-pk.col("seq"))),
        ("distinct before", lambda s: s.distinct(["k", "v"]).drop("seq")),
    ],
)
def test_distinct_knows_the_sequence_of_the_source_whatever_became_of_its_column(
    name: str, rows: Callable[[pk.Stream], pk.Stream]
) -> None:
    stream = rows(pk.from_arrow(SEQUENCED, time="t", sequence="seq"))
    assert stream.distinct("k").collect()["v"].to_pylist() == ["y"], name
    assert stream.distinct("k", keep="last").collect()["v"].to_pylist() == ["x"], name


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
