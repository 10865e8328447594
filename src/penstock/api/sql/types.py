"""The types of CAST, by SQL name.

INT1, INT2, INT4 and INT8 count bytes, as in Postgres and DuckDB. INT16, INT32, INT64 and all UINT… count bits, as in
DuckDB and ClickHouse.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

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
TYPE_NAMES = f"there are {', '.join(SQL_TYPES)} (int1, int2, int4 and int8 count bytes; int16, int32, int64 and all uint… count bits)"


def type_named(target: exp.Expression) -> tuple[str, pa.DataType | None]:
    """Return the name of a type as written, and the type; None if it is unknown."""
    parsed = str(getattr(target.this, "name", ""))
    name = str(target.args.get("kind") or parsed).lower() if parsed == "USERDEFINED" else parsed.lower()
    return name, SQL_TYPES.get(name)
