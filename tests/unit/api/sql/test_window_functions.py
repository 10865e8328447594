"""TUMBLE, HOP and SESSION as table functions: each form is the fluent query it stands for."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk

TIMES = [0, 1, 3, 4, 7, 9, 12, 13, 19, 21, 34]
ROWS = pa.table(
    {
        "ts": pa.array([1_000_000 * time for time in TIMES], pa.timestamp("us")),
        "k": ["a", "b", "a", "a", "b", "b", "a", "a", "b", "a", "b"],
        "v": [5, 1, 4, 2, 8, 8, 3, 9, 1, 1, 7],
    }
)
S = pk.from_arrow(ROWS, time="ts", name="s")
TUMBLE = "table(tumble(table s, descriptor(ts), interval '10' second))"
COUNTS = pk.count().alias("n"), pk.sum("v").alias("t")
TUMBLING = S.window(pk.tumbling("10s"), by="k").agg(*COUNTS)
HOPPING = S.window(pk.sliding("10s", every="5s"), by="k").agg(*COUNTS)
SESSIONS = S.window(pk.session("3s"), by="k").agg(*COUNTS)
LIST = "select window_start, window_end, k, count(*) as n, sum(v) as t from {} group by k, window_start, window_end"


def rows_of(query):
    return sorted(map(tuple, (row.values() for row in query.collect().to_pylist())), key=str)


def sql(text, **streams):
    return pk.sql(text, streams or {"s": S})


@pytest.mark.parametrize(
    ("function", "meant"),
    [
        (TUMBLE, TUMBLING),
        ("TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECONDS)) AS x", TUMBLING),
        ("tumble(table s, descriptor(`ts`), interval '10' second(3))", TUMBLING),
        ("tumble(s, ts, interval '10' second)", TUMBLING),
        ("table(tumble(data => table s, timecol => descriptor(ts), size => '10 seconds')) x", TUMBLING),
        ("table(tumble(size => '10s', timecol => descriptor(timestamp), data => table S))", TUMBLING),
        ("table(hop(table s, descriptor(ts), interval '5' second, interval '10' second))", HOPPING),
        ("table(hop(data => table s, timecol => descriptor(ts), slide => 5, size => 10))", HOPPING),
        ("table(session(table s partition by k, descriptor(ts), interval '3' second))", SESSIONS),
        ("session(table s partition by (k), descriptor(ts), interval '3' second)", SESSIONS),
        (
            "table(tumble(table s, descriptor(ts), interval '10' second, interval '4' second))",
            S.window(pk.tumbling("10s", offset="4s"), by="k").agg(*COUNTS),
        ),
        (
            "table(hop(table s, descriptor(ts), '5s', '10s', '2s'))",
            S.window(pk.sliding("10s", "5s", offset="2s"), by="k").agg(*COUNTS),
        ),
    ],
)
def test_a_function_is_the_window_it_names(function, meant):
    found = rows_of(sql(LIST.format(function)))
    assert found == rows_of(meant)
    assert len(found) > 3


def test_aliases_positions_and_window_time_group_by_the_window():
    text = f"select window_start as a, window_end as b, k, count(*) as n, sum(v) as t from {TUMBLE} group by {{}}"
    for keys in ("a, b, k", "1, 2, 3", "k, window_start, window_end, window_time", "window_end, k"):
        assert rows_of(sql(text.format(keys))) == rows_of(TUMBLING)


def test_rows_of_a_function_carry_the_bounds_of_each_of_their_windows():
    hop = "table(hop(table s, descriptor(ts), interval '5' second, interval '10' second))"
    meant = S.window(pk.sliding("10s", "5s")).with_columns()
    found = sql(f"select * from {hop}")
    assert found.schema.names == ["ts", "k", "v", "window_start", "window_end"]
    assert rows_of(found) == rows_of(meant.select("ts", "k", "v", "window_start", "window_end"))
    some = sql(
        f"select k, v, window_start from {hop} where window_start >= timestamp '1970-01-01 00:00:10' and v > 1"
    )
    wanted = [
        (k, v, start)
        for _, k, v, start, _ in rows_of(found)
        if start.second >= 10 and start.year == 1970 and v > 1
    ]
    assert rows_of(some) == sorted(wanted, key=str)


def test_a_condition_on_the_bounds_comes_before_the_groups():
    text = f"select k, window_start, count(*) as n from {TUMBLE} where window_end > timestamp '1970-01-01 00:00:10' group by k, window_start, window_end"
    wanted = [(k, start, n) for start, _, k, n, _ in rows_of(TUMBLING) if start.second >= 10]
    assert rows_of(sql(text)) == sorted(wanted, key=str)


def test_windows_of_windows_follow_the_result_time():
    inner = LIST.format(TUMBLE)
    text = f"""with totals as ({inner})
    select window_start, sum(n) as n from table(tumble(table totals, descriptor(window_time), interval '20' second))
    group by window_start, window_end"""
    meant = TUMBLING.window(pk.tumbling("20s")).agg(n=pk.sum("n")).collect().select(["window_start", "n"])
    assert rows_of(sql(text)) == sorted((tuple(row.values()) for row in meant.to_pylist()), key=str)


def test_functions_are_joined_in_equal_windows():
    text = """select a.v, b.v as w, a.window_start from {0} a join {0} b
    on a.k = b.k and a.window_start = b.window_start and a.window_end = b.window_end where a.v < b.v"""
    found = rows_of(sql(text.format(TUMBLE)))
    meant = S.join(S, on="k", window=pk.tumbling("10s"), where=pk.left("v") < pk.right("v"))
    pairs = meant.collect().select(["v", "v_right", "window_start"]).to_pylist()
    assert found == sorted((tuple(pair.values()) for pair in pairs), key=str)
    assert len(found) > 3


def test_a_function_may_have_the_name_of_a_column():
    table = pa.table({"ts": [1, 2], "hop": [3, 4], "session": [5, 6]})
    found = pk.sql("select hop, session from s where hop > 3", s=pk.from_arrow(table, time="ts")).collect()
    assert found.to_pylist() == [{"hop": 4, "session": 6}]


WRONG = {
    "select count(*) as n from {}": "write GROUP BY window_start, window_end",
    "select k, count(*) as n from {} group by k": "write GROUP BY window_start, window_end",
    "select a.v from {0} a join {0} b on a.k = b.k": "meet in equal windows",
    "select a.v from {0} a join {0} b on a.k = b.k and a.window_start = b.window_start": "meet in equal windows",
    "select * from tumble(table s, descriptor(v), '10s')": "DESCRIPTOR.v. is not the time column of 's'",
    "select * from tumble(table s, descriptor(nothing), '10s')": "DESCRIPTOR.nothing. is not the time column",
    "select * from tumble(table s, descriptor(ts, v), '10s')": "along one column",
    "select * from tumble(table s, descriptor(ts))": "arguments are missing",
    "select * from tumble()": "arguments are missing",
    "select * from tumble(table s, descriptor(ts), '10s', '1s', '2s')": "is not an argument here",
    "select * from hop(table s, descriptor(ts), '10s')": "arguments are missing",
    "select * from hop(table s, descriptor(ts), size => '10s', size => '2s')": "is not an argument here",
    "select * from tumble(table s, descriptor(ts), k)": "is not a length of time",
    "select * from tumble(table s, descriptor(ts), '10s' + '1s')": "is not expected here",
    "select * from tumble(table s partition by k, descriptor(ts), '10s')": "TUMBLE and HOP take none",
    "select * from tumble(table (select * from s), descriptor(ts), '10s')": "name a sub-query in WITH first",
    "select * from cumulate(table s, descriptor(ts), '2s', '10s')": "CUMULATE is not part",
    "select * from table(tumble(table s, descriptor(ts), '10s') x": "a bracket is missing",
    "select * from tumble(table s, descriptor(ts), '10s'": "this bracket is not closed",
    "select * from tumble(table s, descriptor(ts), '10s') x [range 5]": "a stream has one window",
    "select window_start, k, count(*) as n from session(table s partition by k, descriptor(ts), '3s') "
    "group by window_start, window_end": "sessions are those of the keys in PARTITION BY",
    "select * from tumble(table z, descriptor(ts), '10s')": "there is no stream 'z'",
}


@pytest.mark.parametrize(("text", "message"), WRONG.items())
def test_mistakes_are_reported_with_their_place(text, message):
    with pytest.raises(pk.SqlError, match=message) as found:
        sql(text.format(TUMBLE))
    assert "line 1, column" in str(found.value)
