"""Sessions worked out by hand: what joins, what ends one, and what a row out of order does."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import penstock as pk

CLICKS = {"t": "int64", "user": "string", "v": "int64"}


def clicks(*rows: tuple[int, str, int]) -> pa.Table:
    times, users, values = zip(*rows, strict=True)
    return pa.table({"t": times, "user": users, "v": values})


def sessions(source: Any, gap: int = 10) -> Any:
    return source.window(pk.session(gap), by="user").agg(n=pk.count(), total=pk.sum("v"))


def listed(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def pushed(live: Any, *rows: tuple[int, str, int]) -> list[tuple[Any, ...]]:
    return [value for batch in live.push(clicks(*rows)) for value in listed(pa.Table.from_batches([batch]))]


def finished(live: Any) -> list[tuple[Any, ...]]:
    return [value for batch in live.finish() for value in listed(pa.Table.from_batches([batch]))]


def test_a_session_lasts_from_its_first_row_to_a_gap_behind_its_last() -> None:
    table = clicks((0, "a", 1), (4, "a", 2), (9, "a", 4), (50, "a", 8))
    assert listed(sessions(pk.from_arrow(table, time="t")).collect()) == [
        (0, 19, "a", 3, 7),
        (50, 60, "a", 1, 8),
    ]


def test_a_row_exactly_a_gap_after_the_last_still_joins_and_one_tick_later_does_not() -> None:
    table = clicks((0, "a", 1), (10, "a", 2), (21, "a", 4))
    assert listed(sessions(pk.from_arrow(table, time="t")).collect()) == [
        (0, 20, "a", 2, 3),
        (21, 31, "a", 1, 4),
    ]


def test_each_key_has_sessions_of_its_own() -> None:
    table = clicks((0, "a", 1), (8, "b", 2), (12, "a", 4), (16, "b", 8))
    result = sessions(pk.from_arrow(table, time="t")).collect()
    assert sorted(listed(result)) == [(0, 10, "a", 1, 1), (8, 26, "b", 2, 10), (12, 22, "a", 1, 4)]


def test_sessions_are_ordered_by_their_ends() -> None:
    table = clicks((0, "a", 1), (9, "a", 1), (1, "b", 1), (30, "b", 1))
    ends = sessions(pk.from_arrow(table, time="t")).collect()["window_end"].to_pylist()
    assert ends == [11, 19, 40]


def test_rows_that_a_filter_leaves_out_do_not_hold_a_session_together() -> None:
    table = clicks((0, "a", 1), (8, "a", 0), (16, "a", 1))
    kept = pk.from_arrow(table, time="t").filter(pk.col("v") > 0)
    assert listed(sessions(kept).collect()) == [(0, 10, "a", 1, 1), (16, 26, "a", 1, 1)]


def test_a_row_out_of_order_joins_two_sessions_into_one() -> None:
    stream = pk.stream("clicks", CLICKS, time="t", lateness=20)
    with sessions(stream).open() as live:
        assert pushed(live, (0, "a", 1), (16, "a", 2)) == []
        assert pushed(live, (8, "a", 4)) == []
        assert finished(live) == [(0, 26, "a", 3, 7)]


def test_a_session_leaves_once_no_row_can_join_it_any_more() -> None:
    """At 10 a row at 10 may still come and join the session [0, 10); at 11 none can."""
    stream = pk.stream("clicks", CLICKS, time="t")
    with sessions(stream).open() as live:
        assert pushed(live, (0, "a", 1), (10, "b", 2)) == []
        assert pushed(live, (10, "a", 4)) == []
        assert pushed(live, (20, "b", 8)) == []
        assert sorted(pushed(live, (21, "b", 16))) == [(0, 20, "a", 2, 5)]
        assert finished(live) == [(10, 31, "b", 3, 26)]
        assert live.metrics.late == 0


def test_a_row_behind_the_watermark_joins_an_open_session_within_the_gap() -> None:
    stream = pk.stream("clicks", CLICKS, time="t")
    with sessions(stream).open() as live:
        pushed(live, (0, "a", 1), (9, "a", 2))
        pushed(live, (5, "a", 4))
        assert finished(live) == [(0, 19, "a", 3, 7)]
        assert (live.metrics.accepted, live.metrics.late) == (3, 0)


def test_a_row_behind_the_watermark_may_begin_an_open_session_earlier() -> None:
    stream = pk.stream("clicks", CLICKS, time="t")
    with sessions(stream).open() as live:
        pushed(live, (30, "a", 1), (20, "a", 2), (10, "a", 4))
        assert finished(live) == [(10, 40, "a", 3, 7)]
        assert live.metrics.late == 0


def test_a_row_behind_the_watermark_without_an_open_session_of_its_key_is_late() -> None:
    stream = pk.stream("clicks", CLICKS, time="t")
    with sessions(stream).open() as live:
        pushed(live, (30, "a", 1), (19, "a", 2), (25, "b", 4))
        assert finished(live) == [(30, 40, "a", 1, 1)]
        assert (live.metrics.accepted, live.metrics.late) == (1, 2)


def test_a_row_within_the_gap_of_an_emitted_session_is_late_though_an_open_one_is_near() -> None:
    stream = pk.stream("clicks", CLICKS, time="t")
    for batches in ([1, 1, 1, 1, 1], [5], [2, 3]):
        rows = [(0, "a", 1), (11, "b", 2), (12, "a", 4), (10, "a", 8), (11, "a", 16)]
        with sessions(stream).open() as live:
            made = []
            for size in batches:
                made += pushed(live, *rows[:size])
                rows = rows[size:]
            made += finished(live)
        assert sorted(made) == [(0, 10, "a", 1, 1), (11, 21, "b", 1, 2), (11, 22, "a", 2, 20)]
        assert (live.metrics.accepted, live.metrics.late) == (4, 1)


def test_the_end_of_an_emitted_session_is_part_of_the_saved_state() -> None:
    stream = pk.stream("clicks", CLICKS, time="t")
    live = sessions(stream).open()
    pushed(live, (0, "a", 1), (11, "b", 2))
    live = sessions(stream).open(state=live.state().to_bytes())
    pushed(live, (12, "a", 4), (10, "a", 8))
    assert (live.metrics.accepted, live.metrics.late) == (3, 1)


def test_telling_the_time_ends_sessions_without_a_row() -> None:
    stream = pk.stream("clicks", CLICKS, time="t")
    with sessions(stream).open() as live:
        pushed(live, (0, "a", 1))
        assert live.advance(10) == []
        assert [batch.num_rows for batch in live.advance(11)] == [1]
        assert live.finish() == [] and live.finish() == []


def test_every_row_can_stand_beside_its_session() -> None:
    table = clicks((0, "a", 1), (4, "a", 2), (50, "a", 4))
    rows = pk.from_arrow(table, time="t").window(pk.session(10), by="user").with_columns(n=pk.count())
    assert listed(rows.collect()) == [
        (0, "a", 1, 0, 14, 2),
        (4, "a", 2, 0, 14, 2),
        (50, "a", 4, 50, 60, 1),
    ]


def test_windows_over_sessions_see_them_a_tick_before_their_ends() -> None:
    """The session [0, 10) has the time 9, and [1, 11) the time 10: they fall into different windows of ten."""
    table = clicks((0, "a", 1), (1, "b", 2))
    counted = sessions(pk.from_arrow(table, time="t")).window(10).agg(ended=pk.count())
    assert listed(counted.collect()) == [(0, 10, 1), (10, 20, 1)]


def test_sessions_of_all_rows_wait_for_their_first_row_however_rows_are_ordered() -> None:
    table = clicks((1, "a", 3), (2, "b", 2), (3, "a", 1))
    late = {"time": "t", "lateness": 1000}
    ordered = pk.stream("clicks", CLICKS, sequence="v", **late)
    plain = pk.stream("clicks", CLICKS, **late)
    for source, rows in ((ordered, [3, 2, 1]), (plain.union(plain.filter(pk.col("v") > 2)), [3, 3, 2, 1])):
        run = source.window(pk.session(10)).agg(v=pk.list("v")).run(table.to_batches(max_chunksize=1))
        assert [batch["v"].to_pylist() for batch in run] == [[rows]]
