"""istream gives the rows that the window before did not have; rstream gives them all."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pk

T = pa.table(
    {"t": [0, 1, 5, 6, 11, 30, 31], "k": ["a", "b", "a", None, "a", "a", None], "v": [1, 2, 1, 3, 1, 1, 3]}
)


def events(table: pa.Table = T) -> pk.Stream:
    return pk.from_arrow(table, time="t", name="events")


def tuples(table: pa.Table) -> list[tuple]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=str)


def new_rows(table: pa.Table, every: int) -> list[tuple]:
    """Plain Python: of the rows of each window, those that the one a slide before lacks."""
    rows = [tuple(row.values()) for row in table.to_pylist()]
    there = {(end, *values) for _, end, *values in rows}
    return sorted(
        ((start, end, *values) for start, end, *values in rows if (end - every, *values) not in there),
        key=str,
    )


@pytest.mark.parametrize(("size", "every"), [(5, 5), (10, 5), (10, 1), (3, 7)])
def test_new_rows_are_those_the_window_before_lacks(size: int, every: int) -> None:
    result = events().window(size, every=every, by="k").agg(n=pk.count(), s=pk.sum("v"))
    assert tuples(result.istream().collect()) == new_rows(result.collect(), every)


def test_after_a_gap_everything_is_new() -> None:
    found = events().window(5, by="k").agg(n=pk.count()).istream().collect()
    assert [row for row in tuples(found) if row[1] == 35] == [(30, 35, "a", 1), (30, 35, None, 1)]


times = st.lists(
    st.tuples(st.integers(-20, 40), st.sampled_from(["a", "b", None]), st.integers(0, 2)), max_size=20
)


@settings(max_examples=12)
@given(times, st.sampled_from([(4, 4), (6, 2), (5, 3)]))
def test_new_rows_batch_by_batch_are_those_of_plain_python(rows: list[tuple], shape: tuple[int, int]) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    schema = {"t": pa.int64(), "k": pa.string(), "v": pa.int64()}
    table = pa.table(
        {name: pa.array(column, dtype) for (name, dtype), column in zip(schema.items(), columns, strict=True)}
    )
    result = events(table).window(shape[0], every=shape[1], by="k").agg(s=pk.sum("v"))
    wanted = new_rows(result.collect(), shape[1])
    fresh = result.istream()
    batches = list(fresh.run(table.to_batches(max_chunksize=3)))
    assert tuples(pa.Table.from_batches(batches, fresh.schema)) == wanted
    assert tuples(fresh.collect()) == wanted


def test_a_filter_behind_a_window_counts() -> None:
    """What HAVING took away from the window before is new when it comes back."""
    result = events().window(10, every=5, by="k").agg(n=pk.count()).filter(pk.col("n") > 1)
    assert tuples(result.istream().collect()) == new_rows(result.collect(), 5)


def test_pairs_of_a_join_are_new_once() -> None:
    rows = events()
    pairs = rows.join(rows, on="k", window=pk.sliding(10, 5)).select("k", "v", "v_right")
    found = tuples(pairs.istream().select("k", "v", "v_right").collect())
    bare = pairs.collect().drop(["join_time"])
    assert set(found) >= set(new_rows(bare, 5))
    times = pairs.collect().column_names.index("join_time")
    assert sorted(set(found), key=str) == sorted(
        {row[:times] + row[times + 1 :] for row in new_rows(pairs.collect(), 5)}, key=str
    )


def test_rstream_is_every_window_again() -> None:
    result = events().window(10, every=5, by="k").agg(n=pk.count())
    assert result.rstream() is result


def test_of_one_window_everything_is_new() -> None:
    result = events().window(pk.unbounded(), by="k").agg(n=pk.count())
    assert tuples(result.istream().collect()) == tuples(result.collect())


def test_rows_of_sql_come_once_or_with_every_window() -> None:
    query = pk.sql("select k, v from events [range 10 slide 5] where v > 1", events=events())
    assert tuples(query.collect()) == [("b", 2), (None, 3), (None, 3)]
    assert query.istream() is query
    assert tuples(query.rstream().collect()) == [("b", 2)] * 2 + [(None, 3)] * 4


def test_rows_that_were_counted_come_once_too() -> None:
    query = pk.sql("select v from events [rows 3 slide 1] where v > 1", events=events())
    assert tuples(query.collect()) == [(2,), (3,), (3,)]
    assert query.istream() is query
    assert tuples(query.rstream().collect()) == [(2,)] * 2 + [(3,)] * 4


def test_new_rows_of_sql_are_compared_without_their_timestamps() -> None:
    query = pk.sql(
        "select timestamp, k, count(*) as n from events [range 10 slide 5] group by k", events=events()
    )
    fluent = events().window(10, every=5, by="k").agg(n=pk.count()).istream()
    assert query.istream().schema.names == ["timestamp", "k", "n"]
    assert tuples(query.istream().collect()) == tuples(fluent.drop("window_start").collect())
    joined = pk.sql(
        "select window_end, a.k, b.v from events [range 10 slide 5] a join events [range 10 slide 5] b on a.k = b.k",
        events=events(),
    )
    bounds = pk.sql(
        "select window_start, window_end, a.k, b.v from e [range 10 slide 5] a join e [range 10 slide 5] b on a.k = b.k",
        e=events(),
    )
    assert set(tuples(joined.istream().collect())) == {row[1:] for row in new_rows(bounds.collect(), 5)}


@pytest.mark.parametrize("what", ["istream", "rstream"])
def test_rows_in_no_window_are_refused(what: str) -> None:
    with pytest.raises(pk.WindowError, match="carry none"):
        getattr(events(), what)()


def test_sql_rows_in_no_window_have_no_rstream() -> None:
    with pytest.raises(pk.WindowError, match="in no window"):
        pk.sql("select k from events", events=events()).rstream()


@pytest.mark.parametrize("window", [pk.session(3), pk.rows(2)])
def test_windows_without_a_window_before_are_refused(window: object) -> None:
    with pytest.raises(pk.UnsupportedError, match="the one before it"):
        events().window(window, by="k").agg(n=pk.count()).istream()


def test_values_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(pk.UnsupportedError, match="cannot be compared"):
        events().window(5).agg(all=pk.list("v")).istream()
    with pytest.raises(pk.WindowError, match="only a time"):
        pk.sql("select timestamp from events [range 5] group by k", events=events()).istream()
