"""Convert Python values to literals with physical values: ticks for times.

Arrow's conversions are avoided: the first one imports pandas if it is installed, which takes longer than
compiling the query.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import FunctionType
from typing import Any

import pyarrow as pa

from penstock.errors import ExpressionTypeError, PenstockError
from penstock.expr import decimals
from penstock.expr.arithmetic import bounds, castable, convert
from penstock.expr.nodes import Literal
from penstock.types.arrow import DIGITS, kind_of, parse_type, tick_unit, value_type
from penstock.types.duration import is_whole

# --- Check arguments that are not expressions: flags, numbers and mappings. Errors name the argument.

LIBRARIES = {
    "pyspark": "PySpark", "polars": "Polars", "pandas": "pandas", "numpy": "NumPy", "pyarrow": "PyArrow",
    "duckdb": "DuckDB", "_duckdb": "DuckDB", "ibis": "Ibis", "sqlalchemy": "SQLAlchemy",
}  # fmt: skip
FOREIGN_EXPRESSIONS = {"Col", "Column", "Expr", "Expression", "When", "Then", "ChainedWhen", "ChainedThen"}


def flag(given: object, what: str) -> bool:
    """Check for True or False, and no other truthy value: `final="no"` would count as true."""
    if isinstance(given, bool):
        return given
    raise ExpressionTypeError(f"{what} is {shown(given)}; it is True or False")


def whole(given: object, what: str, least: int, most: int = (1 << 31) - 1) -> int:
    """Check for an integer from `least` to `most`."""
    if is_whole(given) and least <= int(given) <= most:
        return int(given)
    raise ExpressionTypeError(f"{what} is {shown(given)}; it is a whole number from {least} to {most:,}")


def texts(given: object, what: str, example: str) -> dict[str, str]:
    """Check for a mapping of strings to strings; None is an empty one."""
    if given is None:
        return {}
    fault = "" if not isinstance(given, Mapping) else _fault(given)
    if isinstance(given, Mapping) and not fault:
        return dict(given)
    raise ExpressionTypeError(
        f"{what} is {shown(given)}; it is a mapping of texts, such as {example}{fault and '; '}{fault}"
    )


def _fault(given: Mapping[object, object]) -> str:
    """Describe the pair that is not of strings. Values may be secret, and are not shown."""
    for name, value in given.items():
        if not isinstance(name, str) or not name:
            return f"the name {shown(name)} is none"
        if not isinstance(value, str):
            return f"the value of {name!r:.60} is of type {type(value).__name__}"
        if not (encodable(name) and encodable(value)):
            return f"the value of {name!r:.60}, or the name, is not valid Unicode"
    return ""


def encodable(text: str) -> bool:
    """Return whether C code can read a text: it has no lone surrogates and no NUL.

    >>> encodable("clicks"), encodable(chr(0))
    (True, False)
    """
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def shown(given: object) -> str:
    """Describe an argument: plain values as written, others by their type and library.

    >>> shown("nope"), shown(lambda x: x)
    ("'nope'", 'a function')
    """
    plain = given is None or isinstance(given, (bool, int, float, str))
    text = repr(given) if plain else ""
    if plain and len(text) <= 60:
        return text
    library = LIBRARIES.get(type(given).__module__.partition(".")[0])
    return f"a {type(given).__name__}" if library is None else f"a {library} {type(given).__name__}"


def written_elsewhere(given: object) -> bool:
    """Return whether an object is an expression of another library.

    This reads no attribute of the object: any attribute of a Spark Column is another Column.
    """
    return (
        type(given).__module__.partition(".")[0] in LIBRARIES and type(given).__name__ in FOREIGN_EXPRESSIONS
    )


_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the epoch of naive datetimes
_MICROSECOND = timedelta(microseconds=1)
_VALUES = {
    "Series",
    "DataFrame",
    "LazyFrame",
    "Index",
    "ndarray",
    "Array",
    "ChunkedArray",
    "BooleanArray",
    "Table",
    "RecordBatch",
}


def literal(value: object, dtype: pa.DataType | None = None) -> Literal:
    """Return a literal of the type inferred from the value, or of the given type."""
    if value is None:
        return Literal(None, dtype or pa.null())
    natural = _natural(value)
    return natural if dtype is None else _converted(natural, value_type(dtype))


def _natural(value: object) -> Literal:
    match value:
        case bool():
            return Literal(value, pa.bool_())
        case int():
            return _integer(value)
        case float():
            return Literal(float(value), pa.float64())
        case str():
            return _text(value)
        case datetime():
            return _instant(value)
        case date():
            return Literal(value.toordinal() - _EPOCH.toordinal(), pa.date32())
        case timedelta():
            return _span(value)
        case Decimal():
            return _decimal(value)
        case pa.Scalar():
            return _scalar(value)
        case _:
            return _numpy(value)


def _integer(value: int) -> Literal:
    dtype = pa.uint64() if value > 2**63 - 1 else pa.int64()
    low, high = bounds(dtype)
    if not low <= value <= high:
        raise ExpressionTypeError(f"the integer {_shown(value)} does not fit 64 bits; write it as a float")
    return Literal(int(value), dtype)


def _decimal(value: Decimal) -> Literal:
    dtype = decimals.literal_type(value)
    if dtype is None:
        raise ExpressionTypeError(
            f"the decimal {_shown(value)} is no number of at most {DIGITS} digits; write it as a float"
        )
    return Literal(decimals.fit(value, dtype, "a literal"), dtype)


def _text(value: str) -> Literal:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ExpressionTypeError(
            f"the string {_shown(value)} holds half a character (a lone surrogate); leave it out"
        ) from None
    return Literal(str(value), pa.string())


def _instant(value: datetime) -> Literal:
    zone = None if value.tzinfo is None else "UTC"
    micros = (_plain(value) - (_EPOCH if zone is None else _EPOCH.replace(tzinfo=UTC))) // _MICROSECOND
    finer = getattr(value, "nanosecond", 0)  # pandas has nanoseconds, Python has not
    return (
        Literal(micros * 1_000 + finer, pa.timestamp("ns", zone))
        if finer
        else Literal(micros, pa.timestamp("us", zone))
    )


def _plain(value: datetime) -> datetime:
    """Return a Python datetime; reject pandas' NaT, which is an instance of datetime."""
    if value != value:  # noqa: PLR0124 - NaT differs from itself
        raise _refused(value)
    whole = getattr(value, "to_pydatetime", None)
    return value if whole is None else whole(warn=False)


def _span(value: timedelta) -> Literal:
    if value != value:  # noqa: PLR0124 - pandas' NaT
        raise _refused(value)
    finer = getattr(value, "nanoseconds", 0)
    if not finer:
        return Literal(value // _MICROSECOND, pa.duration("us"))
    whole = (value.days * 86_400 + value.seconds) * 10**6 + value.microseconds
    return Literal(whole * 1_000 + finer, pa.duration("ns"))


def _scalar(value: Any) -> Literal:
    """Convert an Arrow scalar."""
    if kind_of(value.type) in ("other", "null"):
        raise _refused(value)
    plain = value_type(value.type)
    return Literal(value.value if tick_unit(plain) else value.as_py(), plain)


def _numpy(value: Any) -> Literal:
    """Convert a NumPy scalar by its dtype."""
    if type(value).__module__.partition(".")[0] != "numpy" or value.ndim != 0 or not hasattr(value, "item"):
        raise _refused(value)
    dtype = str(value.dtype)
    if dtype.startswith(("datetime64", "timedelta64")):
        return _numpy_time(value, *dtype.rstrip("]").partition("[")[::2])
    return (
        _natural(value.item()) if dtype.startswith("<U") else Literal(value.item(), _known_type(dtype, value))
    )


def _numpy_time(value: Any, family: str, unit: str) -> Literal:
    """Convert a NumPy time or timedelta; minutes, days and months become seconds."""
    known = {"datetime64": "timestamp", "timedelta64": "duration"}[family]
    if value != value or (known == "duration" and unit in "YM"):  # noqa: PLR0124 - NaT; a month is no length
        raise _refused(value)
    fine = "s" if unit in ("Y", "M", "W", "D", "h", "m") else unit
    dtype = _known_type(f"{known}[{fine}]", value)
    return Literal(int(value.astype(f"{family}[{fine}]").astype("int64")), dtype)


def _known_type(name: str, value: object) -> pa.DataType:
    try:
        dtype = parse_type(name)
    except PenstockError:
        raise _refused(value) from None
    if kind_of(dtype) == "other":
        raise _refused(value)
    return dtype


def _refused(value: object) -> ExpressionTypeError:
    """Return the error for a value that is not allowed in an expression, with an alternative."""
    if written_elsewhere(value):
        instead = (
            "it belongs to another library; write the same with Penstock's pk.col(...), as in pk.col('v') > 1"
        )
    elif type(value).__name__ in _VALUES:
        instead = "it holds values; name the column they are in, as in pk.col('v') > 1, or add them to the data first"
    elif isinstance(value, FunctionType):
        instead = "write what it computes as an expression, as in pk.col('v') > 1"
    else:
        instead = "use a number, string, bool, datetime, date, timedelta, Decimal or None"
    return ExpressionTypeError(f"{shown(value)} cannot stand in an expression; {instead}")


def _converted(natural: Literal, dtype: pa.DataType) -> Literal:
    """Convert a literal to the given type, if its value is preserved."""
    value: Any = natural.value
    fraction = isinstance(value, float) and kind_of(dtype) in ("int", "uint") and not value.is_integer()
    if not fraction and castable(natural.type, dtype):
        try:
            return Literal(convert(value, natural.type, dtype), dtype)
        except PenstockError:
            pass
    raise ExpressionTypeError(
        f"the literal {_shown(value)} does not fit {dtype}; give another value, or a type that holds it"
    )


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."
