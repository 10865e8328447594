"""Every name of a type that SQL's cast lists works, and means the same in each form of the cast."""

import pyarrow as pa
import pytest

import penstock as pk
from penstock.api.sql.expressions import SQL_TYPES

NUMBERS = pk.from_arrow(pa.table({"t": [1, 2], "v": [1, 2], "uint8": [3, 4]}), time="t", name="e")
TIMES = pk.from_arrow(pa.table({"t": [1], "w": pa.array([0], pa.timestamp("s"))}), time="t", name="e")
EXPECTED = {
    pa.int8(): "tinyint int1 byte",
    pa.int16(): "smallint int2 int16 short",
    pa.int32(): "integer int int4 int32",
    pa.int64(): "bigint int8 int64 long",
    pa.uint8(): "utinyint uint8",
    pa.uint16(): "usmallint uint16",
    pa.uint32(): "uinteger uint uint32",
    pa.uint64(): "ubigint uint64",
    pa.float32(): "real float float4 float32",
    pa.float64(): "double float8 float64",
    pa.bool_(): "boolean bool",
    pa.string(): "varchar text char string",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp datetime timestamp_us",
    pa.timestamp("us", "UTC"): "timestamptz",
    pa.timestamp("s"): "timestamp_s",
    pa.timestamp("ms"): "timestamp_ms",
    pa.timestamp("ns"): "timestamp_ns",
}
NAMES = [(name, dtype) for dtype, names in EXPECTED.items() for name in names.split()]


def test_the_table_is_whole() -> None:
    assert dict(NAMES) == SQL_TYPES


@pytest.mark.parametrize(("name", "dtype"), NAMES)
def test_a_cast_to_each_name_gives_its_type(name: str, dtype: pa.DataType) -> None:
    source = TIMES if pa.types.is_temporal(dtype) else NUMBERS
    column = "w" if source is TIMES else "v"
    for text in (f"cast({column} as {name})", f"{column}::{name.upper()}"):
        result = pk.sql(f"select t, {text} as x from e", e=source).collect()
        assert result.schema.field("x").type == dtype
        assert result.column("x").null_count == 0


@pytest.mark.parametrize(("name", "dtype"), [value for value in NAMES if pa.types.is_temporal(value[1])])
def test_a_text_cast_to_a_time_has_the_unit_of_its_type(name: str, dtype: pa.DataType) -> None:
    query = pk.sql(f"select t, cast('2026-01-31 12:00:00' as {name}) as x from e", e=TIMES)
    assert query.collect().schema.field("x").type == dtype


def test_a_column_may_be_called_as_a_type_is() -> None:
    assert pk.sql("select t, uint8 + 1 as x from e", e=NUMBERS).collect().column("x").to_pylist() == [4, 5]
