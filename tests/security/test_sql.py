"""SQL is data: no text breaks anything but itself, and no name in it reaches generated code."""

from __future__ import annotations

import random
import re

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pk
from tests.security.hostile import HOSTILE, MARK
from tests.unit.api.sql.test_errors import WRONG
from tests.unit.api.sql.test_language import ROWS

EVENTS = pk.stream("e", {"t": "timestamp[us]", "k": "string", "v": "int64"}, time="t")
NAMES = pk.table(pa.table({"k": ["a"], "name": ["Anna"]}), name="n")
OTHER = pk.stream("f", {"t": "timestamp[us]", "k": "string", "w": "int64"}, time="t")

_TEXT = """select from where group by having order limit distinct union all with as on join left right full outer semi anti cross
    inner using and or not in is null true false between like case when then else end cast interval extract filter over partition
    range rows slide session unbounded e f k v w t timestamp a b sum avg count min max first last tumble hop window coalesce abs
    ( ) [ ] , . * + - / // % = == <> < > <= >= || :: ; ' " 1 2 0.5 60 'a' '10s' "k" -- /* */ ? :x @y $1 { } \\ 🎈 exists values
    second day varchar int percentile_cont within ignore nulls recursive except intersect desc asc offset"""
WORDS = _TEXT.split()


@given(st.lists(st.sampled_from(WORDS), max_size=25))
@settings(max_examples=200)
def test_a_soup_of_words_is_a_query_or_a_typed_error(words: list[str]) -> None:
    attempt(" ".join(words))


SKELETONS = (
    "select {} from e where {}",
    "select k, {} from e [range {}] group by k having {}",
    "select {} from e [range 10] a join f [{}] b on {}",
    "select * from ({}) as q [{}]",
    "with a as (select {} from e) select {} from a",
    "select {} from e group by {} order by {} limit 2",
)


@given(
    st.sampled_from(SKELETONS), st.lists(st.lists(st.sampled_from(WORDS), max_size=5), min_size=3, max_size=3)
)
@settings(max_examples=200)
def test_a_soup_in_a_query_is_a_query_or_a_typed_error(skeleton: str, soups: list[list[str]]) -> None:
    attempt(skeleton.format(*map(" ".join, soups)))


@pytest.mark.parametrize("seed", range(4))
def test_a_query_with_a_few_words_changed_is_a_query_or_a_typed_error(seed: int) -> None:
    """Nearly right texts get further than soups."""
    rng = random.Random(seed)
    texts = [re.findall(r"\w+|'[^']*'|\S", value) for value in (*ROWS, *WRONG) if value.strip()]
    for _ in range(250):
        words = list(rng.choice(texts))
        for _ in range(rng.randint(1, 3)):
            place, other = rng.randrange(len(words) + 1), rng.choice(texts)
            piece = other[rng.randrange(len(other)) :][: rng.randint(1, 4)]
            words[place : place + rng.randint(0, 1)] = rng.choice([[], [rng.choice(WORDS)], piece])
        attempt(" ".join(words))


@given(st.text(max_size=60))
@settings(max_examples=40)
def test_any_text_is_a_query_or_a_typed_error(text: str) -> None:
    attempt(text)
    attempt(f"select {text} from e")


def attempt(text: str) -> None:
    try:
        query = pk.sql(text, e=EVENTS, f=OTHER, s=EVENTS, u=EVENTS, r=OTHER, n=NAMES)
    except pk.PenstockError:
        return
    assert query.schema.names


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def constant(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


names = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())


def hostile(text: str) -> pk.Stream:
    table = pa.table(
        {f"t{text}": pa.array([1, 2, 13], pa.int64()), text: [text, "plain", text], "v": [1, 2, 4]}
    )
    key, stream = quoted(text), quoted(f"s{text}")
    sql = f"""select {key}, sum(v) as {quoted(f"n{text}")} from {stream} [range 10] as {quoted(f"a{text}")}
              where {quoted(f"a{text}")}.{key} = {constant(text)} group by {key}"""
    return pk.sql(sql, **{f"s{text}": pk.from_arrow(table, time=f"t{text}")})


@names
def test_hostile_names_and_constants_mean_themselves(text: str) -> None:
    assert hostile(text).collect().to_pydict() == {text: [text, text], f"n{text}": [1, 4]}


@names
def test_hostile_text_of_sql_never_reaches_generated_code(text: str) -> None:
    assert MARK not in str(hostile(text).explain(stage="llvm"))


@names
def test_errors_about_hostile_text_are_short_and_on_one_line(text: str) -> None:
    for sql in (
        f"select {quoted(text)} from e",
        f"select k from {quoted(text)}",
        f"select k {quoted(text)} {quoted(text)} from e",
    ):
        with pytest.raises(pk.PenstockError) as caught:
            pk.sql(sql, e=EVENTS)
        assert len(str(caught.value)) < 2 * len(text) + 1_000
        assert "\n" not in str(caught.value)
