"""Aggregates that users define, in SQL: the same as in the fluent API."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk

TABLE = pa.table({"t": [0, 1, 2, 11, 12], "k": ["a", "b", "a", "a", None], "v": [3.0, 4.0, None, 5.0, 1.0]})
RMS = pk.aggregate(
    init=(0.0, 0),
    add=lambda s, x: (s[0] + x * x, s[1] + 1),
    result=lambda s: (s[0] / s[1]).sqrt(),
    merge=lambda a, b: (a[0] + b[0], a[1] + b[1]),
)
DOT = pk.aggregate(init=0.0, add=lambda s, x, y: s + x * y, result=lambda s: s)


def events() -> pk.Stream:
    return pk.from_arrow(TABLE, time="t", name="e")


def rows(query: pk.Stream) -> list[dict[str, object]]:
    return sorted(query.collect().to_pylist(), key=str)


def test_they_are_called_by_the_name_they_are_passed_by() -> None:
    text = "select window_end, k, rms(v) as r from e [range 10] group by k"
    written = events().window(10, by="k").agg(r=RMS("v")).select("window_end", "k", "r")
    for query in (pk.sql(text, e=events(), rms=RMS), pk.sql(text, {"e": events(), "RMS": RMS})):
        assert rows(query) == rows(written.drop("window_start"))


def test_they_take_filters_and_expressions_and_stand_in_having() -> None:
    text = """
        select k, 2 * dot(v, v + 1) filter (where v > 3) as d, rms(v) / max(v) as share
        from e [range 20] group by k having rms(v) > 3.9 and k is not null
    """
    found = rows(pk.sql(text, e=events(), dot=DOT, rms=RMS))
    assert [(row["k"], row["d"]) for row in found] == [("a", 60.0), ("b", 40.0)]
    assert found[0]["share"] == pytest.approx((34 / 2) ** 0.5 / 5)


def test_they_run_batch_by_batch() -> None:
    query = pk.sql("select k, rms(v) as r from e [range 10] group by k", e=events(), rms=RMS)
    pushed = pa.Table.from_batches(query.run(TABLE.to_batches(max_chunksize=1)), schema=query.schema)
    assert sorted(pushed.to_pylist(), key=str) == rows(query)


WRONG = {
    "select rms(v, v) from e": "rms takes 1 argument",
    "select dot(v) from e": "dot takes 2 arguments",
    "select rms(*) from e": "rms takes 1 argument",
    "select rms(distinct v) from e": "DISTINCT is known in count",
    "select v from e where rms(v) > 1": "an aggregate stands in SELECT",
    "select rms(sum(v)) from e": "never inside another",
    "select rmss(v) from e": "did you mean 'rms'?",
}


@pytest.mark.parametrize("text", WRONG)
def test_mistakes_are_told_where_they_stand(text: str) -> None:
    with pytest.raises(pk.SqlError) as raised:
        pk.sql(text, e=events(), rms=RMS, dot=DOT)
    assert WRONG[text] in str(raised.value)
    assert str(raised.value).startswith("line 1, column ")


@pytest.mark.parametrize("name", ["sum", "Floor", "mod", "tumble_start", "session", "cast", "if"])
def test_names_of_functions_are_taken(name: str) -> None:
    with pytest.raises(pk.SqlError, match="pass yours by another name"):
        pk.sql("select v from e", {"e": events(), name: RMS})


def test_two_names_that_differ_in_capitals_are_one() -> None:
    with pytest.raises(pk.SqlError, match="two aggregates are called 'rms'"):
        pk.sql("select v from e", e=events(), rms=RMS, RMS=DOT)


@pytest.mark.parametrize("junk", [3, "rms", None, lambda x: x, pk.sum, [RMS], pk.sum("v")])
def test_what_is_neither_stream_nor_aggregate_is_refused(junk: object) -> None:
    with pytest.raises(pk.ExpressionTypeError, match=r"pk\.aggregate"):
        pk.sql("select v from e", e=events(), rms=junk)  # type: ignore[arg-type]


def test_a_name_is_a_text() -> None:
    with pytest.raises(pk.ExpressionTypeError, match="each by its name"):
        pk.sql("select v from e", {1: events()})  # type: ignore[dict-item]
