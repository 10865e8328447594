"""Every expression a buyer would try on day one, with answers worked out by hand."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk

NAN, INF = math.nan, math.inf
UTC = dt.UTC

TABLE = pa.table(
    {
        "ts": pa.array([0, 1, 2, 3], pa.timestamp("s")),
        "i": pa.array([7, -7, 0, None], pa.int32()),
        "j": pa.array([2, 2, 0, 2], pa.int64()),
        "u": pa.array([1, 2, 3, 2**64 - 1], pa.uint64()),
        "f": pa.array([2.5, -2.5, 0.0, None], pa.float64()),
        "g": pa.array([0.5, NAN, INF, 1.0], pa.float32()),
        "s": pa.array(["view", "click", "", None], pa.string()),
        "d": pa.array(["view", "click", "", None], pa.string()).dictionary_encode(),
        "b": pa.array([True, False, None, True]),
        "c": pa.array([True, None, None, False]),
        "day": pa.array([0, 59, 18_993, None], pa.int32()).cast(pa.date32()),
        "w": pa.array([0, 3_600, -60, None], pa.int64()).cast(pa.duration("s")),
        "z": pa.array([1_709_210_096_789, -1, 0, None], pa.int64()).cast(pa.timestamp("ms", "UTC")),
    }
)
C = pk.col

# name, expression, expected values, expected type (None: not checked)
CASES: list[tuple[str, Callable[[], Any], list[Any], pa.DataType | None]] = [
    ("int + int", lambda: C("i") + C("j"), [9, -5, 0, None], pa.int64()),
    ("int - literal", lambda: C("i") - 1, [6, -8, -1, None], pa.int64()),
    ("literal - int", lambda: 1 - C("i"), [-6, 8, 1, None], pa.int64()),
    ("int * int", lambda: C("i") * C("j"), [14, -14, 0, None], pa.int64()),
    ("int / int is true division", lambda: C("i") / C("j"), [3.5, -3.5, NAN, None], pa.float64()),
    ("int // int floors, null by zero", lambda: C("i") // C("j"), [3, -4, None, None], pa.int64()),
    ("int % int has the divisor's sign", lambda: C("i") % C("j"), [1, 1, None, None], pa.int64()),
    ("int % negative", lambda: C("i") % -3, [-2, -1, 0, None], pa.int64()),
    ("int // negative", lambda: C("i") // -3, [-3, 2, 0, None], pa.int64()),
    ("int ** int is a float", lambda: C("i") ** 2, [49.0, 49.0, 0.0, None], pa.float64()),
    ("float // float floors", lambda: C("f") // 2.0, [1.0, -2.0, 0.0, None], pa.float64()),
    ("float % float", lambda: C("f") % 2.0, [0.5, 1.5, 0.0, None], pa.float64()),
    ("float / zero", lambda: C("f") / 0, [INF, -INF, NAN, None], pa.float64()),
    ("float32 widens", lambda: C("g") + 0.25, [0.75, NAN, INF, 1.25], pa.float64()),
    ("uint64 keeps its range", lambda: C("u") // 2, [0, 1, 1, 2**63 - 1], pa.uint64()),
    ("negation", lambda: -C("i"), [-7, 7, 0, None], pa.int64()),
    ("abs", lambda: C("i").abs(), [7, 7, 0, None], None),
    ("abs of float", lambda: C("f").abs(), [2.5, 2.5, 0.0, None], pa.float64()),
    ("sqrt", lambda: C("j").sqrt(), [math.sqrt(2), math.sqrt(2), 0.0, math.sqrt(2)], pa.float64()),
    ("sqrt of a negative is nan", lambda: C("f").sqrt(), [math.sqrt(2.5), NAN, 0.0, None], pa.float64()),
    ("exp", lambda: C("i").exp(), [math.exp(7), math.exp(-7), 1.0, None], pa.float64()),
    ("log", lambda: C("j").log(), [math.log(2), math.log(2), -INF, math.log(2)], pa.float64()),
    ("floor", lambda: C("f").floor(), [2.0, -3.0, 0.0, None], pa.float64()),
    ("ceil", lambda: C("f").ceil(), [3.0, -2.0, 0.0, None], pa.float64()),
    ("round goes away from zero", lambda: C("f").round(), [3.0, -3.0, 0.0, None], pa.float64()),
    ("==", lambda: C("i") == 7, [True, False, False, None], pa.bool_()),
    ("!=", lambda: C("i") != 7, [False, True, True, None], pa.bool_()),
    ("<", lambda: C("i") < C("j"), [False, True, False, None], pa.bool_()),
    ("int against float", lambda: C("i") > 6.5, [True, False, False, None], pa.bool_()),
    ("uint64 against a negative", lambda: C("u") > -1, [True, True, True, True], pa.bool_()),
    ("uint64 against int64 is exact", lambda: C("u") == C("j"), [False, True, False, False], pa.bool_()),
    ("nan equals itself", lambda: C("g") == NAN, [False, True, False, False], pa.bool_()),
    ("nan is greatest", lambda: C("g") > INF, [False, True, False, False], pa.bool_()),
    ("string ==", lambda: C("s") == "view", [True, False, False, None], pa.bool_()),
    ("string != empty", lambda: C("s") != "", [True, True, False, None], pa.bool_()),
    ("strings order by bytes", lambda: C("s") < "v", [False, True, True, None], pa.bool_()),
    ("dictionary ==", lambda: C("d") == "click", [False, True, False, None], pa.bool_()),
    ("dictionary against string", lambda: C("d") == C("s"), [True, True, True, None], pa.bool_()),
    ("and is Kleene's", lambda: C("b") & C("c"), [True, False, None, False], pa.bool_()),
    ("or is Kleene's", lambda: C("b") | C("c"), [True, None, None, True], pa.bool_()),
    ("not", lambda: ~C("b"), [False, True, None, False], pa.bool_()),
    ("is_null", lambda: C("f").is_null(), [False, False, False, True], pa.bool_()),
    ("is_null of a string", lambda: C("s").is_null(), [False, False, False, True], pa.bool_()),
    ("fill_null", lambda: C("i").fill_null(5), [7, -7, 0, 5], None),
    ("fill_null of a string", lambda: C("s").fill_null("?"), ["view", "click", "", "?"], None),
    ("fill_null of a dictionary", lambda: C("d").fill_null("?"), ["view", "click", "", "?"], None),
    ("is_in", lambda: C("i").is_in([7, 0]), [True, False, True, None], pa.bool_()),
    ("is_in of strings", lambda: C("s").is_in(["click", ""]), [False, True, True, None], pa.bool_()),
    ("is_in of dictionaries", lambda: C("d").is_in(["click"]), [False, True, False, None], pa.bool_()),
    ("is_in of nothing", lambda: C("i").is_in([]), [False, False, False, None], pa.bool_()),
    ("between", lambda: C("i").between(-7, 0), [False, True, True, None], pa.bool_()),
    ("cast to float", lambda: C("i").cast("float64"), [7.0, -7.0, 0.0, None], pa.float64()),
    ("cast to int truncates", lambda: C("f").cast("int64"), [2, -2, 0, None], pa.int64()),
    ("cast to int8", lambda: C("i").cast("int8"), [7, -7, 0, None], pa.int8()),
    ("cast to bool", lambda: C("i").cast("bool"), [True, True, False, None], pa.bool_()),
    ("cast bool to int", lambda: C("b").cast("int64"), [1, 0, None, 1], pa.int64()),
    ("cast to string", lambda: C("i").cast("string"), ["7", "-7", "0", None], pa.string()),
    ("when then otherwise", lambda: pk.when(C("i") > 0).then(1).otherwise(-1), [1, -1, -1, -1], pa.int64()),
    (
        "when with two branches",
        lambda: pk.when(C("i") > 0).then("+").when(C("i") < 0).then("-").otherwise("0"),
        ["+", "-", "0", "0"],
        pa.string(),
    ),
    (
        "when without otherwise",
        lambda: pk.when(C("i") > 0).then(C("j")).otherwise(None),
        [2, None, None, None],
        None,
    ),
    ("least skips nulls", lambda: pk.least(C("i"), C("j")), [2, -7, 0, 2], None),
    ("greatest skips nulls", lambda: pk.greatest(C("i"), C("j"), 1), [7, 2, 1, 2], None),
    ("bool in arithmetic", lambda: C("b") + C("j"), [3, 2, None, 3], pa.int64()),
    ("year", C("z").dt.year, [2024, 1969, 1970, None], None),
    ("month", C("z").dt.month, [2, 12, 1, None], None),
    ("day", C("z").dt.day, [29, 31, 1, None], None),
    ("hour", C("z").dt.hour, [12, 23, 0, None], None),
    ("minute", C("z").dt.minute, [34, 59, 0, None], None),
    ("second", C("z").dt.second, [56, 59, 0, None], None),
    ("weekday, Monday being 1", C("z").dt.weekday, [4, 3, 4, None], None),
    ("year of a date", C("day").dt.year, [1970, 1970, 2022, None], None),
    (
        "truncate to the hour",
        lambda: C("z").dt.truncate("1h"),
        [
            dt.datetime(2024, 2, 29, 12, tzinfo=UTC),
            dt.datetime(1969, 12, 31, 23, tzinfo=UTC),
            dt.datetime(1970, 1, 1, tzinfo=UTC),
            None,
        ],
        pa.timestamp("ms", "UTC"),
    ),
    (
        "time against a literal",
        lambda: C("ts") >= dt.datetime(1970, 1, 1, 0, 0, 2),
        [False, False, True, True],
        pa.bool_(),
    ),
    (
        "date against a literal",
        lambda: C("day") == dt.date(1970, 3, 1),
        [False, True, False, None],
        pa.bool_(),
    ),
    ("duration against a literal", lambda: C("w") > dt.timedelta(0), [False, True, False, None], pa.bool_()),
    (
        "time minus time is a duration",
        lambda: C("ts") - C("ts"),
        [dt.timedelta(0)] * 4,
        pa.duration("s"),
    ),
    (
        "time plus duration",
        lambda: C("ts") + C("w"),
        [
            dt.datetime(1970, 1, 1),
            dt.datetime(1970, 1, 1, 1, 0, 1),
            dt.datetime(1969, 12, 31, 23, 59, 2),
            None,
        ],
        pa.timestamp("s"),
    ),
]


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-14) or (math.isnan(left) and math.isnan(right))
    return type(left) is type(right) and left == right


def _plain(column: pa.ChunkedArray) -> list[Any]:
    return column.to_pylist()


@pytest.mark.parametrize(
    ("expression", "values", "dtype"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_the_expression_has_the_answer_worked_out_by_hand(
    expression: Callable[[], Any], values: list[Any], dtype: pa.DataType | None
) -> None:
    result = pk.from_arrow(TABLE, time="ts").select(x=expression()).collect()
    column = result.sort_by("ts")["x"]
    got = _plain(column)
    assert len(got) == len(values)
    assert all(_equal(a, b) for a, b in zip(values, got, strict=True)), f"{got} is not {values}"
    if dtype is not None:
        assert column.type == dtype


BOOLEAN = [case for case in CASES if case[3] == pa.bool_()]


@pytest.mark.parametrize(
    ("expression", "values"), [case[1:3] for case in BOOLEAN], ids=[c[0] for c in BOOLEAN]
)
def test_a_filter_keeps_only_rows_for_which_the_predicate_is_true(
    expression: Callable[[], Any], values: list[Any]
) -> None:
    result = pk.from_arrow(TABLE, time="ts").filter(expression()).collect()
    kept = [index for index, value in enumerate(values) if value is True]
    assert sorted(result["ts"].cast(pa.int64()).to_pylist()) == kept


@pytest.mark.parametrize(
    ("expression", "values"), [case[1:3] for case in BOOLEAN], ids=[c[0] for c in BOOLEAN]
)
def test_a_conditional_count_counts_true_rows_only(expression: Callable[[], Any], values: list[Any]) -> None:
    windows = pk.from_arrow(TABLE, time="ts").window(pk.tumbling("1h"))
    result = windows.agg(n=pk.count(where=expression()), m=pk.count())
    assert result.collect().select(["n", "m"]).to_pylist() == [{"n": values.count(True), "m": 4}]


@pytest.mark.parametrize(
    "expression",
    [
        lambda: C("big") + 1,
        lambda: C("big") * 2,
        lambda: -C("small"),
        lambda: C("small").abs(),
        lambda: C("small") - 1,
        lambda: C("big").cast("int32"),
        lambda: C("huge").cast("int64"),
        lambda: C("infinite").cast("int64"),
        lambda: C("u") + (2**64 - 1),
    ],
    ids=["+", "*", "neg", "abs", "-", "cast int32", "cast 1e300", "cast inf", "uint64 +"],
)
def test_an_integer_that_does_not_fit_is_an_error_not_a_wrap(expression: Callable[[], Any]) -> None:
    table = pa.table(
        {
            "ts": pa.array([0], pa.timestamp("s")),
            "big": pa.array([2**63 - 1]),
            "small": pa.array([-(2**63)]),
            "huge": pa.array([1e300]),
            "infinite": pa.array([INF]),
            "u": pa.array([2], pa.uint64()),
        }
    )
    with pytest.raises(pk.OverflowError):
        pk.from_arrow(table, time="ts").select(x=expression()).collect()


def test_a_row_that_was_filtered_away_cannot_overflow() -> None:
    table = pa.table({"ts": pa.array([0, 1], pa.timestamp("s")), "v": pa.array([2**63 - 1, 1])})
    query = pk.from_arrow(table, time="ts").filter(pk.col("v") < 5).with_columns(w=pk.col("v") + 1)
    assert query.collect()["w"].to_pylist() == [2]


PARSED = pa.table(
    {
        "t": [1, 2],
        "ok": [False, True],
        "number": ["none", "20"],
        "day": ["soon", "2026-01-31"],
        "at": pa.array([2**62, 0], pa.int64()).view(pa.timestamp("ns")),
        "big": [2**62, 5],
    }
)
FAILING = {
    "a cast of text": (C("number").cast("int64"), 20),
    "a date in text": (C("day").str.to_date(), dt.date(2026, 1, 31)),
    "a time on the calendar": (C("at").dt.offset_by("70000d").dt.year(), 2161),
    "an integer": (C("big") * 4, 20),
}
UNDER_A_CONDITION = {
    "filter": lambda e, x: e.filter(C("ok")).select(x=x),
    "two filters": lambda e, x: e.filter(C("ok")).filter(x.is_not_null()).select(x=x),
    "choice": lambda e, x: e.select(x=pk.when(C("ok")).then(x)).filter(C("x").is_not_null()),
    "window behind a filter": lambda e, x: e.filter(C("ok")).window(10).agg(x=pk.max(x)),
    "session behind a filter": lambda e, x: e.filter(C("ok")).window(pk.session(3)).agg(x=pk.max(x)),
    "where": lambda e, x: e.window(10).agg(x=pk.max(x, where=C("ok"))),
    "where in a session": lambda e, x: e.window(pk.session(3)).agg(x=pk.max(x, where=C("ok"))),
    "where of a median": lambda e, x: e.window(10).agg(x=pk.mode(x, where=C("ok"))),
    "where in a look-back": lambda e, x: e.rolling(5).agg(x=pk.last(x, where=C("ok"))).filter(C("t") == 2),
}


@pytest.mark.parametrize("failing", FAILING)
@pytest.mark.parametrize("query", UNDER_A_CONDITION)
def test_what_fails_fails_only_for_rows_of_which_it_is_asked(query: str, failing: str) -> None:
    expression, value = FAILING[failing]
    events = pk.from_arrow(PARSED, time="t")
    assert UNDER_A_CONDITION[query](events, expression).collect()["x"].to_pylist() == [value]
    with pytest.raises(pk.PenstockError):
        events.select(x=expression).collect()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize(
    "moved",
    [
        lambda t: t.dt.offset_by("200000d"),
        lambda t: t.dt.offset_by("9999mo"),
        lambda t: t.dt.month_end(),
        lambda t: t.dt.replace_time_zone("Asia/Tokyo"),
    ],
    ids=["days", "months", "month_end", "replace_time_zone"],
)
def test_times_do_not_wrap_on_the_calendar(moved: Callable[[pk.Expr], pk.Expr], unit: str) -> None:
    latest = pa.array([2**63 - 86_400], pa.int64()).view(pa.timestamp(unit))
    events = pk.from_arrow(pa.table({"t": [0], "at": latest}), time="t")
    with pytest.raises((pk.OverflowError, pk.UnsupportedError)):
        events.select(x=moved(C("at"))).collect()


def test_dates_do_not_wrap_on_the_calendar() -> None:
    latest = pa.array([2**31 - 1], pa.int32()).view(pa.date32())
    events = pk.from_arrow(pa.table({"t": [0], "day": latest}), time="t")
    with pytest.raises(pk.OverflowError, match="date32"):
        events.select(x=C("day").dt.offset_by("1d")).collect()
    with pytest.raises(pk.DurationError, match="longer than a calendar counts"):
        events.select(x=C("day").dt.offset_by("999999999999999999d"))


def test_with_columns_replaces_a_column_in_its_place_and_adds_new_ones_at_the_end() -> None:
    result = pk.from_arrow(TABLE.select(["ts", "i", "j"]), time="ts").with_columns(i=C("i") * 10, k=C("j"))
    assert result.collect().column_names == ["ts", "i", "j", "k"]
    assert result.collect()["i"].to_pylist() == [70, -70, 0, None]


def test_fields_of_one_with_columns_see_the_old_columns() -> None:
    result = pk.from_arrow(TABLE, time="ts").with_columns(i=C("j"), j=C("i")).collect()
    assert result["i"].to_pylist() == [2, 2, 0, 2]
    assert result["j"].to_pylist() == [7, -7, 0, None]


def test_select_takes_names_and_keeps_the_time_column() -> None:
    assert pk.from_arrow(TABLE, time="ts").select("i", "s").collect().column_names == ["ts", "i", "s"]


def test_drop_and_rename() -> None:
    result = pk.from_arrow(TABLE.select(["ts", "i", "j"]), time="ts").drop("j").rename({"i": "n"}).collect()
    assert result.column_names == ["ts", "n"]


def test_columns_the_query_does_not_touch_pass_through() -> None:
    import decimal

    table = pa.table(
        {
            "ts": pa.array([0, 1, 2], pa.timestamp("s")),
            "v": [1, 2, 3],
            "list": [[1], [], None],
            "struct": [{"a": 1}, {"a": None}, None],
            "binary": [b"\x00", b"", None],
            "decimal": [decimal.Decimal("1.50"), None, decimal.Decimal("-2.25")],
        }
    )
    result = pk.from_arrow(table, time="ts").filter(pk.col("v") != 2).collect()
    assert result.equals(table.take([0, 2]))
