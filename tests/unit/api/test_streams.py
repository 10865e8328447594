"""The verbs of a stream: the columns they give, the plans they build, and the mistakes they refuse."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.expr.nodes import Call, Column, Literal
from penstock.plan.nodes import Filter, Source
from penstock.plan.schema import time_of
from penstock.plan.verify import verify
from penstock.types.windows import CarriedWindow, TimeWindow

SCHEMA = {"ts": "timestamp[us]", "k": "string", "v": "int64", "x": "float64", "raw": pa.list_(pa.int8())}
EVENTS = pk.stream("events", SCHEMA, time="ts")
TICKS = pk.stream("ticks", {"t": "int64", "v": "int64"}, time="t")
SUMS = EVENTS.window("10s", by="k").agg(total=pk.sum("v"), n=pk.count())
C = pk.col

RESULTS = [
    (EVENTS.filter(C("v") > 1), "ts k v x raw"),
    (EVENTS.select("v"), "ts v"),
    (EVENTS.select("v", "ts"), "v ts"),
    (EVENTS.select(["v", "k"], double=C("v") * 2), "ts v k double"),
    (EVENTS.select("v", when=C("ts")), "v when"),
    (EVENTS.select((C("v") + 1).alias("w")), "ts w"),
    (EVENTS.with_columns(v=C("x"), y=C("x")), "ts k v x raw y"),
    (EVENTS.with_columns(ts=C("ts")), "ts k v x raw"),
    (EVENTS.drop("raw", "x"), "ts k v"),
    (EVENTS.drop(["ts"]), "k v x raw"),
    (EVENTS.drop("ts").select("v"), "v"),
    (EVENTS.rename({"ts": "when", "v": "k", "k": "v"}), "when v k x raw"),
    (EVENTS.union(EVENTS.select("raw", "x", "v", "k")), "ts k v x raw"),
    (EVENTS.distinct("k"), "ts k v x raw"),
    (EVENTS.drop("raw").distinct(), "ts k v x"),
    (SUMS, "window_start window_end k total n"),
    (SUMS.select("total"), "window_start window_end total"),
    (SUMS.filter(C("n") > 1).top_k(2, by="total"), "window_start window_end k total n"),
    (SUMS.top_k(2, by=C("total"), ties="all"), "window_start window_end k total n"),
    (SUMS.window().agg(m=pk.max("total")), "window_start window_end m"),
    (SUMS.window("1m").agg(m=pk.max("total")), "window_start window_end m"),
    (
        EVENTS.window("10s", by=["k", (C("v") % 2).alias("odd")]).agg(n=pk.count()),
        "window_start window_end k odd n",
    ),
    (EVENTS.window("10s", by=C("k")).agg(pk.count().alias("n")), "window_start window_end k n"),
    (EVENTS.window("10s").with_columns(m=pk.mean("x")), "ts k v x raw window_start window_end m"),
    (SUMS.window(by="k").with_columns(m=pk.mean("total")), "window_start window_end k total n m"),
    (
        EVENTS.window("10s").with_columns(d=C("x") - pk.mean("x")).window().agg(n=pk.count()),
        "window_start window_end n",
    ),
]


@pytest.mark.parametrize(("stream", "names"), RESULTS, ids=[names for _, names in RESULTS])
def test_a_verb_gives_the_columns_it_promises(stream, names):
    assert stream.schema.names == names.split()
    verify(stream.plan)


def test_several_predicates_must_all_hold():
    plan = EVENTS.filter(C("v") > 1, C("x") > 2).plan
    assert isinstance(plan, Filter)
    assert plan.predicate.function == "and"
    assert EVENTS.filter().plan == EVENTS.plan


def test_a_selected_time_column_under_another_name_is_the_time():
    renamed = EVENTS.select("v", when=C("ts"))
    assert time_of(renamed.plan).column == "when"
    assert renamed.window("10s").agg(n=pk.count()).schema.field("window_end").type == pa.timestamp("us")


def test_a_column_that_takes_the_name_of_a_dropped_time_is_not_the_time():
    stream = EVENTS.drop("ts").with_columns(ts=C("v"))
    with pytest.raises(pk.WindowError, match="no time any more"):
        stream.window("10s")


def test_durations_are_counted_in_the_unit_of_what_they_apply_to():
    plan = EVENTS.filter(C("ts").dt.truncate("1h") == C("ts")).plan
    assert plan.predicate.args[0] == Call("truncate", (Column("ts"),), (("every", 3_600_000_000),))
    with pytest.raises(pk.DurationError):
        EVENTS.filter(C("ts").dt.truncate(10) == C("ts"))
    with pytest.raises(pk.DurationError, match="longer than zero"):
        EVENTS.filter(C("ts").dt.truncate("0s") == C("ts"))


def test_a_null_beside_values_takes_their_type():
    plan = EVENTS.with_columns(y=pk.when(C("v") > 0).then(C("x")).otherwise(None), z=C("v") + None).plan
    y, z = plan.fields[-2:]
    assert y.expr.otherwise == Literal(None, pa.float64())
    assert z.expr.args[1] == Literal(None, pa.int64())


WINDOWS = [
    ((pk.tumbling("10s"),), {}, TimeWindow(10_000_000, 10_000_000)),
    (("10s",), {}, TimeWindow(10_000_000, 10_000_000)),
    (("10s",), {"every": "1s"}, TimeWindow(10_000_000, 1_000_000)),
    ((dt.timedelta(seconds=10),), {"offset": "3s"}, TimeWindow(10_000_000, 10_000_000, 3_000_000)),
    ((pk.sliding("10s", every="1s", offset="-300ms"),), {}, TimeWindow(10_000_000, 1_000_000, 700_000)),
]


@pytest.mark.parametrize(("args", "options", "window"), WINDOWS)
def test_a_window_is_counted_in_ticks_of_the_stream(args, options, window):
    assert EVENTS.window(*args, **options).agg(n=pk.count()).plan.window == window


def test_a_window_of_ticks_is_for_integer_time():
    assert TICKS.window(10, every=5).agg(n=pk.count()).plan.window == TimeWindow(10, 5)
    assert SUMS.window().agg(n=pk.count()).plan.window == CarriedWindow()


MISTAKES = [
    (pk.UnknownColumnError, "did you mean 'v'", lambda: EVENTS.filter(C("vv") > 1)),
    (pk.UnknownColumnError, "'nope'", lambda: EVENTS.select("nope")),
    (pk.UnknownColumnError, "'nope'", lambda: EVENTS.drop("nope")),
    (pk.UnknownColumnError, "'nope'", lambda: EVENTS.rename({"nope": "x"})),
    (pk.UnknownColumnError, "'nope'", lambda: EVENTS.distinct("nope")),
    (pk.UnknownColumnError, "'nope'", lambda: EVENTS.window("1s", by="nope")),
    (pk.UnknownColumnError, "'v'", lambda: SUMS.filter(C("v") > 1)),
    (pk.ExpressionTypeError, "filter must be a boolean", lambda: EVENTS.filter("v")),
    (pk.ExpressionTypeError, "single rows", lambda: EVENTS.filter(pk.sum("v") > 1)),
    (pk.ExpressionTypeError, "single rows", lambda: EVENTS.select(s=pk.sum("v"))),
    (pk.ExpressionTypeError, "needs a name", lambda: EVENTS.select(pk.lit(1) + 1)),
    (pk.ExpressionTypeError, "needs a name", lambda: EVENTS.window("1s").agg(pk.count())),
    (pk.ExpressionTypeError, "without a type", lambda: EVENTS.select(n=None)),
    (pk.ExpressionTypeError, "many values", lambda: EVENTS.window("1s").agg(v=C("v"))),
    (pk.ExpressionTypeError, "many values", lambda: EVENTS.window("1s", by="k").agg(d=C("v") - pk.min("v"))),
    (pk.ExpressionTypeError, "at least one", lambda: EVENTS.window("1s").agg()),
    (pk.ExpressionTypeError, "cannot group by", lambda: EVENTS.window("1s", by="raw")),
    (
        pk.ExpressionTypeError,
        "cannot order by",
        lambda: EVENTS.window("1s").with_columns(n=pk.count()).top_k(1, by="raw"),
    ),
    (
        pk.SchemaMismatchError,
        "one unit",
        lambda: TICKS.union(pk.stream("s", {"t": "int64", "v": "int64"}, time="t", unit="s")),
    ),
    (
        pk.SchemaMismatchError,
        "one time column",
        lambda: TICKS.union(pk.stream("s", {"t": "int64", "v": "int64"}, time="v")),
    ),
    (pk.ExpressionTypeError, "by= takes names", lambda: EVENTS.window("1s", by=3)),
    (pk.ExpressionTypeError, "keep is", lambda: EVENTS.distinct("k", keep="any")),
    (pk.ExpressionTypeError, "a subset of other columns", EVENTS.distinct),
    (pk.ExpressionTypeError, "ties is", lambda: SUMS.top_k(1, by="n", ties="some")),
    (pk.SchemaMismatchError, "'v'", lambda: EVENTS.select("v", v=C("x"))),
    (pk.SchemaMismatchError, "'ts'", lambda: EVENTS.select(ts=C("v"))),
    (pk.SchemaMismatchError, "'x'", lambda: EVENTS.rename({"v": "x"})),
    (pk.SchemaMismatchError, "no column", lambda: TICKS.drop("t", "v")),
    (pk.SchemaMismatchError, "'k'", lambda: EVENTS.window("1s", by="k").agg(k=pk.count())),
    (pk.SchemaMismatchError, "'window_end'", lambda: EVENTS.window("1s").agg(window_end=pk.count())),
    (pk.SchemaMismatchError, "'k'", lambda: EVENTS.window("1s", by=["k", "k"])),
    (pk.SchemaMismatchError, "'v'", lambda: EVENTS.window("1s").with_columns(v=pk.count())),
    (pk.SchemaMismatchError, "already have", lambda: SUMS.window("1m").with_columns(m=pk.count())),
    (pk.SchemaMismatchError, "missing", lambda: EVENTS.union(TICKS)),
    (pk.SchemaMismatchError, "'v' is int64 and double", lambda: EVENTS.union(EVENTS.with_columns(v=C("x")))),
    (pk.UnsupportedError, "cannot be changed", lambda: EVENTS.with_columns(ts=C("ts") + dt.timedelta(1))),
    (pk.UnsupportedError, "months need tz=", lambda: EVENTS.window("1mo")),
    (pk.WindowError, "longer than zero", lambda: EVENTS.distinct("k", within="-1h")),
    (pk.WindowError, "longer than zero", lambda: pk.session("0s")),
    (pk.DurationError, "bare number", lambda: EVENTS.window(pk.session(10))),
    (pk.WindowError, "whole number of rows", lambda: pk.rows(1.5)),
    (pk.WindowError, "whole number of rows", lambda: pk.rows("10")),
    (pk.WindowError, "at least 1", lambda: pk.rows(10, every=0)),
    (pk.WindowError, "windows", lambda: EVENTS.window(pk.rows(10_000_000, every=1))),
    (pk.WindowError, "time zone", lambda: EVENTS.window("1d", tz="Nowhere/Town")),
    (pk.WindowError, "time zone", lambda: EVENTS.window("1d", tz=3)),
    (pk.DurationError, "unit=", lambda: TICKS.window("1d", tz="UTC")),
    (pk.WindowError, "closed is", lambda: EVENTS.rolling("1h", closed="middle")),
    (pk.WindowError, "does not apply to rows", lambda: EVENTS.rolling(pk.rows(3), closed="both")),
    (pk.WindowError, "belong to windows", lambda: EVENTS.rolling(pk.rows(3, every=2))),
    (pk.WindowError, "cannot be negative", lambda: EVENTS.rolling("1h", delay="-1s")),
    (pk.WindowError, "needs a size", lambda: EVENTS.rolling([])),
    (pk.WindowError, "no time any more", lambda: EVENTS.drop("ts").rolling("1h")),
    (pk.SchemaMismatchError, "1h", lambda: EVENTS.rolling(["1h", "1h"])),
    (pk.ExpressionTypeError, "at least one aggregate", lambda: EVENTS.rolling("1h").agg()),
    (pk.ExpressionTypeError, "many values in a look-back", lambda: EVENTS.rolling("1h").agg(v=C("v"))),
    (pk.SchemaMismatchError, "'v'", lambda: EVENTS.rolling("1h").with_columns(v=pk.count())),
    (pk.ExpressionTypeError, "function of a table", lambda: EVENTS.window("1h").apply(3, {"n": "int64"})),
    (pk.SchemaMismatchError, "'k'", lambda: EVENTS.window("1h", by="k").apply(len, {"k": "int64"})),
    (pk.ExpressionTypeError, "streams", lambda: EVENTS.union(3)),
    (pk.ExpressionTypeError, "old name to the new", lambda: EVENTS.rename(["v"])),
    (pk.WindowError, "whole number", lambda: SUMS.top_k(float("nan"), by="n")),
    (pk.WindowError, "longer than zero", lambda: EVENTS.window("0s")),
    (pk.WindowError, "longer than zero", lambda: EVENTS.window(dt.timedelta(seconds=-1))),
    (pk.WindowError, "longer than zero", lambda: TICKS.window(0)),
    (pk.WindowError, "longer than zero", lambda: EVENTS.window("1s", every="0s")),
    (pk.WindowError, "86,400,000,000 windows", lambda: EVENTS.window("1d", every="1us")),
    (pk.WindowError, "carry none", EVENTS.window),
    (pk.WindowError, "carry none", lambda: SUMS.drop("window_start").window()),
    (pk.WindowError, "carry none", lambda: EVENTS.top_k(3, by="v")),
    (pk.UnsupportedError, "leave out by=", lambda: EVENTS.window("1s", by="k").top_k(3, by="v")),
    (pk.WindowError, "at least one", lambda: SUMS.top_k(0, by="n")),
    (pk.WindowError, "no further options", lambda: SUMS.window(every="1s")),
    (pk.WindowError, "inside the window", lambda: EVENTS.window(pk.tumbling("1s"), every="1s")),
    (pk.WindowError, "no time any more", lambda: EVENTS.drop("ts").window("1s")),
    (pk.ExpressionTypeError, "say how to read it, as in schema=", lambda: pk.stream("s", SCHEMA, time="k")),
    (pk.DurationError, "no unit 'x'", lambda: EVENTS.window("10x")),
    (pk.DurationError, "not a duration", lambda: EVENTS.window(1.5)),
    (pk.DurationError, "bare number", lambda: EVENTS.window(10)),
    (pk.DurationError, "unit=", lambda: TICKS.window("10s")),
    (pk.DurationError, "whole number of ticks", lambda: EVENTS.window("10ns")),
]


@pytest.mark.parametrize(
    ("error", "says", "mistake"), MISTAKES, ids=[f"{error.__name__}: {says}" for error, says, _ in MISTAKES]
)
def test_a_mistake_is_refused_at_once_with_its_reason(error, says, mistake):
    with pytest.raises(error, match=says):
        mistake()


def test_a_window_may_put_a_row_into_a_million_windows_but_not_more():
    assert TICKS.window(1_000_000, every=1).agg(n=pk.count()).plan.window.size == 1_000_000
    with pytest.raises(pk.WindowError, match="1,000,001"):
        TICKS.window(1_000_001, every=1)


def test_streams_without_a_name_are_numbered_in_plan_order():
    one, two = (pk.from_arrow(pa.table({"t": [1]}), time="t") for _ in range(2))
    assert (one.name, two.name) == ("stream_1", "stream_1")
    assert one.union(two).names == ("stream_1", "stream_2")
    assert two.union(one).names == ("stream_1", "stream_2")
    assert one.union(one).names == ("stream_1",)


def test_a_number_that_is_taken_is_left_out():
    named = pk.from_arrow(pa.table({"t": [1]}), time="t", name="stream_1")
    other = pk.from_arrow(pa.table({"t": [1]}), time="t")
    assert other.union(named).names == ("stream_2", "stream_1")


def test_a_query_over_several_streams_has_names_but_no_single_name():
    one, two = (pk.from_arrow(pa.table({"t": [1]}), time="t", name=name) for name in "ab")
    with pytest.raises(pk.BindingError, match="a, b"):
        _ = one.union(two).name


def test_two_different_streams_of_one_name_are_refused():
    one, two = (pk.from_arrow(pa.table({"t": [1]}), time="t", name="a") for _ in range(2))
    with pytest.raises(pk.BindingError, match="different data"):
        one.union(two)
    other = pk.stream("events", SCHEMA, time="ts", lateness="1s")
    with pytest.raises(pk.BindingError, match="two different streams"):
        EVENTS.union(other)


def test_equal_declarations_are_one_stream():
    again = pk.stream("events", SCHEMA, time="ts")
    assert EVENTS.union(again).names == ("events",)


def test_streams_are_immutable_so_that_branches_do_not_meet():
    before = EVENTS.plan
    EVENTS.filter(C("v") > 1).window("10s").agg(n=pk.count())
    assert EVENTS.plan == before


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=2, max_size=6, unique=True))
def test_columns_of_any_name_go_through_every_verb(names):
    time, *others = names
    stream = pk.stream("s", {time: "int64", **dict.fromkeys(others, "int64")}, time=time)
    key, value = others[0], others[-1]
    made = stream.filter(C(value) > 0).select(*others).with_columns(C(value).alias("'; drop"))
    assert set(made.schema.names) == {time, *others, "'; drop"}
    rows = "window_start", "window_end"
    if key not in rows:
        counted = stream.window(10, by=key).agg(**{"n" + key: pk.sum(value)})
        assert counted.schema.names == [*rows, key, "n" + key]
        verify(counted.plan)
    assert "\n" not in repr(stream).replace("\\n", "")


def test_html_escapes_what_users_name():
    stream = pk.stream("<b>", {"t": "int64", "<script>": "int64"}, time="t")
    assert "<script>" not in stream._repr_html_()
    assert "&lt;script&gt;" in stream._repr_html_()


def test_an_explanation_shows_itself_as_it_is():
    text = EVENTS.explain(stage="plan")
    assert repr(text) == str(text)
    assert text.startswith("stream events")
    assert text._repr_html_().startswith("<pre>")
    with pytest.raises(pk.ExpressionTypeError, match="no stage"):
        EVENTS.explain(stage="assembly")


def test_a_source_knows_its_plan():
    plan = pk.stream("s", {"t": "int64", "n": "int8"}, time="t", unit="ms", sequence="n", lateness="5s").plan
    assert isinstance(plan, Source)
    assert (plan.time.unit, plan.sequence, plan.lateness, plan.on_bad) == ("ms", "n", 5_000, "drop")
