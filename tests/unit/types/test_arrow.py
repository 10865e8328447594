"""Types and schemas are read as users write them, and times are integers inside."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SchemaMismatchError
from penstock.types.arrow import (
    as_schema,
    as_type,
    from_physical,
    kind_of,
    parse_type,
    physical,
    physical_values,
    tick_unit,
)

NAMES = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "double": pa.float64(),
    "string": pa.string(),
    " string ": pa.string(),
    "large_string": pa.large_string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamp[us]": pa.timestamp("us"),
    "timestamp[us, UTC]": pa.timestamp("us", "UTC"),
    "timestamp[ns,tz=Europe/Berlin]": pa.timestamp("ns", "Europe/Berlin"),
    "duration[ms]": pa.duration("ms"),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
    "dictionary<values=string, indices=int8, ordered=0>": pa.dictionary(pa.int8(), pa.string()),
    "date32[day]": pa.date32(),
    "decimal(10, 2)": pa.decimal128(10, 2),
    "decimal(40, 2)": pa.decimal256(40, 2),
    "decimal256(10, 2)": pa.decimal256(10, 2),
    "string_view": pa.string_view(),
    "large_binary": pa.large_binary(),
    "halffloat": pa.float16(),
    "time64[ns]": pa.time64("ns"),
    "list<int64>": pa.list_(pa.int64()),
    "list<item: timestamp[us, tz=UTC]>": pa.list_(pa.timestamp("us", "UTC")),
    "large_list[list[string]]": pa.large_list(pa.list_(pa.string())),
}


@pytest.mark.parametrize(("text", "dtype"), NAMES.items())
def test_a_type_is_read_from_its_name(text, dtype):
    assert parse_type(text) == dtype


@pytest.mark.parametrize(
    "text",
    [
        "",
        "int65",
        "timestamp[m]",
        "timestamp[us",
        "list",
        "list<>",
        "decimal(77, 2)",
        "list<" * 99,
        "int64; drop",
    ],
)
def test_a_name_that_is_no_type_is_refused(text):
    with pytest.raises(SchemaMismatchError, match="there is no type"):
        parse_type(text)


@pytest.mark.parametrize(
    ("given_type", "dtype"),
    [(int, pa.int64()), (str, pa.string()), (dt.datetime, pa.timestamp("us")), (pa.int8(), pa.int8())],
)
def test_python_and_arrow_types_are_types_too(given_type, dtype):
    assert as_type(given_type) == dtype


@pytest.mark.parametrize(
    "schema",
    [
        {"a": "int64", "b": "string"},
        [("a", "int64"), ("b", "string")],
        [pa.field("a", pa.int64()), pa.field("b", pa.string())],
        pa.schema({"a": pa.int64(), "b": pa.string()}, metadata={"x": "y"}),
    ],
)
def test_a_schema_is_read_from_mappings_pairs_and_arrow(schema):
    assert as_schema(schema).equals(pa.schema({"a": pa.int64(), "b": pa.string()}), check_metadata=True)


@pytest.mark.parametrize("schema", ["a", 3, ["a"], [("a", 3)], {"a": object}])
def test_what_is_no_schema_is_refused(schema):
    with pytest.raises(SchemaMismatchError):
        as_schema(schema)


def test_a_column_named_twice_is_refused():
    with pytest.raises(SchemaMismatchError, match="'a'"):
        as_schema([("a", "int64"), ("a", "string")])


def test_view_encodings_of_text_are_read_as_plain_text():
    views = pa.schema({"s": pa.string_view(), "d": pa.dictionary(pa.uint32(), pa.string_view())})
    assert as_schema(views).types == [pa.string(), pa.dictionary(pa.int32(), pa.string())]


@pytest.mark.parametrize(
    ("dtype", "kind", "unit"),
    [
        (pa.int16(), "int", None),
        (pa.uint16(), "uint", None),
        (pa.float16(), "other", None),
        (pa.float32(), "float", None),
        (pa.timestamp("ms"), "timestamp", "ms"),
        (pa.duration("ns"), "duration", "ns"),
        (pa.date32(), "date", "d"),
        (pa.date64(), "date", "ms"),
        (pa.large_string(), "string", None),
        (pa.dictionary(pa.int8(), pa.int64()), "int", None),
        (pa.list_(pa.int8()), "other", None),
        (pa.null(), "null", None),
    ],
)
def test_every_type_has_a_kind_and_times_have_a_tick(dtype, kind, unit):
    assert (kind_of(dtype), tick_unit(dtype)) == (kind, unit)


@pytest.mark.parametrize("dtype", [pa.timestamp("us"), pa.date32(), pa.date64(), pa.duration("s")])
def test_times_are_viewed_as_ticks_without_copying(dtype):
    array = from_physical([86_400_000, None], dtype)
    assert physical(array).buffers()[1].address == array.buffers()[1].address
    assert physical_values(array) == [86_400_000, None]


ARRAYS = [
    ("int64", st.integers(-(2**63), 2**63 - 1)),
    ("string", st.text()),
    ("dictionary", st.text()),
    ("timestamp[ns, UTC]", st.integers(-(2**63), 2**63 - 1)),
    ("date", st.integers(-(2**31), 2**31 - 1)),
    ("bool", st.booleans()),
]


@given(st.data())
def test_physical_values_come_back_as_they_were(data):
    name, values = data.draw(st.sampled_from(ARRAYS))
    given_values = data.draw(st.lists(st.none() | values))
    array = from_physical(given_values, parse_type(name))
    assert array.type == parse_type(name)
    assert physical_values(pa.chunked_array([array, array])) == given_values * 2


@pytest.mark.parametrize("item", [pa.timestamp("ns", "UTC"), pa.date32(), pa.duration("ms"), pa.int8()])
def test_lists_of_times_are_lists_of_ticks(item):
    lists = [[1, None, 3], None, []]
    array = from_physical(lists, pa.list_(item))
    assert array.type == pa.list_(item)
    assert physical_values(array) == lists
    assert physical_values(array[1:]) == lists[1:]
