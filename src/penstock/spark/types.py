"""Convert between Arrow and Spark types, and convert columns to the types that Spark accepts.

A timestamp without a zone is TIMESTAMP_NTZ, one with a zone TIMESTAMP. Spark counts microseconds: finer times
must be whole microseconds, or the query fails with an error that says so. Unsigned integers become the next wider
signed type, those of 64 bits DECIMAL(20, 0), as when Spark reads Parquet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import OverflowError as PenstockOverflow
from penstock.errors import UnsupportedError
from penstock.plan.nodes import Aggregate, Apply, Attach, Filter, Plan
from penstock.types.arrow import plain_type, value_type
from penstock.types.windows import WINDOW_END, WINDOW_START

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

Deliver = Callable[[pa.RecordBatch], pa.RecordBatch]

_UNSIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
}
_NAMES = {
    pa.bool_(): "BooleanType",
    pa.int8(): "ByteType",
    pa.int16(): "ShortType",
    pa.int32(): "IntegerType",
    pa.int64(): "LongType",
    pa.float32(): "FloatType",
    pa.float64(): "DoubleType",
    pa.string(): "StringType",
    pa.binary(): "BinaryType",
    pa.date32(): "DateType",
    pa.null(): "NullType",
    pa.timestamp("us"): "TimestampNTZType",
    pa.duration("us"): "DayTimeIntervalType",
}
_ARROW = {name: dtype for dtype, name in _NAMES.items()}


def delivered_type(dtype: pa.DataType, zone: str) -> pa.DataType:
    """Return the Arrow type in which Spark accepts values of a type.

    >>> delivered_type(pa.timestamp("ns", "Asia/Tokyo"), "UTC")
    TimestampType(timestamp[us, tz=UTC])
    """
    plain = plain_type(value_type(dtype))
    if plain in _UNSIGNED:
        return _UNSIGNED[plain]
    if pa.types.is_timestamp(plain):
        return pa.timestamp("us", None if plain.tz is None else zone)
    if pa.types.is_duration(plain):
        return pa.duration("us")
    if pa.types.is_fixed_size_binary(plain):
        return pa.binary()
    return _nested(plain, zone)


def _nested(dtype: pa.DataType, zone: str) -> pa.DataType:
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_fixed_size_list(dtype):
        return pa.list_(_delivered_field(dtype.value_field, zone).with_name("element"))
    if pa.types.is_struct(dtype):
        return pa.struct([_delivered_field(field, zone) for field in dtype])
    if pa.types.is_map(dtype):
        return pa.map_(_delivered_field(dtype.key_field, zone), _delivered_field(dtype.item_field, zone))
    return dtype


def _delivered_field(field: pa.Field, zone: str) -> pa.Field:
    return field.with_type(delivered_type(field.type, zone))


def spark_type(dtype: pa.DataType) -> DataType:
    """Return the Spark type of a column."""
    from pyspark.sql import types  # noqa: PLC0415 - Spark loads when it is used

    plain = delivered_type(dtype, "UTC")
    if plain in _NAMES:
        found: DataType = getattr(types, _NAMES[plain])()
        return found
    if pa.types.is_timestamp(plain):
        return types.TimestampType()
    if pa.types.is_decimal128(plain):
        return types.DecimalType(plain.precision, plain.scale)
    if pa.types.is_list(plain):
        return types.ArrayType(spark_type(plain.value_type), plain.value_field.nullable)
    if pa.types.is_struct(plain):
        return types.StructType(
            [types.StructField(field.name, spark_type(field.type), field.nullable) for field in plain]
        )
    if pa.types.is_map(plain):
        return types.MapType(spark_type(plain.key_type), spark_type(plain.item_type))
    raise UnsupportedError(f"Spark has no type for {dtype}; cast the column, or leave it out with .drop(...)")


def spark_schema(schema: pa.Schema, never_null: Iterable[str] = ()) -> StructType:
    """Return the Spark schema of a result."""
    from pyspark.sql.types import StructField, StructType  # noqa: PLC0415

    required = frozenset(never_null)
    return StructType(
        [StructField(field.name, spark_type(field.type), field.name not in required) for field in schema]
    )


def never_null(plan: Plan) -> list[str]:
    """List the result columns that are never null: the bounds of windows."""
    match plan:
        case Aggregate() | Apply() | Attach():
            return [WINDOW_START, WINDOW_END]
        case Filter(source):
            return never_null(source)
        case _:
            return []


def deliverer(schema: pa.Schema, zone: str | None, never_null: Iterable[str] = ()) -> Deliver:
    """Return the function that converts result batches for Spark; without a zone it leaves them unchanged."""
    if zone is None:
        return lambda batch: batch
    required = frozenset(never_null)
    wanted = pa.schema(
        [
            pa.field(field.name, delivered_type(field.type, zone), field.name not in required)
            for field in schema
        ]
    )
    if wanted.equals(schema):
        return lambda batch: batch

    def deliver(batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [_cast(batch.column(place), wanted_type) for place, wanted_type in enumerate(wanted)]
        return pa.RecordBatch.from_arrays(arrays, schema=wanted)

    return deliver


def _cast(array: pa.Array, field: pa.Field) -> pa.Array:
    if array.type == field.type:
        return array
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    try:
        return plain.cast(field.type)
    except pa.ArrowInvalid:
        raise PenstockOverflow(
            f"column {field.name!r} holds values of {array.type} that Spark's {field.type} cannot hold; "
            "truncate times to microseconds with .dt.truncate('1us'), or cast the column"
        ) from None  # Arrow's message quotes the value


def arrow_type(dtype: DataType, zone: str) -> pa.DataType:
    """Return the Arrow type in which Spark delivers values of a Spark type."""
    name = type(dtype).__name__
    if name in _ARROW:
        return _ARROW[name]
    plain: Any = dtype
    match name:
        case "TimestampType":
            return pa.timestamp("us", zone)
        case "CharType" | "VarcharType":
            return pa.string()
        case "DecimalType":
            return pa.decimal128(plain.precision, plain.scale)
        case "ArrayType":
            return pa.list_(pa.field("element", arrow_type(plain.elementType, zone), plain.containsNull))
        case "StructType":
            return pa.struct([_arrow_field(column, zone) for column in plain.fields])
        case "MapType":
            return pa.map_(arrow_type(plain.keyType, zone), arrow_type(plain.valueType, zone))
    raise UnsupportedError(
        f"a column of Spark's type {dtype.simpleString()} cannot be read; cast it, or drop it"
    )


def _arrow_field(field: Any, zone: str) -> pa.Field:
    return pa.field(field.name, arrow_type(field.dataType, zone), field.nullable)


def arrow_schema(schema: StructType, zone: str) -> pa.Schema:
    """Return the Arrow schema in which Spark delivers the rows of a DataFrame."""
    return pa.schema([_arrow_field(field, zone).with_nullable(True) for field in schema.fields])
