"""Names and literals of any content are just names and literals."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk

NASTY = [
    'quo"te', "it's", "new\nline", "tab\t", "null\x00byte", "back\\slash", "🎈", "名前", "e\u0301", "select", "lambda",
    "__import__('os')", "%s", "{x}", "${y}", "; drop table", "--", "/* */", " ", "\u202e", "a" * 5_000, "window",
    "None", "0", "i64", "define void @f()", "!dbg", "#", "\r\n", "'''", '"""', "\\x41", "t", "ts2", "count",
]  # fmt: skip


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_a_column_a_key_a_literal_an_output_and_a_stream_may_be_called_anything(text: str) -> None:
    table = pa.table(
        {"ts": pa.array([0, 1, 2], pa.timestamp("s")), text: [text, "other", None], text + "!": [1, 2, 4]}
    )
    query = (
        pk.from_arrow(table, time="ts", name=text)
        .filter(pk.col(text).is_in([text, "other"]) | pk.col(text).is_null())
        .with_columns(**{text + "?": pk.when(pk.col(text) == text).then(text).otherwise("no")})
        .window("10s", by=[text + "?", text])
        .agg(**{text + "+": pk.sum(text + "!", where=pk.col(text + "?") == text), text + "-": pk.max(text)})
    )
    rows = query.collect().drop_columns(["window_start", "window_end"]).to_pylist()
    assert sorted(rows, key=lambda row: str(row[text])) == sorted(
        [
            {text + "?": text, text: text, text + "+": 1, text + "-": text},
            {text + "?": "no", text: "other", text + "+": None, text + "-": "other"},
            {text + "?": "no", text: None, text + "+": None, text + "-": None},
        ],
        key=lambda row: str(row[text]),
    )
    assert str(query.explain())


def test_an_empty_name_is_a_name_or_a_typed_error() -> None:
    table = pa.table({"ts": pa.array([0], pa.timestamp("s")), "": [1]})
    try:
        result = pk.from_arrow(table, time="ts").window("1s").agg(n=pk.sum("")).collect()
    except pk.PenstockError:
        return
    assert result["n"].to_pylist() == [1]


def test_the_time_column_may_be_called_anything() -> None:
    for name in ("window", "time", "🎈", "", "select", "count"):
        table = pa.table({name: pa.array([0], pa.timestamp("s")), "v": [1]})
        result = pk.from_arrow(table, time=name).window("1s").agg(n=pk.sum("v")).collect()
        assert result["n"].to_pylist() == [1]


@pytest.mark.parametrize(
    "name", ["self", "data", "engine", "metrics", "exprs", "batch", "batches", "state", "final", "by"]
)
def test_words_of_the_api_are_names_like_any_other(name: str) -> None:
    table = pa.table({"ts": pa.array([0, 1], pa.timestamp("s")), name: [1, 2]})
    stream = pk.stream(name, table.schema, time="ts")
    more = pk.stream("more", table.schema, time="ts")
    made = (
        stream.union(more).with_columns(**{name: pk.col(name) * 2}).window("10s").agg(**{name: pk.sum(name)})
    )
    data = {name: table, "more": table}
    assert made.collect(data)[name].to_pylist() == [12]
    assert [row for batch in made.run(data) for row in batch[name].to_pylist()] == [12]


@pytest.mark.parametrize("name", ["self", "predicates", "values"])
def test_a_filter_by_value_takes_columns_of_any_name(name: str) -> None:
    events = pk.from_arrow(pa.table({"t": [0, 1], name: [3, 4]}), time="t")
    assert events.filter(**{name: 4}).collect()["t"].to_pylist() == [1]
