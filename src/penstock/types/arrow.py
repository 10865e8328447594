"""Parse types and schemas written by users; convert times to and from integer ticks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import partial

import pyarrow as pa

from penstock.errors import SchemaMismatchError

TIME_UNITS = ("s", "ms", "us", "ns")
SCHEMA_EXAMPLE = '{"ts": "timestamp[us]", "value": "int64"}'

_NAMED: dict[str, Callable[[], pa.DataType]] = {
    "bool": pa.bool_,
    "boolean": pa.bool_,
    **{f"{sign}int{bits}": getattr(pa, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float32": pa.float32,
    "float": pa.float64,
    "float64": pa.float64,
    "double": pa.float64,
    "int": pa.int64,
    "string": pa.string,
    "str": pa.string,
    "utf8": pa.string,
    "large_string": pa.large_string,
    "large_utf8": pa.large_string,
    "string_view": pa.string_view,
    "binary": pa.binary,
    "large_binary": pa.large_binary,
    "binary_view": pa.binary_view,
    "float16": pa.float16,
    "halffloat": pa.float16,
    **{f"time32[{unit}]": partial(pa.time32, unit) for unit in ("s", "ms")},
    **{f"time64[{unit}]": partial(pa.time64, unit) for unit in ("us", "ns")},
    "date": pa.date32,
    "date32": pa.date32,
    "date64": pa.date64,
    "date32[day]": pa.date32,
    "date64[ms]": pa.date64,
    "null": pa.null,
    "timestamp": partial(pa.timestamp, "us"),
    "datetime": partial(pa.timestamp, "us"),
    "duration": partial(pa.duration, "us"),
    "dictionary": lambda: pa.dictionary(pa.int32(), pa.string()),
    "dictionary[string]": lambda: pa.dictionary(pa.int32(), pa.string()),
}
_PYTHON: dict[type, Callable[[], pa.DataType]] = {
    bool: pa.bool_,
    int: pa.int64,
    float: pa.float64,
    str: pa.string,
    bytes: pa.binary,
    datetime: partial(pa.timestamp, "us"),
    date: pa.date32,
    timedelta: partial(pa.duration, "us"),
}
_PARAMETRIC = re.compile(
    r"(timestamp|datetime|duration)\s*\[\s*(s|ms|us|ns)\s*(?:,\s*(?:tz=)?([^\]]+?)\s*)?\]"
)
_LISTS = {make(pa.null()).id: make for make in (pa.list_, pa.large_list)}
_DICTIONARY = re.compile(r"dictionary<values=(\w+), indices=(u?int\d+), ordered=0>")  # as Arrow prints it
_LIST = re.compile(r"(large_)?list\s*(?:<(?:item:)?(.+)>|\[(.+)\])")
# Types that `plain_type` leaves as they are; schemas may have thousands of columns.
_ALWAYS_PLAIN = {
    dtype.id
    for dtype in (
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()),
        *(pa.uint64(), pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.date32(), pa.binary()),
        *(pa.timestamp("us"), pa.duration("us"), pa.decimal128(1, 0)),
    )
}
_SHORT_DECIMALS = {pa.decimal32(1, 0).id, pa.decimal64(1, 0).id}
_DEEPEST = 32  # nesting depth of lists
DIGITS, _MOST_DIGITS = 38, 76  # of 128-bit and 256-bit decimals
FEW_DIGITS = 18  # of decimals that kernels compute with in 64 bits
_DECIMAL = re.compile(r"decimal(128|256)?\s*[\[(]\s*(\d{1,2})\s*,\s*(-?\d{1,3})\s*[\])]")


def parse_type(text: str) -> pa.DataType:
    """Parse a type's name as users write it.

    >>> parse_type("timestamp[us, UTC]")
    TimestampType(timestamp[us, tz=UTC])
    """
    name = text.strip()
    if name in _NAMED:
        return _NAMED[name]()
    if found := _PARAMETRIC.fullmatch(name):
        family, unit, zone = found.groups()
        return pa.duration(unit) if family == "duration" else pa.timestamp(unit, zone)
    if found := _DICTIONARY.fullmatch(name):
        return pa.dictionary(parse_type(found[2]), parse_type(found[1]))
    if name.count("list") <= _DEEPEST and (found := _LIST.fullmatch(name)):
        return (pa.large_list if found[1] else pa.list_)(parse_type(found[2] or found[3]))
    if (found := _DECIMAL.fullmatch(name)) and 0 < int(found[2]) <= _MOST_DIGITS:
        wide = found[1] == "256" or int(found[2]) > DIGITS
        return (pa.decimal256 if wide else pa.decimal128)(int(found[2]), int(found[3]))
    raise SchemaMismatchError(
        f"there is no type {text!r}; write one like 'int64', 'float64', 'string', 'bool', 'date', "
        "'timestamp[us]', 'timestamp[us, UTC]', 'duration[ms]' or 'dictionary', or a pyarrow type"
    )


def as_type(given: object) -> pa.DataType:
    """Convert a type given as a name, a pyarrow type, a Python class, or a mapping of the fields of a struct.

    >>> as_type({"city": "string", "at": {"lat": float}})
    StructType(struct<city: string, at: struct<lat: double>>)
    """
    if isinstance(given, pa.DataType):
        return given
    if isinstance(given, str):
        return parse_type(given)
    if isinstance(given, type) and given in _PYTHON:
        return _PYTHON[given]()
    if isinstance(given, Mapping) and given:
        return pa.struct([_field(pair) for pair in given.items()])
    raise SchemaMismatchError(f"{given!r} is not a type; write a name such as 'int64' or a pyarrow type")


def as_schema(given: object) -> pa.Schema:
    """Convert a schema given as a pyarrow schema, a mapping, or pairs of name and type."""
    if isinstance(given, pa.Schema):
        return checked(given)
    pairs: Iterable[object] = given.items() if isinstance(given, Mapping) else _iterable(given)
    return checked(pa.schema([_field(pair) for pair in pairs]))


def _iterable(given: object) -> Iterable[object]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise SchemaMismatchError(f"{given!r} is not a schema; write a mapping such as {SCHEMA_EXAMPLE}")
    return given


def _field(pair: object) -> pa.Field:
    match pair:
        case pa.Field():
            return pair
        case (str(name), dtype):
            return pa.field(require_name(name), as_type(dtype))
    raise SchemaMismatchError(f"{pair!r} is not a column; write a mapping such as {SCHEMA_EXAMPLE}")


def checked(schema: pa.Schema) -> pa.Schema:
    """Reject duplicate column names; drop metadata and view encodings."""
    names = names_of(schema, "the schema")
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise SchemaMismatchError(
            f"the schema names these columns more than once: {', '.join(map(repr, twice))}; rename all but one"
        )
    return pa.schema(
        [
            pa.field(field.name, field.type if field.type.id in _ALWAYS_PLAIN else plain_type(field.type))
            for field in schema
        ]
    )


def names_of(schema: pa.Schema, where: str) -> list[str]:
    """Return the names of columns; reject names that are not valid text, also inside nested types.

    >>> names_of(pa.schema({"t": pa.int64()}), "the schema")
    ['t']
    """
    try:
        for dtype in schema.types:
            if dtype.num_fields:
                _read_names(dtype)
        return list(schema.names)
    except UnicodeDecodeError:
        raise SchemaMismatchError(
            f"{where} has a column name that is not valid UTF-8; rename the column"
        ) from None


def require_name(name: str) -> str:
    """Reject a column name that cannot be encoded in UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise SchemaMismatchError(
            f"the name {name!r:.60} of a column holds half a character (a lone surrogate); rename the column"
        ) from None
    return name


def _read_names(dtype: pa.DataType) -> None:
    for place in range(dtype.num_fields):
        inside = dtype.field(place)
        _ = inside.name
        _read_names(inside.type)


def without_unions(schema: pa.Schema) -> pa.Schema:
    """Reject Arrow's union types, also inside nested types: Arrow cannot take rows of them."""
    for field in schema:
        if field.type.num_fields and _holds_union(field.type):
            raise SchemaMismatchError(
                f"column {field.name!r} is {field.type}, and unions of types cannot pass through; leave the column "
                "out of the data, or make a struct of it, or a column for each of its types"
            )
    return schema


def _holds_union(dtype: pa.DataType) -> bool:
    inside = (dtype.field(place).type for place in range(dtype.num_fields))
    return pa.types.is_union(dtype) or any(_holds_union(child) for child in inside)


def plain_type(dtype: pa.DataType) -> pa.DataType:
    """Replace encodings that kernels do not read: string views, run-end encoding, and dictionaries of non-strings.

    Extension types defined in Python become their storage type, because they cannot be looked up by name.

    >>> plain_type(pa.dictionary(pa.int8(), pa.int64()))
    DataType(int64)
    """
    if pa.types.is_string_view(dtype):
        return pa.string()
    if pa.types.is_binary_view(dtype):
        return pa.binary()
    if pa.types.is_run_end_encoded(dtype):
        return plain_type(dtype.value_type)
    if isinstance(dtype, pa.ExtensionType):
        return plain_type(dtype.storage_type)
    if dtype.id in _SHORT_DECIMALS:
        return pa.decimal128(dtype.precision, dtype.scale)
    if not pa.types.is_dictionary(dtype):
        return _plain_inside(dtype)
    values = plain_type(dtype.value_type)
    if kind_of(values) != "string":
        return values
    return dtype if values == dtype.value_type else pa.dictionary(pa.int32(), values)


def _plain_inside(dtype: pa.DataType) -> pa.DataType:
    """Replace string views inside lists, maps and structs: Arrow cannot take rows of those either."""
    if pa.types.is_struct(dtype):
        return pa.struct([_plain_field(field) for field in dtype])
    if pa.types.is_map(dtype):
        return pa.map_(_plain_field(dtype.key_field), _plain_field(dtype.item_field), dtype.keys_sorted)
    if pa.types.is_fixed_size_list(dtype):
        return pa.list_(_plain_field(dtype.value_field), dtype.list_size)
    if dtype.id in _LISTS:
        return _LISTS[dtype.id](_plain_field(dtype.value_field))
    return dtype


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_type(field.type))


def member_type(dtype: pa.DataType, name: str) -> pa.DataType | None:
    """Return the type of a struct's field; None if there is no such field, or more than one.

    >>> member_type(pa.struct({"city": pa.string()}), "city")
    DataType(string)
    """
    places = dtype.get_all_field_indices(name) if pa.types.is_struct(dtype) else []
    return dtype.field(places[0]).type if len(places) == 1 else None


def value_type(dtype: pa.DataType) -> pa.DataType:
    """Return the value type of a dictionary type; other types unchanged."""
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


_KINDS = {
    dtype.id: kind
    for kind, family in (
        ("null", (pa.null(),)),
        ("bool", (pa.bool_(),)),
        ("int", (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
        ("uint", (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
        ("float", (pa.float32(), pa.float64())),
        ("timestamp", (pa.timestamp("ns"),)),
        ("date", (pa.date32(), pa.date64())),
        ("duration", (pa.duration("ns"),)),
        ("string", (pa.string(), pa.large_string())),
        ("decimal", (pa.decimal128(1, 0),)),
    )
    for dtype in family
}


def kind_of(dtype: pa.DataType) -> str:
    """Return the kind of a type: null bool int uint float decimal timestamp date duration string, or other.

    A dictionary has the kind of its values. Decimals of 256 bits, or with a scale outside their digits, are other types.

    >>> kind_of(pa.dictionary(pa.int8(), pa.string()))
    'string'
    """
    plain = value_type(dtype)
    kind = _KINDS.get(plain.id, "other")
    return "other" if kind == "decimal" and not 0 <= plain.scale <= plain.precision else kind


def has_codes(dtype: pa.DataType) -> bool:
    """Return whether keys of a type are interned: texts, and decimals of more digits than a 64-bit word holds."""
    kind = kind_of(dtype)
    return kind == "string" or (kind == "decimal" and value_type(dtype).precision > FEW_DIGITS)


def tick_unit(dtype: pa.DataType) -> str | None:
    """Return the length of one tick of a time type: ns, us, ms, s or d; None for other types."""
    match kind_of(dtype):
        case "timestamp" | "duration":
            return str(dtype.unit)
        case "date":
            return "d" if pa.types.is_date32(dtype) else "ms"
        case _:
            return None


def finer(first: str, second: str) -> str:
    """Return the finer of two units."""
    order = ("d", *TIME_UNITS)
    return max(first, second, key=order.index)


def physical_type(dtype: pa.DataType) -> pa.DataType:
    """Return the integer type of a time type, also inside lists and structs; other types unchanged."""
    if pa.types.is_struct(dtype):
        return pa.struct([field.with_type(physical_type(field.type)) for field in dtype])
    if pa.types.is_list(dtype):
        return pa.list_(dtype.value_field.with_type(physical_type(dtype.value_type)))
    if tick_unit(dtype) is None:
        return dtype
    return pa.int32() if pa.types.is_date32(dtype) else pa.int64()


def physical(array: pa.Array) -> pa.Array:
    """View times as ticks without copying; leave other arrays as they are."""
    target = physical_type(array.type)
    return array if target == array.type else array.view(target)


def physical_values(array: pa.Array | pa.ChunkedArray) -> list[object]:
    """List an array's values as the interpreters use them: ticks for times, None for null."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in physical_values(chunk)]
    return list(physical(array).to_pylist())


def from_physical(values: Sequence[object], dtype: pa.DataType) -> pa.Array:
    """Build an array of `dtype` from values as the interpreters use them."""
    if pa.types.is_dictionary(dtype):
        return from_physical(values, dtype.value_type).dictionary_encode().cast(dtype)
    plain = physical_type(dtype)
    array = pa.array(values, plain)
    return array if plain == dtype else array.view(dtype)


def width_of(dtype: pa.DataType) -> int | None:
    """Return the bytes per value, rounded up; None for variable-size types such as strings and lists.

    >>> width_of(pa.int32()), width_of(pa.bool_()), width_of(pa.string())
    (4, 1, None)
    """
    try:
        bits: int = dtype.bit_width
    except ValueError:
        return None
    return -(-bits // 8)


def without_column(schema: pa.Schema, name: str) -> pa.Schema:
    """Remove a column from a schema."""
    return pa.schema([field for field in schema if field.name != name])
