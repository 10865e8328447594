"""What SQL says, it does: each text beside the rows that it gives, or beside the same query in Python."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk
from penstock.plan.nodes import Aggregate, Attach, Join, Plan, inputs
from penstock.types.windows import Count, Session, TimeWindow, Unbounded
from tests.unit.api.sql.rows import query, rows, streams

ROWS = {
    "select * from u where t > 5": [(8, "b", 5), (13, "b", 6)],
    "select K, V * 2 as d from U where v between 4 and 5": [("a", 8), ("b", 10)],
    "select u.* from u where k = 'a' and not v in (1, 4)": [(3, "a", 3)],
    "select timestamp, k, sum(v) as t, count(*) as n from s [range 10] where k is not null group by k": [
        (10, "a", 14, 2), (10, "b", -2, 1), (20, "a", 4, 1), (20, "b", None, 1)],
    "select ts, k, sum(v) from s [range 10 seconds slide 5 seconds] group by k having count(*) > 1": [
        (10, "a", 14), (15, "a", 13)],
    "select window_start, window_end, avg(x) from s [range '10s']": [(0, 10, 1.5), (10, 20, 4.0), (20, 30, 5.5)],
    "select t, sum(v) as s from u [rows 2]": [(3, 3), (6, 7), (14, 11)],
    "select t, k, sum(v) as s from u [rows 3 slide 3] group by k": [(4, "a", 4), (4, "b", 2), (14, "a", 4), (14, "b", 11)],
    "select t, sum(v) as s from u [rows 3] where k = 'b'": [(4, 2), (14, 11)],
    "select v from u [rows 3 slide 1] where k = 'b'": [(2,), (5,), (6,)],
    "select t, count(*) n from (select t, v from u [rows 3 slide 1] where k = 'b') q": [(4, 1), (6, 1), (9, 1), (14, 2)],
    "select t, count(*) n from (select t, v from u [rows 3 slide 1] where k = 'b') q [range 10]": [(10, 2), (20, 1)],
    "select distinct k from u [rows 3] where v > 1": [("a",), ("a",), ("b",), ("b",)],
    "select t, k, sum(v) as s from u [partition by k rows 2] group by k": [(4, "a", 4), (9, "b", 7)],
    "select t, k, sum(v) as s from u [session 2] group by k": [(4, "b", 2), (7, "a", 8), (10, "b", 5), (15, "b", 6)],
    "select k, sum(v) as s from u [range unbounded] group by k": [("a", 8), ("b", 13)],
    "select t / 5 as b, count(*) from u group by t / 5 having b > 0": [(1, 2), (2, 1)],
    "select sum(v) as k, k as j from u [range 5] group by k": [
        (2, "b"), (4, "a"), (4, "a"), (5, "b"), (6, "b")],
    "select k from u [range 100] group by k": [("a",), ("b",)],
    "select case when v > 3 then 'big' else 'small' end as size, count(*) from u group by 1": [("big", 3), ("small", 3)],
    "select tumble_start(ts, interval '10' second) as b, count(*) n from s group by tumble(ts, interval '10' second)": [
        (0, 3), (10, 2), (20, 1)],
    "select hop_end(ts, interval '5' second, interval '10' second) e, count(*) n from s "
    "where ts < '1970-01-01 00:00:10' group by hop(ts, interval '5' second, interval '10' second)": [(5, 2), (10, 3), (15, 1)],
    "select window.start, window.end, count(*) n from s group by window(ts, '20 seconds')": [(0, 20, 5), (20, 40, 1)],
    "select session_start(ts, interval '5' second) e, count(*) n from s group by session(ts, interval '5' second)": [
        (0, 5), (21, 1)],
    "select s.k, v, w from s [range 10] join r [range 10] on s.k = r.k": [
        ("a", 4, 30), ("a", 5, 10), ("a", 9, 10), ("b", -2, 20)],
    "select s.k, v, w from s [range 10], r [range 10] where s.k = r.k and v > w - 6 and w < 100": [
        ("a", 5, 10), ("a", 9, 10)],
    "select s.k, r.k as rk, v, w from s [range 10] left join r [range 10] on s.k = r.k and w > 10 where v > 0": [
        (None, None, 1, None), ("a", None, 5, None), ("a", None, 9, None), ("a", "a", 4, 30)],
    "select k, ts_right, w from (select * from s [range 10] join r [range 10] using (k)) q where v = 4": [("a", 13, 30)],
    "select a.v from u [range 5] a left semi join u [range 5] b on a.k = b.k and a.v < b.v": [(1,)],
    "select timestamp, a.k, count(*) n from u [range 5 slide 2] a left semi join u [range 5 slide 2] b "
    "on a.k = b.k and a.v < b.v group by a.k": [(5, "a", 1), (7, "a", 1)],
    "select a.v from u [range 5] a left anti join u [range 5] b on a.k = b.k and a.v < b.v": [(2,), (3,), (4,), (5,), (6,)],
    "select q.timestamp, q.v, c.v as cv from (select a.timestamp, a.v from u [range 5] a join u [range 5] b on a.k = b.k and a.v = b.v) q "
    "join u [range 5] c on q.v < c.v": [(1, 1, 2), (1, 1, 3), (2, 2, 3), (5, 4, 5)],
    "select a.k, count(*) n, max(b.v) m from u [range 5] a, u [range 5] b where a.k = b.k group by a.k": [
        ("a", 1, 4), ("a", 4, 3), ("b", 1, 2), ("b", 1, 5), ("b", 1, 6)],
    "select k, sum(v) as v from u [range 5] group by k having v > 4 and k = 'b'": [("b", 5), ("b", 6)],
    "select k as v, v as k from u where k in (null, 'a')": [("a", 1), ("a", 3), ("a", 4)],
    "select upper(k) as kk, count(*) from u group by kk": [("A", 3), ("B", 3)],
    "select t, count(*) as n, max(timestamp) from u [range 5] group by t having t > 5": [(8, 1, 8), (13, 1, 13)],
    "select a.v, b.v as bv from u [range 5] a, u [range 5] b where a.k = b.k and a.v < b.v": [(1, 3)],
    "select a.v from u [range 5] a, u [range 5] b, u [range 5] c where a.v < b.v and b.v < c.v": [(1,)],
    "select s.k, v, w from s join r on s.k = r.k and r.ts between s.ts - interval '3' second and s.ts + interval '1' second": [
        ("a", 4, 30), ("a", 5, 10), ("b", -2, 20)],
    "select a.v, b.v as bv from u a, u b where a.k = b.k and a.timestamp > b.timestamp - 4 and a.t <= b.t and a.v < b.v": [
        (1, 3), (3, 4)],
    "select s.v, w from s asof join r on s.k = r.k and s.ts >= r.ts where s.v > w - 5": [(9, 10)],
    "select s.v, w from s asof left join r on s.k = r.k and s.ts > r.ts where s.v is not null": [
        (-2, None), (1, None), (4, 10), (5, None), (9, 10)],
    "select w, sum(v) t from s [range 10] asof join r on s.k = r.k and s.ts >= r.ts group by w": [(10, 4), (10, 9), (20, None)],
    "select name, v from u join n on u.k = n.k where v > 4": [("Bob", 5), ("Bob", 6)],
    "select name, sum(v) t from s [range 10] left join n on s.k = n.k group by name": [
        (None, 1), ("Anna", 4), ("Anna", 14), ("Bob", None), ("Bob", -2)],
    "with a as (select timestamp, k, sum(v) as t from s [range 10] group by k), b as (select timestamp, max(t) as m from a) "
    "select * from b": [(10, 14), (20, 4), (30, 1)],
    "select timestamp, max(t) m from (select k, sum(v) as t from s [range 10] group by k) q": [(10, 14), (20, 4), (30, 1)],
    "select a.k, b.m from (select k, sum(v) as t from s [range 10] group by k) a "
    "join (select max(v) as m from s [range 10]) b on a.t = b.m": [(None, 1), ("a", 4)],
    "select timestamp, n from (select timestamp, count(*) as n from u [range 5 slide 5]) q [range 100]": [
        (5, 3), (10, 2), (15, 1)],
    "select timestamp, sum(n) as s from (select timestamp, count(*) as n from u [range 5]) q [range 10]": [(10, 5), (20, 1)],
    "select k, v from s where v > 8 union all select k, w from r where w > 20": [("a", 9), ("a", 30)],
    "select timestamp, sum(v) q from (select t, v from u union all select t, v / 1.0 from u) z [range 50]": [(50, 42.0)],
    "select timestamp, max(v) q from u [range 50] union all select timestamp, min(v) from u [range 50]": [(50, 1), (50, 6)],
    "select distinct k from u": [("a",), ("b",)],
    "select distinct k from u [range 5]": [("a",), ("a",), ("b",), ("b",), ("b",)],
    "select distinct count(*) as n from u [range 5] group by k": [(1,), (1,), (1,), (2,)],
    "select v from u [range 1 slide 5]": [(4,)],
    "select timestamp, k, sum(v) as total from s [range 10] group by k order by timestamp, total desc limit 1": [
        (10, "a", 14), (20, "a", 4), (30, None, 1)],
    "select k, count(distinct v) c from u group by k order by 2 limit 2": [("a", 3), ("b", 3)],
    "select -a.v as v from u [range 20] a, u [range 20] b where a.v = b.v order by a.v limit 1": [(-1,)],
    "select -a.v as v from u [range 20] a, u [range 20] b where a.v = b.v order by v limit 1": [(-6,)],
    "select a.k, count(*) n from u [range 20] a, u [range 20] b where a.v = b.v group by a.k having k = 'a'": [("a", 3)],
    "select a.k, a.v from u [range 20] a, u [range 20] b where a.v = b.v order by a.v limit 1": [("a", 1)],
}  # fmt: skip


@pytest.mark.parametrize("text", ROWS)
def test_a_query_gives_these_rows(text: str) -> None:
    assert rows(query(text)) == ROWS[text]


def test_expressions_mean_what_sql_means() -> None:
    """Many in one query: each costs nothing to compile then."""
    values = {
        "case k when 'b' then 1 else 0 end": [0, 1],
        "case when v > 100 then 1 end": [None, None],
        "if(v < 0, 'neg', 'pos')": ["pos", "neg"],
        "coalesce(null, v, 0)": [5, -2],
        "nullif(k, 'a')": [None, "b"],
        "cast(v as double)": [5.0, -2.0],
        "v::varchar": ["5", "-2"],
        "cast(x as int)": [0, 1],
        "v / 2": [2, -1],
        "(v - 5) / 2": [0, -3],
        "v / 2.0": [2.5, -1.0],
        "(v - 5) % 4": [0, -3],
        "mod(v, -3)": [2, -2],
        "-v": [-5, 2],
        "v // 2": [2, -1],
        "abs(v)": [5, 2],
        "sign(v)": [1, -1],
        "round(x + 0.04, 1)": [0.5, 1.5],
        "floor(x)": [0.0, 1.0],
        "ceil(x)": [1.0, 2.0],
        "sqrt(x * 2 + 1) > 1.5": [False, True],
        "power(v, 2)": [25.0, 4.0],
        "ln(x) < 0": [True, False],
        "x between 1 and 3": [False, True],
        "x not between 1 and 3": [True, False],
        "k in ('b', 'c')": [False, True],
        "v in (5, v)": [True, True],
        "k is null": [False, False],
        "(v > 1) is true": [True, False],
        "null is not distinct from k": [False, False],
        "k = 'a' or v > 100 and true": [True, False],
        "not (k = 'a')": [False, True],
        "k like 'a%'": [True, False],
        "k like '%a%'": [True, False],
        "k like '%.%'": [False, False],
        "replace(k || '.', '.', '-')": ["a-", "b-"],
        "k not like '%b'": [True, False],
        "k ilike 'A'": [True, False],
        "k like 'a%a'": [False, False],
        "upper(k) || '!'": ["A!", "B!"],
        "length(k)": [1, 1],
        "substring('hello', 2, 3) || k": ["ella", "ellb"],
        "trim('  ' || k || ' ')": ["a", "b"],
        "replace(k, 'a', 'z')": ["z", "b"],
        "concat(k, '-', k)": ["a-a", "b-b"],
        "left(k || 'xyz', 2)": ["ax", "bx"],
        "starts_with(k, 'a')": [True, False],
        "greatest(v, 3)": [5, 3],
        "least(v, 3, 1)": [1, -2],
        "extract(second from ts)": [0, 3],
        "extract(dow from ts)": [4, 4],
        "date_trunc('minute', ts) = ts": [True, False],
        "date_trunc('week', ts) = timestamp '1969-12-29 00:00:00'": [True, True],
        "ts + interval '1' minute > '1970-01-01T00:01:01'": [False, True],
        "ts - interval '2 seconds' < timestamp '1970-01-01'": [True, False],
        "ts in ('1970-01-01', '1970-01-01 00:00:04')": [True, False],
        "year(ts)": [1970, 1970],
        "true": [True, True],
        "1e1": [10.0, 10.0],
        "'it''s'": ["it's", "it's"],
    }
    text = ", ".join(f'{value} as "{place}"' for place, value in enumerate(values))
    table = query(f"select {text} from s where ts < '1970-01-01 00:00:05'").collect()
    assert {value: table[str(place)].to_pylist() for place, value in enumerate(values)} == values


TEXTS = ["", "a", "abc", "a.c", "aXbYc", "a\nb", "äöü", "AbC", "50%", "(a|b)*", "aab", None]
LIKE = {
    "_": ["a"],
    "___": ["abc", "a.c", "a\nb", "äöü", "AbC", "50%", "aab"],
    "a_c": ["abc", "a.c"],
    "a_%": ["abc", "a.c", "aXbYc", "a\nb", "aab"],
    "%_c": ["abc", "a.c", "aXbYc"],
    "a%b%c": ["abc", "aXbYc"],
    "a%a%b": ["aab"],
    "a%b%": ["abc", "aXbYc", "a\nb", "aab"],
    "%(a_b)*": ["(a|b)*"],
    "_.c": ["a.c"],
    "%": TEXTS[:-1],
    "%%": TEXTS[:-1],
    "": [""],
}


@pytest.mark.parametrize("pattern", LIKE)
def test_of_like_a_percent_sign_is_any_text_and_an_underscore_one_character(pattern: str) -> None:
    texts = pk.from_arrow(pa.table({"t": range(len(TEXTS)), "k": pa.array(TEXTS)}), time="t")
    assert (
        pk.sql(f"select k from s where k like '{pattern}'", s=texts).collect()["k"].to_pylist()
        == LIKE[pattern]
    )
    others = [value for value in TEXTS if value is not None and value not in LIKE[pattern]]
    assert (
        pk.sql(f"select k from s where k not like '{pattern}'", s=texts).collect()["k"].to_pylist() == others
    )


def test_ilike_does_not_look_at_capitals() -> None:
    texts = pk.from_arrow(pa.table({"t": range(len(TEXTS)), "k": pa.array(TEXTS)}), time="t")
    assert pk.sql("select k from s where k ilike 'A_C'", s=texts).collect()["k"].to_pylist() == [
        "abc",
        "a.c",
        "AbC",
    ]


def test_names_stand_in_double_quotes_or_backquotes() -> None:
    odd = pk.from_arrow(pa.table({"t": [1], "select": [2], 'a"b`c': [3]}), time="t")
    assert pk.sql('select `select` as `order by`, `a"b``c` from `s`', s=odd).collect().to_pylist() == [
        {"order by": 2, 'a"b`c': 3}
    ]
    assert pk.sql('select "a""b`c" from "s"', s=odd).collect().to_pylist() == [{'a"b`c': 3}]


def test_aggregates_have_their_sql_names() -> None:
    made = {
        "sum(v)": pk.sum("v"), "avg(x)": pk.mean("x"), "min(k)": pk.min("k"), "max(x)": pk.max("x"),
        "count(v)": pk.count("v"), "count(distinct k)": pk.count_distinct("k"), "product(x)": pk.product("x"),
        "stddev(x)": pk.std("x"), "stddev_pop(x)": pk.std("x", ddof=0), "variance(x)": pk.var("x"),
        "var_pop(x)": pk.var("x", ddof=0), "median(x)": pk.median("x"), "quantile_cont(x, 0.9)": pk.quantile("x", 0.9),
        "percentile_cont(0.25) within group (order by x)": pk.quantile("x", 0.25), "mode(k)": pk.mode("k"),
        "first(v)": pk.first("v"), "last(v ignore nulls)": pk.last("v", ignore_nulls=True),
        "last(v) ignore nulls": pk.last("v", ignore_nulls=True), "any_value(v)": pk.first("v", ignore_nulls=True),
        "arg_min(k, x)": pk.min_by("k", "x"), "max_by(k, x)": pk.max_by("k", "x"), "corr(x, v)": pk.corr("x", "v"),
        "covar_samp(x, v)": pk.cov("x", "v"), "covar_pop(x, v)": pk.cov("x", "v", ddof=0), "skewness(x)": pk.skew("x"),
        "kurtosis(x)": pk.kurtosis("x"), "bool_and(v > 0)": pk.all(pk.col("v") > 0), "bool_or(v > 0)": pk.any(pk.col("v") > 0),
        "array_agg(v)": pk.list("v"), "count_if(v > 3)": pk.count(where=pk.col("v") > 3),
        "sum(v) filter (where k = 'a')": pk.sum("v", where=pk.col("k") == "a"),
        "sum(v * x) / sum(x)": pk.sum(pk.col("v") * pk.col("x")) / pk.sum("x"),
        "max(v) - min(v)": pk.max("v") - pk.min("v"),
    }  # fmt: skip
    text = ", ".join(f'{value} as "{place}"' for place, value in enumerate(made))
    ours = query(f"select {text} from s [range 30]").plan
    named = {str(place): expr for place, expr in enumerate(made.values())}
    theirs = streams()["s"].window("30s").agg(**named).plan
    assert next(part for part in parts(ours) if isinstance(part, Aggregate)) == theirs


def parts(plan: Plan) -> list[Plan]:
    return [plan, *(part for input_ in inputs(plan) for part in parts(input_))]


WINDOWS = {
    ("s", "[range 60 slide 1]"): TimeWindow(60, 1),
    ("s", "[RANGE 1 minute SLIDE 10 seconds]"): TimeWindow(60, 10),
    ("s", "[range '1 minute 30 seconds']"): TimeWindow(90, 90),
    ("s", "[range interval '1' hour slide interval '15 minutes']"): TimeWindow(3600, 900),
    ("s", "as z [range 2h slide 1h]"): TimeWindow(7200, 3600),
    ("u", "[range 7 slide 3]"): TimeWindow(7, 3),
    ("u", "[rows 100 slide 10]"): Count(100, 10),
    ("u", "[rows 5]"): Count(5, 5),
    ("s", "[session 30]"): Session(30),
    ("u", "[range unbounded]"): Unbounded(),
    ("u", ""): Unbounded(),
}


@pytest.mark.parametrize(("stream", "clause"), WINDOWS)
def test_a_window_stands_behind_its_stream(stream: str, clause: str) -> None:
    plan = query(f"select count(*) from {stream} {clause}").plan
    assert next(part.window for part in parts(plan) if isinstance(part, Aggregate)) == WINDOWS[stream, clause]


def test_each_side_of_a_join_has_its_own_window() -> None:
    plan = query("select a.v from u [range 10 slide 5] a, u [range 20 slide 5] b where a.k = b.k").plan
    join = next(part for part in parts(plan) if isinstance(part, Join))
    assert (join.pairing.left, join.pairing.right, join.on) == (
        TimeWindow(10, 5),
        TimeWindow(20, 5),
        (("k", "b.k"),),
    )


def test_columns_are_those_of_the_list_and_no_others() -> None:
    assert query("select k, sum(v) from s [range 10] group by k").schema.names == ["k", "sum(v)"]
    assert query("select v from s").schema.names == ["v"]
    assert query("select * from s [range 10] a join r [range 10] b on a.k = b.k").schema.names == [
        "ts", "k", "v", "x", "ts_right", "k_right", "w",
    ]  # fmt: skip


def test_a_result_with_a_timestamp_is_a_stream_for_further_windows() -> None:
    counts = query("select timestamp, k, count(*) as n from u [range 5] group by k")
    again = counts.window(10, by="k").agg(n=pk.sum("n"))
    assert rows(again.select("k", "n").drop("window_start")) == [(10, "a", 3), (10, "b", 2), (20, "b", 1)]


def test_a_query_is_a_view_for_others() -> None:
    counts = query("select k, count(*) as n from u [range 5] group by k")
    made = pk.sql("select timestamp, max(n) as n from counts", counts=counts)
    assert rows(made) == [(5, 2), (10, 1), (15, 1)]


def test_streams_without_a_name_get_the_one_they_are_passed_by() -> None:
    made = pk.sql("select v from Events", Events=pk.stream(None, {"t": "int64", "v": "int64"}, time="t"))
    assert made.name == "Events"
    assert made.collect(Events=pa.table({"t": [1], "v": [2]})).to_pydict() == {"v": [2]}


def test_streams_can_come_in_a_mapping() -> None:
    events = streams()["u"]
    assert rows(pk.sql('select v from "my events" where v > 5', {"my events": events})) == [(6,)]


def test_columns_that_windows_would_add_can_be_there_already() -> None:
    table = pa.table({"window_end": [1, 2, 12], "window_start": [7, 8, 9], "join_time": [4, 5, 6]})
    views = pk.from_arrow(table, time="window_end", name="views")
    made = pk.sql(
        "select window_end, sum(window_start) as s, max(join_time) m from views [range 10]", views=views
    )
    assert rows(made) == [(10, 15, 5), (20, 9, 6)]
    assert pk.sql("select * from views", views=views).collect().to_pydict() == table.to_pydict()


def test_rows_are_counted_before_where_and_bounds_tell_windows_apart() -> None:
    plan = query("select count(*) from u [rows 3] where v > 1").plan
    assert any(isinstance(part, Attach) for part in parts(plan))


CLOCKS = {
    "milliseconds": (pa.timestamp("ms"), {}, "[range 10]", 10_000),
    "a zone": (pa.timestamp("us", "Europe/Berlin"), {}, "[range 10 slide 10]", 10_000_000),
    "days": (pa.date32(), {}, "[range '10 days']", 10),
    "days in seconds": (pa.date32(), {}, "[range 864000]", 10),
    "integers with a unit": (pa.int64(), {"unit": "ms"}, "[range 0.01]", 10),
    "ticks": (pa.int32(), {}, "[range 10]", 10),
}


@pytest.mark.parametrize("clock", CLOCKS)
def test_bare_numbers_are_seconds_on_every_clock_that_knows_them(clock: str) -> None:
    dtype, options, window, ticks = CLOCKS[clock]
    stored = pa.int32() if pa.types.is_date(dtype) else pa.int64()
    table = pa.table({"t": pa.array([ticks // 10, 3 * ticks // 2], stored).cast(dtype), "v": [1, 2]})
    events = pk.from_arrow(table, time="t", **options)
    made = pk.sql(f"select timestamp, sum(v) as s from e {window}", e=events)
    plan = next(part for part in parts(made.plan) if isinstance(part, Aggregate))
    assert plan.window == TimeWindow(ticks, ticks)
    assert made.schema.field("timestamp").type == dtype
    assert made.collect()["s"].to_pylist() == [1, 2]


def test_time_may_be_implied_or_zoned_and_texts_encoded() -> None:
    ecg = pk.from_arrow(pa.table({"x": [1.0, 2.0, 3.0, 4.0]}), time=pk.every("4ms"))
    made = pk.sql("select timestamp, avg(x) as m from ecg [range '8ms']", ecg=ecg).collect()
    assert made["m"].to_pylist() == [1.5, 3.5]
    zoned = pa.table(
        {
            "ts": pa.array([0, 3_600], pa.timestamp("s", "Asia/Kolkata")),
            "k": pa.array(["a", "b"]).dictionary_encode(),
        }
    )
    events = pk.from_arrow(zoned, time="ts")
    text = "select k, hour(ts) as h from e where ts >= '1970-01-01 01:00:00' and ts < timestamp '1970-01-01 07:31:00+05:30' and k like 'b%'"
    assert pk.sql(text, e=events).collect().to_pylist() == [{"k": "b", "h": 6}]
