"""Names and literals of any content give right answers and never reach generated code."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk
from tests.security.hostile import HOSTILE, MARK

GENERATED = ("loop", "llvm")
SHOWN = ("plan", "ir", "passes")

names = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())


def table_of(text: str) -> pa.Table:
    """Six rows whose every column is named after `text`, and whose strings are it or not."""
    return pa.table(
        {
            f"time {text}": pa.array([0, 1, 2, 10, 11, 12], pa.timestamp("s")),
            f"key {text}": [text, "plain", text, text, "plain", None],
            f"kind {text}": [text, text, "other", text, text, text],
            f"value {text}": pa.array([1, 2, 4, 8, 16, 32], pa.int64()),
        }
    )


def query_of(text: str) -> pk.Stream:
    """Use `text` as stream, time, key, column, literal and result name at once."""
    events = pk.from_arrow(table_of(text), time=f"time {text}", name=text)
    return (
        events.filter(pk.col(f"kind {text}") == text)
        .with_columns(**{f"double {text}": pk.col(f"value {text}") * 2})
        .window(pk.tumbling("10s"), by=f"key {text}")
        .agg(**{f"sum {text}": pk.sum(f"double {text}"), text: pk.count()})
    )


def rows_of(table: pa.Table, text: str) -> set[tuple[object, ...]]:
    columns = (f"key {text}", f"sum {text}", text)
    return set(zip(*(table[name].to_pylist() for name in columns), strict=True))


def expected(text: str) -> set[tuple[object, ...]]:
    return {(text, 2, 1), ("plain", 4, 1), (text, 16, 1), ("plain", 32, 1), (None, 64, 1)}


@names
def test_a_query_made_of_hostile_text_gives_the_right_answer(text: str) -> None:
    assert rows_of(query_of(text).collect(), text) == expected(text)


@names
def test_a_stream_of_hostile_name_is_bound_by_it(text: str) -> None:
    schema = {field.name: field.type for field in table_of(text).schema}
    declared = pk.stream(text, schema, time=f"time {text}")
    result = declared.window(pk.tumbling("1h")).agg(n=pk.count()).collect(**{text: table_of(text)})
    assert result["n"].to_pylist() == [6]


@pytest.mark.parametrize("name", ["self", "data", "batches", "engine", "metrics", "state", "final"])
def test_a_stream_named_like_an_argument_is_bound_by_a_mapping(name: str) -> None:
    schema = {field.name: field.type for field in table_of("x").schema}
    query = pk.stream(name, schema, time="time x").window(pk.tumbling("1h")).agg(n=pk.count())
    batches = list(query.run({name: table_of("x").to_batches(max_chunksize=2)}))
    assert query.collect({name: table_of("x")})["n"].to_pylist() == [6]
    assert pa.Table.from_batches(batches)["n"].to_pylist() == [6]


@names
def test_a_hostile_query_gives_the_same_when_run_batch_by_batch(text: str) -> None:
    batches = table_of(text).to_batches(max_chunksize=2)
    result = pa.Table.from_batches(list(query_of(text).run(batches)))
    assert rows_of(result, text) == expected(text)


@names
@pytest.mark.parametrize("dictionary", [False, True], ids=["plain", "dictionary"])
def test_hostile_literals_select_exactly_their_rows(text: str, dictionary: bool) -> None:
    values = pa.array([text, text + " ", text[:-1], "", None, text.upper() + "!"])
    kind = values.dictionary_encode() if dictionary else values
    table = pa.table({"t": pa.array(range(6), pa.int64()), "kind": kind})
    events = pk.from_arrow(table, time="t")
    equal = events.filter(pk.col("kind") == text).collect()
    among = events.filter(pk.col("kind").is_in([text, "", "absent"])).collect()
    assert equal["t"].to_pylist() == [0]
    assert among["t"].to_pylist() == [0, 3]


@names
@pytest.mark.parametrize("stage", GENERATED)
def test_hostile_text_never_reaches_generated_code(text: str, stage: str) -> None:
    shown = str(query_of(text).explain(stage=stage))
    assert shown.strip()
    assert MARK not in shown


@pytest.mark.parametrize("kind", ["llvm", "c", "assembly"])
def test_hostile_text_never_reaches_assembly(kind: str) -> None:
    shown = str(query_of(HOSTILE[kind]).explain(stage="asm"))
    assert shown.strip()
    assert MARK not in shown


@names
@pytest.mark.parametrize("stage", SHOWN)
def test_plans_show_hostile_names_on_one_line(text: str, stage: str) -> None:
    """A newline in a name must not be able to forge a line of the plan."""
    shown = str(query_of(text).explain(stage=stage))
    forged = [
        line for line in shown.splitlines() if line.startswith((f"define void @evil_{MARK}", f"{MARK}: ret"))
    ]
    assert forged == []
    assert "\u202e" not in shown


@names
def test_html_shows_hostile_names_as_text(text: str) -> None:
    assert f"<script>{MARK}" not in query_of(text)._repr_html_()


@names
def test_an_unknown_hostile_column_is_refused_with_a_short_message(text: str) -> None:
    events = pk.from_arrow(table_of("x"), time="time x", name="events")
    with pytest.raises(pk.UnknownColumnError) as caught:
        events.filter(pk.col(text) == 1).collect()
    assert len(str(caught.value)) < 2 * len(text) + 2_000
    assert "\n" not in str(caught.value).replace("\\n", "")[:200] or "\n" not in text


@pytest.mark.parametrize("name", ["", "window_start", "window_end"])
def test_awkward_but_legal_column_names_work_or_are_refused_by_a_typed_error(name: str) -> None:
    table = pa.table({"t": pa.array([0, 1], pa.int64()), name: [3, 4]})
    try:
        result = pk.from_arrow(table, time="t").window(pk.tumbling(10)).agg(total=pk.sum(name)).collect()
    except pk.PenstockError:
        return
    assert result["total"].to_pylist() == [7]
