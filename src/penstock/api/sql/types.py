"""The types of CAST, by SQL name.

INT1, INT2, INT4 and INT8 count bytes, as in Postgres and DuckDB. INT16, INT32, INT64 and all UINT… count bits, as in
DuckDB and ClickHouse.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from penstock.types.arrow import DIGITS

_SEVERAL = {
    pa.bool_(): "boolean bool",
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
    pa.string(): "varchar text char string",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp datetime timestamp_us",
    pa.timestamp("us", "UTC"): "timestamptz",
    **{pa.timestamp(unit): f"timestamp_{unit}" for unit in ("s", "ms", "ns")},
}
SQL_TYPES = {name: dtype for dtype, names in _SEVERAL.items() for name in names.split()}
_DECIMALS = frozenset({"decimal", "numeric", "dec"})
TYPE_NAMES = f"there are {', '.join(SQL_TYPES)} and decimal(p, s) of up to 38 digits (int1, int2, int4 and int8 count bytes; int16, int32, int64 and all uint… count bits)"


def type_named(target: exp.Expression) -> tuple[str, pa.DataType | None]:
    """Return the name of a type as written, and the type; None if it is unknown."""
    sizes = [int(str(size.this)) for size in target.args.get("expressions") or ()]
    parsed = str(getattr(target.this, "name", ""))
    name = str(target.args.get("kind") or parsed).lower() if parsed == "USERDEFINED" else parsed.lower()
    if name in _DECIMALS:
        return name, decimal_type(*sizes) if len(sizes) <= 2 else None
    return name, None if sizes else SQL_TYPES.get(name)


def decimal_type(precision: int = 18, scale: int = 0) -> pa.DataType | None:
    """Return a decimal type, as DECIMAL without sizes has 18 digits; None if there is none of that size."""
    return pa.decimal128(precision, scale) if 0 <= scale <= precision and 0 < precision <= DIGITS else None
