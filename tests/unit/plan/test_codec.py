"""Plans as text: what is written is read back, and what nobody wrote is refused."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.errors import PenstockError, PlanError, UnsupportedError
from penstock.expr.nodes import Literal
from penstock.plan import codec
from penstock.plan.codec import decode, encode, encode_alone, grammar
from tests.custom_aggregates import RMS, SPREAD
from tests.strategies import plans

EVENTS = pk.stream(
    "events",
    {"ts": "timestamp[us, UTC]", "k": "string", "v": "int64", "x": "float64"},
    time="ts",
    sequence="v",
    lateness="1s",
)
QUERIES = {
    "windows": EVENTS.window("1m", every="10s", by="k").agg(s=pk.sum("v"), q=pk.quantile("x", 0.3)),
    "sessions": EVENTS.window(pk.session("5s"), by="k").agg(n=pk.count()),
    "counts": EVENTS.window(pk.rows(3, every=2, partial=True)).agg(n=pk.count()),
    "calendar": EVENTS.window(pk.tumbling("1mo", tz="Europe/Berlin")).agg(n=pk.count()),
    "all": EVENTS.window(pk.unbounded()).agg(n=pk.count(), x=pk.last("x")),
    "look-backs": EVENTS.rolling(["1m", pk.rows(3)], by="k", delay="1s").with_columns(m=pk.mean("x")),
    "customs": EVENTS.window("1m").agg(r=RMS("x"), s=SPREAD("v")),
    "floats": EVENTS.filter(pk.col("x").is_in([float("nan"), float("-inf"), -0.0, 0.1])),
    "rows": EVENTS.distinct("k", within="1m").union(EVENTS.rename({"v": "w"}).rename({"w": "v"})),
    "joins": EVENTS.join(EVENTS, on="k", window="1m", where=pk.left("v") > pk.right("v")),
    "nearest": EVENTS.join_asof(EVENTS, by="k", tolerance="1s"),
    "around": EVENTS.join_rolling(EVENTS, by="k", within=("-1h", "0s")).agg(d=pk.col("x") - pk.mean("x")),
    "implied": pk.stream("ecg", {"mv": "float32"}, time=pk.every("4ms")).window("1s").agg(m=pk.max("mv")),
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_is_read_back_as_it_was_written(name: str) -> None:
    assert decode(encode_alone(QUERIES[name].plan)) == QUERIES[name].plan


@given(plans())
def test_any_plan_is_read_back_as_it_was_written(plan: Any) -> None:
    text = encode_alone(plan)
    assert decode(text) == plan
    assert encode_alone(decode(text)) == text


@pytest.mark.parametrize(
    "dtype",
    [
        pa.list_(pa.field("item", pa.struct({"a": pa.int8()}))),
        pa.decimal128(20, 3),
        pa.map_(pa.string(), pa.int64()),
        pa.binary(16),
        pa.time64("us"),
        pa.dictionary(pa.int16(), pa.string()),
    ],
    ids=str,
)
def test_columns_of_any_type_travel(dtype: pa.DataType) -> None:
    plan = pk.stream("events", pa.schema({"t": pa.int64(), "x": dtype}), time="t").plan
    assert decode(encode_alone(plan)) == plan


def test_a_literal_keeps_its_very_bits() -> None:
    values = [float("nan"), float("inf"), -0.0, 1.0, 5e-324, 2**63 - 1, True, "it's", None]
    plan = EVENTS.select(**{f"c{i}": pk.lit(value, "float64") for i, value in enumerate(values[:5])}).plan
    assert repr(decode(encode_alone(plan))) == repr(plan)
    assert Literal(-0.0, pa.float64()) != Literal(0.0, pa.float64())


def test_what_a_plan_shares_stays_shared() -> None:
    deep = EVENTS
    for _ in range(12):
        deep = deep.union(deep.filter(pk.col("v") > 1))
    assert len(encode_alone(deep.plan)) < 20_000


def one(table: pa.Table) -> pa.Table:
    return table


def test_a_function_travels_beside_the_text_only() -> None:
    plan = EVENTS.window("1m").apply(one, {"v": "int64"}).plan
    text, functions = encode(plan)
    assert functions == (one,) and "one" not in json.loads(text)
    assert decode(text, functions) == plan
    with pytest.raises(PlanError):
        decode(text)
    with pytest.raises(UnsupportedError, match="to_spark"):
        encode_alone(plan)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "[]",
        "{}",
        "null",
        "[" * 100_000,
        '{"penstock-plan": 1}',
        '{"penstock-plan": 2}',
        '{"a": 1}',
        "NaN",
    ],
)
def test_text_that_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(PlanError):
        decode(text)


def _document(*nodes: Any, root: Any = 0) -> str:
    return json.dumps({"penstock-plan": 2, "nodes": nodes, "root": root})


def test_only_the_grammar_can_be_named() -> None:
    assert all(name.split(".")[0] in {"plan", "expr", "ir", "types"} for name in grammar())
    assert {name.rpartition(".")[0] for name in grammar() if name.startswith("ir")} == {"ir.signals.nodes"}
    for name in ("os.system", "builtins.eval", "expr.custom.Plain", "plan.nodes.Path"):
        with pytest.raises(PlanError):
            decode(_document({"is": name, "has": {}}))


def test_a_plan_cannot_contain_itself() -> None:
    for place in (0, 1, -1, True, "0", 0.0, None):
        with pytest.raises(PlanError):
            decode(
                _document({"is": "plan.nodes.Filter", "has": {"input": {"node": place}, "predicate": None}})
            )


def test_a_few_nodes_cannot_stand_for_billions() -> None:
    document = json.loads(encode_alone(EVENTS.filter(pk.col("v") > 1).plan))
    nodes, root = document["nodes"], document["root"]
    for _ in range(64):
        nodes.append({"is": "plan.nodes.Union", "has": {"inputs": [{"node": root}, {"node": root}]}})
        root = len(nodes) - 1
    with pytest.raises(UnsupportedError, match="too large"):
        decode(_document(*nodes, root=root))


WRONG = st.sampled_from(
    [None, True, -1, 1 << 70, 1.5, "x", [], {}, {"node": 0}, {"float": "1"}, {"function": 0}]
)


def _spots(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    match value:
        case dict():
            return [path, *(spot for key, held in value.items() for spot in _spots(held, (*path, key)))]
        case list():
            return [path, *(spot for at, item in enumerate(value) for spot in _spots(item, (*path, at)))]
        case _:
            return [path]


@given(st.data())
def test_a_damaged_plan_is_refused_or_is_another_plan(data: st.DataObject) -> None:
    document = json.loads(encode_alone(QUERIES[data.draw(st.sampled_from(sorted(QUERIES)))].plan))
    path = data.draw(st.sampled_from(_spots(document)[1:]))
    inner = document
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = data.draw(WRONG)
    try:
        plan = decode(json.dumps(document))
    except PenstockError:
        return
    assert decode(encode_alone(plan)) == plan


def test_the_version_is_checked() -> None:
    text = encode_alone(EVENTS.plan).replace(f'"penstock-plan": {codec.PLAN_VERSION}', '"penstock-plan": 999')
    with pytest.raises(PlanError, match="another version"):
        decode(text)
