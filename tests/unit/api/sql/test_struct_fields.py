"""Fields of structs in SQL: dotted names are a stream's columns first, then fields of structs."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk

TYPE = pa.struct({"City": pa.string(), "at": pa.struct({"lat": pa.float64(), 'x."y"': pa.int64()})})
ROWS = pa.table(
    {
        "t": [1, 2, 15],
        "pl": pa.array(
            [{"City": "Rome", "at": {"lat": 41.5, 'x."y"': 1}}, None, {"City": "Oslo", "at": {"lat": 4.5}}],
            TYPE,
        ),
    }
)


def answer(text: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = pk.sql(text, s=pk.from_arrow(ROWS, time="t")).collect().to_pylist()
    return rows


CASES = {
    "select t, pl.city from s where pl.at.lat > 5": [{"t": 1, "City": "Rome"}],
    "select s.pl.at.lat * 2 as z from s where s.pl.city is null or PL.AT.LAT < 5": [{"z": None}, {"z": 9.0}],
    'select pl."at"."x.""y""" as q from s where t = 1': [{"q": 1}],
    "select `pl`.`City` as c from s where (pl).city = 'Oslo'": [{"c": "Oslo"}],
    "select pl.city as c, sum(pl.at.lat) as m from s [range 10 slide 10] where pl.city = 'Rome' group by pl.city": [
        {"c": "Rome", "m": 41.5}
    ],
    "select max(pl.at.lat) as m from s [range 100 slide 100] having max(pl.at.lat) > 5": [{"m": 41.5}],
    "select q.a.at.lat as l from (select t, pl as a from s) as q where q.a.city = 'Rome'": [{"l": 41.5}],
    "select pl.lat as l from (select t, pl.at as pl from s) where pl.lat < 5": [{"l": 4.5}],
    "select x.pl.city as c, y.pl.at.lat as l from s [range 10 slide 10] as x "
    "join s [range 10 slide 10] as y on x.pl.city = y.pl.city where x.pl.at.lat > 5": [
        {"c": "Rome", "l": 41.5}
    ],
    "select pl.t as a from s as pl where pl.pl.at.lat > 5": [{"a": 1}],  # the stream precedes the column
}


@pytest.mark.parametrize("text", CASES)
def test_fields_are_read(text: str) -> None:
    assert answer(text) == CASES[text]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select x.city from s", "there is no stream 'x' in FROM .*and no column of that name"),
        ("select s.q.city from s", "there is no column 'q' in 's'"),
        ("select pl.ciy from s", "line 1, column 8: the struct has no field 'ciy'"),
        ('select pl."city" from s', "no field 'city'; did you mean 'City'"),
        ("select t.a from s", "takes a struct"),
        ("select pl.f(3) from s", "the name of a field"),
        ("select s.pl.at.* from s", "the name of a field"),
        ("select pl.at.lat.z.a.b.c from s", "takes a struct"),
    ],
)
def test_what_is_no_field_is_an_error(text: str, message: str) -> None:
    with pytest.raises(pk.PenstockError, match=message):
        answer(text)
