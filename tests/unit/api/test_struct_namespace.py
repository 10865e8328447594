"""Fields of structs in the fluent interface: names of results, declarations and errors."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk

PLACE = pk.col("place")
NESTED = pa.struct({"city": pa.string(), "at": pa.struct({"lat": pa.float64(), "a.b": pa.int64()})})
PLACES = pk.stream("places", {"t": "int64", "place": NESTED}, time="t")
ROWS = pa.table(
    {
        "t": [1, 2, 3],
        "place": pa.array(
            [{"city": "Rome", "at": {"lat": 41.9, "a.b": 1}}, None, {"city": None, "at": None}], NESTED
        ),
    }
)


def test_a_mapping_of_mappings_declares_structs() -> None:
    declared = pk.stream(
        "p", {"t": "int64", "place": {"city": "string", "at": {"lat": float, "a.b": int}}}, time="t"
    )
    assert declared.schema.field("place").type == NESTED


def test_the_last_name_names_the_result() -> None:
    made = PLACES.select(PLACE.struct.field("at").struct.field("a.b"), PLACE.struct.field("at", "lat"))
    assert made.schema.names == ["t", "a.b", "lat"]
    assert PLACES.window(10).agg(PLACE.struct.field("at", "lat").mean()).schema.names[-1] == "lat"


def test_a_field_is_null_where_a_struct_on_the_way_is() -> None:
    made = PLACES.select(x=PLACE.struct.field("at", "a.b"), c=PLACE.struct.field("city")).collect(ROWS)
    assert made.to_pydict() == {"t": [1, 2, 3], "x": [1, None, None], "c": ["Rome", None, None]}


def test_a_struct_inside_a_struct_passes_through() -> None:
    made = (
        PLACES.select(at=PLACE.struct.field("at")).filter(pk.col("at").struct.field("lat") > 1).collect(ROWS)
    )
    assert made.to_pylist() == [{"t": 1, "at": {"lat": 41.9, "a.b": 1}}]


def test_sliced_batches_are_read_at_their_offset() -> None:
    assert PLACES.select(x=PLACE.struct.field("city").is_null()).collect(ROWS.slice(1))["x"].to_pylist() == [
        True,
        True,
    ]


def test_fields_beside_fields_of_one_name_are_read() -> None:
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["v", "k", "k"])
    rows = pk.from_arrow(pa.table({"t": [0], "s": twice}), time="t")
    assert rows.select(v=pk.col("s").struct.field("v") + 1).collect()["v"].to_pylist() == [2]
    with pytest.raises(pk.PenstockError, match=r"several fields 'k'"):
        rows.select(k=pk.col("s").struct.field("k"))


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (pk.col("t").struct.field("x"), "takes a struct"),
        (PLACE.struct.field("ciy"), r"no field 'ciy'; did you mean 'city'\? \(fields: 'city', 'at'\)"),
        (PLACE.struct.field("at", "lon"), "no field 'lon'"),
        (PLACE.struct.field("a\nb"), r"no field 'a\\nb'"),
    ],
)
def test_a_field_that_is_not_there_is_an_error(expr: pk.Expr, message: str) -> None:
    with pytest.raises(pk.PenstockError, match=message) as failure:
        PLACES.select(x=expr)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize("names", [(), (3,), (None,), (PLACE,), ("\ud800",)])
def test_a_name_that_is_none_is_an_error(names: tuple[object, ...]) -> None:
    with pytest.raises(pk.PenstockError):
        PLACE.struct.field(*names)  # type: ignore[arg-type]


def test_a_field_of_an_unsuitable_type_can_only_pass_through() -> None:
    with pytest.raises(pk.PenstockError):
        PLACES.window(10, by=PLACE.struct.field("at").alias("at"))
    with pytest.raises(pk.PenstockError):
        PLACES.filter(PLACE.struct.field("at") > 1)
