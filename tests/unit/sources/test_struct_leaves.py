"""Structs in files: only the leaves that a query reads are decoded, and structs may differ from file to file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pk
from penstock.errors import SchemaMismatchError
from penstock.sources.conform import harmless
from penstock.sources.parquet_footers import declared_leaves
from tests.oracle.test_struct_fields import FLAT, NESTED, QUERIES, SCHEMA, field, flat, shown, to_rows

PLACE = pa.struct(
    {"city": pa.string(), "at": pa.struct({"x": pa.int64(), "y": pa.int32()}), "tags": pa.list_(pa.string())}
)
ROWS = [
    {"t": 1, "v": 10, "place": {"city": "b", "at": {"x": 1, "y": 2}, "tags": ["u"]}},
    {"t": 2, "v": 20, "place": {"city": "a", "at": None, "tags": None}},
    {"t": 3, "v": 30, "place": None},
    {"t": 4, "v": 40, "place": {"city": None, "at": {"x": 5, "y": None}, "tags": []}},
]
TABLE = pa.Table.from_pylist(ROWS, pa.schema({"t": pa.int64(), "v": pa.int64(), "place": PLACE}))
CITY, X, Y = (pk.col("place").struct.field(*path) for path in (("city",), ("at", "x"), ("at", "y")))


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The columns that Arrow is asked for, call by call."""
    asked: list[set[str]] = []
    read = pq.ParquetFile.read_row_groups

    def spy(self: Any, *args: Any, **options: Any) -> Any:
        asked.append(set(options["columns"]))
        return read(self, *args, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", spy)
    return asked


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        (lambda s: s.filter(CITY == "b").select("t", "v"), {"t", "v", "place.city"}),
        (lambda s: s.select("t", x=X + 1), {"t", "place.at.x"}),
        (lambda s: s.select("t", x=X, y=Y), {"t", "place.at"}),
        (lambda s: s.window(2, by=[CITY.alias("city")]).agg(n=pk.sum(X)), {"t", "place.city", "place.at.x"}),
        (lambda s: s.rolling(2).agg(n=pk.max(Y)), {"t", "place.at.y"}),
        (lambda s: s.filter(X > 0).select("t", "place"), {"t", "place"}),
        (lambda s: s.select("t", whole=pk.col("place").struct.field("at"), x=X), {"t", "place.at"}),
        (lambda s: s.select("t", tags=pk.col("place").struct.field("tags")), {"t", "place.tags"}),
        (lambda s: s.select("t", "v"), {"t", "v"}),
    ],
)  # fmt: skip
def test_only_leaves_that_are_read_are_decoded(
    tmp_path: Path, decoded: list[set[str]], query: Any, columns: set[str]
) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    found = query(pk.scan(tmp_path, time="t")).collect()
    assert {column for asked in decoded for column in asked} == columns
    assert found.to_pylist() == query(pk.from_arrow(TABLE, time="t")).collect().to_pylist()


@pytest.mark.parametrize("name", QUERIES)
def test_queries_over_nested_files_give_what_flat_tables_give(tmp_path: Path, name: str) -> None:
    deep = [
        {"v": place % 3, "x": place / 2, "at": place * 10**6, "code": "uw"[place % 2]} for place in range(12)
    ]
    names = SCHEMA.field("s").type[1].name
    structs = [None if place == 5 else {"k": "abc"[place % 3], names: place, "deep": None if place == 7 else deep[place]} for place in range(12)]  # fmt: skip
    table = pa.table({"t": pa.array(range(12), pa.int64()), "s": pa.array(structs, SCHEMA.field("s").type)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=5)
    nested = QUERIES[name](pk.scan(tmp_path, time="t", name="rows", schema=NESTED.schema), field)
    assert shown(to_rows(nested.collect())) == shown(
        to_rows(QUERIES[name](FLAT, pk.col).collect(flat(table)))
    )


def test_structs_may_lack_fields_and_have_narrower_ones(tmp_path: Path) -> None:
    older = pa.struct({"at": pa.struct({"y": pa.int16()}), "city": pa.string()})
    pq.write_table(
        pa.Table.from_pylist([{"t": 0, "v": 5, "place": {"at": {"y": 7}, "city": "c"}}], pa.schema({"t": pa.int64(), "v": pa.int64(), "place": older})),
        tmp_path / "a.parquet",
    )  # fmt: skip
    pq.write_table(TABLE, tmp_path / "b.parquet")
    rows = pk.scan(tmp_path, time="t", schema=TABLE.schema)
    first = {"city": "c", "at": {"x": None, "y": 7}, "tags": None}
    assert rows.collect()["place"].to_pylist() == [first, *TABLE["place"].to_pylist()]
    assert rows.select("t", x=X, y=Y).collect().to_pydict() == {
        "t": [0, 1, 2, 3, 4], "x": [None, 1, None, None, 5], "y": [7, 2, None, None, None],
    }  # fmt: skip


def test_pushed_structs_may_have_further_fields() -> None:
    narrow = pa.struct({"city": pa.string()})
    stream = pk.stream("s", {"t": "int64", "v": "int64", "place": narrow}, time="t")
    with stream.select("t", city=CITY).open() as live:
        found = [*live.push(TABLE), *live.finish()]
    assert [row["city"] for batch in found for row in batch.to_pylist()] == ["b", "a", None, None]


@pytest.mark.parametrize(
    ("given", "declared", "fits"),
    [
        (PLACE, pa.struct({"city": pa.string()}), True),
        (pa.struct({"city": pa.string()}), PLACE, True),
        (pa.struct({"other": pa.string()}), PLACE, False),
        (pa.struct({"city": pa.int64()}), PLACE, False),
        (pa.struct([("city", pa.string()), ("city", pa.string())]), PLACE, False),
        (pa.string(), PLACE, False),
    ],
)
def test_structs_fit_by_the_names_of_their_fields(
    given: pa.DataType, declared: pa.DataType, fits: bool
) -> None:
    assert harmless(given, declared) == fits


def test_a_struct_without_a_common_field_is_refused_by_name(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": [1], "place": pa.array([{"other": 1}])}), tmp_path / "a.parquet")
    with pytest.raises(SchemaMismatchError, match=r"column 'place' of the file .*a\.parquet"):
        pk.scan(tmp_path, time="t", schema={"t": "int64", "place": PLACE}).collect()


def test_names_with_dots_are_read_as_whole_columns() -> None:
    dotted = pa.struct({"a.b": pa.int64(), "c": pa.int64()})
    assert declared_leaves("s", dotted, pa.struct({"a.b": pa.int64()})) == ["s"]
    assert declared_leaves("s.t", PLACE, pa.struct({"city": pa.string()})) == ["s.t"]
