"""Every mistake gets a typed error that says where, what and what to do; before any row is read."""

from __future__ import annotations

import pytest

import penstock as pk
from tests.unit.api.sql.rows import query

WRONG = {
    "select": (pk.SqlError, "FROM is missing"),
    "select from": (pk.SqlError, "line 1, column 8, at 'from'"),
    "": (pk.SqlError, "no query"),
    " ;; -- nothing": (pk.SqlError, "no query"),
    "select k from u; select k from u": (pk.SqlError, "line 1, column 16, at ';': a text holds one query"),
    'select v as "\ud800" from u': (pk.SqlError, "half a character"),
    "select k in from u": (pk.SqlError, ""),
    "select k from u [partition]": (pk.SqlError, "the window ends too early"),
    "insert into u values (1)": (pk.SqlError, "a query is a SELECT"),
    "drop table u": (pk.SqlError, "a query is a SELECT"),
    "select 'open from u": (pk.SqlError, "left open"),
    "select v +\n  nope from u": (pk.UnknownColumnError, "line 2, column 3: there is no column 'nope'"),
    "select vv from u": (pk.UnknownColumnError, "did you mean 'v'?"),
    "select a.k from u [range 5] a, (select v from u) [range 5] b where b.k = 'x'": (
        pk.UnknownColumnError,
        "there is no column 'k' in 'b' (columns: 'v')",
    ),
    "select z.v from u": (pk.SqlError, "there is no stream 'z' in FROM"),
    'select "V" from u': (pk.UnknownColumnError, "there is no column 'V'"),
    "select * from uu": (pk.SqlError, "line 1, column 15, at 'uu': there is no stream 'uu'; did you mean 'u'?"),
    "select a.b.v from u": (pk.SqlError, "there is no stream 'a' in FROM"),
    "select k from u [range 5] a, u [range 5] b where a.v = b.v": (pk.SqlError, "'k' could be a.k and b.k"),
    "select * from u a, u a": (pk.SqlError, "two streams in FROM are called 'a'"),
    "select foo(v) from u": (pk.SqlError, "there is no function 'foo'"),
    "select floor(v, 2) from u": (pk.SqlError, "floor"),
    "select round(v, k) from u": (pk.SqlError, "a constant stands here"),
    "select round(v, '10s') from u": (pk.SqlError, "a whole number"),
    "select starts_with(k, 1) from u": (pk.SqlError, "in quotes"),
    "select round(v, 1, 2) from u": (pk.SqlError, "does not take 3 arguments"),
    "select sum(k) from u [range 5]": (pk.ExpressionTypeError, "line 1, column 8: sum takes a number"),
    "select k + 1 from u": (pk.ExpressionTypeError, "line 1, column 8: add takes numbers"),
    "select v from u where k": (pk.ExpressionTypeError, "line 1, column 23: filter must be a boolean"),
    "select k, sum(v) from u [range 5]": (pk.SqlError, "'k' has many values in a window"),
    "select sum(sum(v)) from u": (pk.SqlError, "never inside another"),
    "select k from u where count(*) > 1": (pk.SqlError, "an aggregate stands in SELECT"),
    "select corr(v) from u": (pk.SqlError, "corr takes 2 arguments"),
    "select quantile(v, v) from u": (pk.SqlError, "constant from 0 to 1"),
    "select quantile(v, 7) from u": (pk.ExpressionTypeError, "from 0 to 1"),
    "select sum(distinct v) from u": (pk.SqlError, "DISTINCT is known in count"),
    "select sum(v) over (partition by k) from u": (pk.SqlError, "OVER is not part of streaming SQL"),
    "select k from u where v in (select v from r)": (pk.SqlError, "join with the other stream"),
    "select k from u where exists (select 1 from n)": (pk.SqlError, "stands in FROM only"),
    "select k like k from u": (pk.SqlError, "a pattern in quotes"),
    "select k like 'a\\_c' from u": (pk.SqlError, "no escapes"),
    "select cast(v as geometry) from u": (pk.SqlError, "int1, int2, int4 and int8 count bytes"),
    "select try_cast(v as int) from u": (pk.SqlError, ""),
    "select extract(epoch from ts) from s": (pk.SqlError, "EXTRACT takes"),
    "select date_trunc('century', ts) from s": (pk.SqlError, "date_trunc takes"),
    "select k from s where ts > 'yesterday'": (pk.SqlError, "this is not a time"),
    "select interval '1' parsec from u": (pk.SqlError, "interval"),
    "select v from u order by v": (pk.SqlError, "sort what .collect() gives"),
    "select v from u limit 3": (pk.SqlError, "ORDER BY one value says which"),
    "select t, sum(v) from u [range 5] order by t desc": (pk.SqlError, "never backwards"),
    "select v from u offset 3": (pk.SqlError, "OFFSET is not part"),
    "select k, sum(v) s from u [range 5] group by k order by s, k limit 1": (pk.SqlError, "ORDER BY one value"),
    "select k, sum(v) s from u [range 5] group by k order by k limit 1": (pk.SqlError, "write DESC"),
    "select k, sum(v) s from u [range 5] group by k order by s desc limit 0": (pk.WindowError, "at least one row"),
    "select k from u union select k from u": (pk.SqlError, "write UNION ALL"),
    "select k from u intersect select k from u": (pk.SqlError, "a query is a SELECT"),
    "select k from u union all select k, v from u": (pk.SqlError, "as many columns"),
    "select k from u union all select v from u": (pk.SchemaMismatchError, "cast one"),
    "select k from u [range 5] union all select k from u": (pk.SqlError, "the same window"),
    "select v as a, v as a from u": (pk.SqlError, "two columns named 'a'"),
    "select v from u having v > 1": (pk.SqlError, "without GROUP BY, write WHERE"),
    "select count(*) from u group by 2": (pk.SqlError, "there is no item 2"),
    "select count(*) from u group by rollup (k)": (pk.SqlError, "ROLLUP"),
    "select k from u group by k with rollup": (pk.SqlError, "ROLLUP"),
    "select k from u group by all": (pk.SqlError, "ALL"),
    "select k like 'a' escape 'x' from u": (pk.SqlError, "Escape"),
    "select v between symmetric 2 and 1 from u": (pk.SqlError, "SYMMETRIC"),
    "select cast(v as int format 'a') from u": (pk.SqlError, "FORMAT"),
    "select cast(k as varchar(3)) from u": (pk.SqlError, "no sizes"),
    "select first(v order by k) from u": (pk.SqlError, "the order of time"),
    "select sum(v limit 3) from u": (pk.SqlError, "LIMIT"),
    "select k from u limit 3 with ties": (pk.SqlError, "nothing further"),
    "select k from u fetch first 3 rows only": (pk.SqlError, "Fetch"),
    "select k into z from u": (pk.SqlError, "INTO"),
    "select k from u for update": (pk.SqlError, ""),
    "select k from u qualify true": (pk.SqlError, ""),
    "select * except (k) from u": (pk.SqlError, "EXCEPT"),
    "select k from (u join n on u.k = n.k)": (pk.SqlError, ""),
    "select k from f(1)": (pk.SqlError, ""),
    "select k from (values (1)) z": (pk.SqlError, ""),
    "select u.k from u asof join u b on u.k = b.k": (pk.SqlError, "one comparison of both times"),
    "select u.k from u asof join u b on u.k = b.k and u.t >= b.t - 1": (pk.SqlError, ".join_asof(...)"),
    "select u.k from u asof join u [range 5] b on u.k = b.k and u.t >= b.t": (pk.SqlError, "without a window"),
    "select u.k from u asof full join u b on u.k = b.k and u.t >= b.t": (pk.SqlError, "ASOF JOIN takes"),
    "select a.k from u a, u b where a.k = b.k and a.t <= b.t": (pk.SqlError, "with BETWEEN"),
    "select a.k from u a, u b where a.k = b.k and a.t between b.t + 5 and b.t": (pk.WindowError, "ends before it begins"),
    "select k, w from s full join r using (k)": (pk.SqlError, "USING goes with"),
    "select (k, v) = (1, 2) from u": (pk.SqlError, "Tuple"),
    "select (select k from u) from u": (pk.SqlError, "FROM only"),
    "with recursive a as (select k from u) select * from a": (pk.SqlError, "RECURSIVE"),
    "select distinct on (k) v from u": (pk.SqlError, "DISTINCT ON"),
    "select k from u natural join n": (pk.SqlError, "NATURAL"),
    "select a.k from u [range 5] a, u [range 5] b": (pk.ExpressionTypeError, "pair every row"),
    "select a.k from u a, u [range 5] b where a.k = b.k": (pk.SqlError, "rows of 'a' need a window"),
    "select a.k from u a, u [range 5] b where a.k = b.k and a.t between b.t - 5 and b.t": (pk.SqlError, "those of 'b' are in windows"),
    "select k from u where": (pk.SqlError, "at 'where': a part of WHERE is missing here"),
    "select v + from u": (pk.SqlError, "at 'from': a part of ADD is missing here"),
    "select v, w from u [range 5] a join r [range 5] b on v = w": (pk.SchemaMismatchError, "count differently"),
    "select a.v from u [rows 5] a join u [rows 5] b on a.k = b.k": (pk.UnsupportedError, "cannot be counted together"),
    "select a.v from u [range 5] a, u [partition by k rows 1] b where a.k = b.k": (pk.SqlError, "SELECT DISTINCT"),
    "select count(*) from u [range 5] a, u [partition by k rows 1] b where a.k = b.k": (pk.SqlError, "SELECT DISTINCT"),
    "select distinct b.v from u [range 5] a, u [partition by k rows 2] b where a.k = b.k": (pk.SqlError, "join_rolling"),
    "select distinct b.v from u [range 5] a, u [partition by k rows 1] b where a.v = b.v": (pk.SqlError, "just k"),
    "select sum(v) from u [partition by k rows 2]": (pk.SqlError, "add its columns to GROUP BY"),
    "select v[1] from u": (pk.SqlError, "line 1, column 9, at '[1]': this is not a window"),
    "select k [range 5] from u": (pk.SqlError, "a window stands behind a stream"),
    "select k from u [range]": (pk.SqlError, "the window ends too early"),
    "select k from u [range 5 slyde 1]": (pk.SqlError, "line 1, column 26, at 'slyde'"),
    "select k from u [rows x]": (pk.SqlError, "not a number of rows"),
    "select k from u [rows 2.5]": (pk.SqlError, "not a number of rows"),
    "select k from u [range 5": (pk.SqlError, "this bracket is not closed"),
    "select k from u [range 5] as a [range 6]": (pk.SqlError, "a stream has one window"),
    "select count(*) from u [range 0]": (pk.WindowError, "longer than zero"),
    "select count(*) from u [range '10s']": (pk.DurationError, "counts in ticks without a unit"),
    "select count(*) from u [range 0.5]": (pk.DurationError, "ticks without a unit"),
    "select count(*) from s [range 1000000000 slide 1]": (pk.WindowError, "1,000,000,000 windows"),
    "select count(*) from s [range '1 month']": (pk.UnsupportedError, "months need tz="),
    "select count(*) from s [rows 0]": (pk.WindowError, "at least 1"),
    "select * from n": (pk.SqlError, "a query reads a stream"),
    "select timestamp, count(*) from (select t as ts, v as timestamp from u) q [range 5]": (pk.SqlError, "many values"),
    "select null as z from u": (pk.ExpressionTypeError, "without a type"),
    "select u.k from u full join n on u.k = n.k": (pk.UnsupportedError, "no event has met"),
    "select * from n [range 5]": (pk.SqlError, "a table has no time"),
    "select count(*) from s group by tumble(v, interval '1' second)": (pk.SqlError, "the time column of the stream"),
    "select count(*) from s [range 5] group by tumble(ts, interval '1' second)": (pk.SqlError, "a window already"),
    "select count(*) from s group by tumble(ts)": (pk.SqlError, "write TUMBLE(ts, size)"),
    "select k from u tablesample (5 rows)": (pk.SqlError, "its window and its alias"),
    "select * from u a (x, y)": (pk.SqlError, "no list of columns"),
    "select :p from u": (pk.SqlError, "Placeholder"),
    "select * from (select k from u) [range 5": (pk.SqlError, "not closed"),
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_a_mistake_is_refused_where_it_stands(text: str) -> None:
    error, message = WRONG[text]
    with pytest.raises(error) as caught:
        query(text)
    assert message in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("given", [None, 3, b"select 1", ["select"]])
def test_a_query_is_a_text(given: object) -> None:
    with pytest.raises(pk.SqlError, match="a query is a text"):
        pk.sql(given)  # type: ignore[arg-type]


def test_only_streams_can_be_read() -> None:
    with pytest.raises(pk.ExpressionTypeError, match="SQL reads streams"):
        pk.sql("select * from s", s={"v": [1]})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "select v" + " / v % 7" * 40 + " from u",
        "select k" + " is not distinct from 'a' is not distinct from 'a'" * 20 + " from u",
        "select " + "nullif(" * 40 + "v" + ", 1)" * 40 + " from u",
        "select " + "case " * 30 + "v" + " when 1 then 2 when 3 then 4 end" * 30 + " from u",
        "select v from " + "(" * 15 + "u" + ")" * 15,
        "select v from " + "(select v from " * 20 + "u" + ") q" * 20,
    ],
)
def test_texts_that_could_grow_do_not(text: str) -> None:
    """Each of these is answered, one way or the other, at once."""
    try:
        query(text)
    except pk.PenstockError as error:
        assert str(error)  # noqa: PT017 - either is right


def test_what_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(pk.PenstockError, match="nested"):
        query("select " + "(" * 3000 + "v" + ")" * 3000 + " from u")
    with pytest.raises(pk.PenstockError, match="nested"):
        query("select v" + " + v" * 3000 + " from u")
    with pytest.raises(pk.SqlError, match="characters"):
        query("select " + " " * 1_000_000)


A = pk.stream("a", {"t": "int64", "k": "int64", "l": "list<int64>", "s": "string"}, time="t")
B = pk.stream("b", {"t": "int64", "k": "string", "l": "list<int64>", "s": "string"}, time="t")
KEYS = {
    "on a.k = b.k": r"the keys a\.k of type int64 and b\.k of type string cannot be compared",
    "using (k)": r"the keys a\.k of type int64 and b\.k of type string cannot be compared",
    "on b.s = a.k + 1": r"the keys a\.k \+ 1 of type int64 and b\.s of type string cannot be compared",
    "on a.l = b.l": r"the key a\.l of type list<item: int64> cannot be compared",
}


@pytest.mark.parametrize("condition", KEYS)
@pytest.mark.parametrize("how", ["join", "left join"])
def test_keys_of_a_join_are_called_as_the_text_calls_them(condition: str, how: str) -> None:
    with pytest.raises(pk.PenstockError, match=KEYS[condition]):
        pk.sql(f"select a.s from a [range 10] {how} b [range 10] {condition}", a=A, b=B)


def test_keys_of_an_asof_join_are_called_as_the_text_calls_them() -> None:
    for condition, message in KEYS.items():
        if condition.startswith("on"):
            with pytest.raises(pk.PenstockError, match=message):
                pk.sql(f"select a.s from a asof join b {condition} and a.t >= b.t", a=A, b=B)
