"""Convert data to the schema that a stream declares, where the difference is harmless.

Harmless are: another order of columns, further columns, narrower numbers, whole numbers where floats or decimals hold
them all, decimals of fewer digits, coarser time units, another name of the zone, and
every encoding of text. Anything else is rejected before a row is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice

import pyarrow as pa

from penstock.caches import CACHES, BoundedTable
from penstock.errors import OverflowError as PenstockOverflow
from penstock.errors import SchemaMismatchError
from penstock.expr.decimals import size_of
from penstock.expr.rules import Operand
from penstock.types.arrow import (
    DIGITS,
    finer,
    kind_of,
    member_type,
    names_of,
    plain_type,
    tick_unit,
    value_type,
)

Conform = Callable[[pa.RecordBatch], pa.RecordBatch]

# Cache of compared schema pairs, by identity. Entries hold the schemas, so identities stay valid. Runs over the same data repeat comparisons.
_COMPARED: BoundedTable[tuple[int, int], tuple[pa.Schema, pa.Schema, bool]] = CACHES.table(most=256)


def check(actual: pa.Schema, declared: pa.Schema, where: str) -> None:
    """Reject data that lacks a declared column or has it in another type."""
    if actual is declared or (actual.equals(declared) and len(set(actual.names)) == len(actual.names)):
        return
    names = names_of(actual, where)
    stored = dict(zip(names, actual.types, strict=True)) if len(set(names)) == len(names) else {}
    for field in declared:
        if stored.get(field.name) != field.type:
            _check_column(actual, names, field, where)


def _check_column(actual: pa.Schema, names: Sequence[str], field: pa.Field, where: str) -> None:
    found = names.count(field.name)
    if found == 0:
        near = get_close_matches(field.name, names, n=1)
        hint = f"; it has {near[0]!r}: rename that, or correct the declaration" if near else ""
        raise SchemaMismatchError(f"{where} has no column {field.name!r}, which the stream declares{hint}")
    if found > 1:
        raise SchemaMismatchError(f"{where} has {found} columns named {field.name!r}; rename all but one")
    given = actual.field(field.name).type
    if not harmless(given, field.type):
        raise SchemaMismatchError(
            f"column {field.name!r} of {where} is {given}, but the stream declares {field.type}; "
            f"cast the data, or correct the declaration{_wider(given, field.type)}"
        )


def _wider(given: pa.DataType, declared: pa.DataType) -> str:
    """Return advice for a column that later files have in another type; empty if no type holds both."""
    both = wider_type(plain_type(given), declared)
    return "" if both is None else f" to {both}, as scan(..., merge_schema=True) does"


def harmless(given: pa.DataType, declared: pa.DataType) -> bool:
    """Check whether values of one type are values of the other, except for extremes that `cast` rejects."""
    source, target = plain_type(value_type(given)), plain_type(value_type(declared))
    if source == target or pa.types.is_null(source):
        return True
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        return _fits_struct(source, target)
    match kind_of(source), kind_of(target):
        case ("string", "string"):
            return True
        case ("int", "int") | ("uint", "uint") | ("float", "float") | ("uint", "int"):
            return bool(source.bit_width <= target.bit_width)
        case ("int" | "uint", "float"):
            return bool(source.bit_width * 2 <= target.bit_width)
        case ("int" | "uint" | "decimal", "decimal"):
            return _fewer_digits(source, target)
        case ("timestamp", "timestamp"):
            return (source.tz is None) == (target.tz is None) and _coarser(source, target)
        case ("duration", "duration"):
            return _coarser(source, target)
        case _:
            return False


def _fits_struct(source: pa.DataType, target: pa.DataType) -> bool:
    """Check the fields that both structs have, at least one; a field that is missing becomes null."""
    pairs = [(member_type(source, field.name), field.type) for field in target]
    unique = len({field.name for field in source}) == source.num_fields
    known = [(given, declared) for given, declared in pairs if given is not None]
    return unique and bool(known) and all(harmless(given, declared) for given, declared in known)


def _as_struct(array: pa.StructArray, dtype: pa.DataType) -> pa.StructArray:
    """Choose the fields of a struct by name, and convert them; those that it lacks are null."""
    fields = list(dtype)
    children = [_field_of(array, field) for field in fields]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _field_of(array: pa.StructArray, field: pa.Field) -> pa.Array:
    place = array.type.get_field_index(field.name)
    return pa.nulls(len(array), field.type) if place < 0 else _converted(array.field(place), field.type)


def _converted(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    if array.type == dtype:
        return array
    if pa.types.is_struct(dtype) and pa.types.is_struct(array.type):
        return _as_struct(array, dtype)
    return _decoded(array).cast(dtype)


# --- Fields of structs with other names in a file: paths of our names to the file's, which is empty where the file has none.

BELOW = "\0"  # between the names of a path


def columns_alone(names: Mapping[str, str]) -> dict[str, str]:
    """Leave out the fields of structs."""
    return {ours: theirs for ours, theirs in names.items() if BELOW not in ours}


def stored_type(declared: pa.DataType, path: str, names: Mapping[str, str]) -> pa.DataType:
    r"""Return a declared type under the names of a file, without the fields that the file lacks.

    >>> stored_type(pa.struct({"x": pa.int64(), "y": pa.int64()}), "s", {"s\0x": "old", "s\0y": ""})
    StructType(struct<old: int64>)
    """
    if not pa.types.is_struct(declared):
        return declared
    below = [(f"{path}{BELOW}{field.name}", field) for field in declared]
    named = [(names.get(inner, field.name), inner, field.type) for inner, field in below]
    return pa.struct([(theirs, stored_type(dtype, inner, names)) for theirs, inner, dtype in named if theirs])


def own_type(stored: pa.DataType, declared: pa.DataType, path: str, names: Mapping[str, str]) -> pa.DataType:
    """Return a file's type under our names, with the declared fields that it has."""
    if not (pa.types.is_struct(stored) and pa.types.is_struct(declared)):
        return stored
    fields = []
    for field in declared:
        inner = f"{path}{BELOW}{field.name}"
        inside = member_type(stored, names.get(inner, field.name))
        if inside is not None:
            fields.append((field.name, own_type(inside, field.type, inner, names)))
    return pa.struct(fields)


def with_own_fields(batch: pa.RecordBatch, declared: pa.Schema, names: Mapping[str, str]) -> pa.RecordBatch:
    """Rename the fields of structs, of columns that have our names already."""
    for name in {path.partition(BELOW)[0] for path in names if BELOW in path} & set(batch.schema.names):
        place = batch.schema.get_field_index(name)
        array = _own_fields(batch.column(place), declared.field(name).type, name, names)
        batch = batch.set_column(place, name, array)
    return batch


def _own_fields(array: pa.Array, declared: pa.DataType, path: str, names: Mapping[str, str]) -> pa.Array:
    if not (pa.types.is_struct(array.type) and pa.types.is_struct(declared)):
        return array
    children, fields = [], []
    for field in declared:
        inner = f"{path}{BELOW}{field.name}"
        place = array.type.get_field_index(names.get(inner, field.name))
        if place >= 0:
            children.append(_own_fields(array.field(place), field.type, inner, names))
            fields.append(pa.field(field.name, children[-1].type))
    if not children:
        children, fields = [pa.nulls(len(array), field.type) for field in declared], list(declared)
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _fewer_digits(source: pa.DataType, target: pa.DataType) -> bool:
    size = size_of(Operand(source))
    return size is not None and size[0] <= target.precision - target.scale and size[1] <= target.scale


def wider_type(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """Return the type that holds the values of both without loss; None if there is none.

    >>> wider_type(pa.int32(), pa.int64()), wider_type(pa.decimal128(5, 2), pa.decimal128(6, 1)), wider_type(pa.int64(), pa.float64())
    (DataType(int64), Decimal128Type(decimal128(7, 2)), None)
    """
    if harmless(first, second):
        return second
    if harmless(second, first):
        return first
    sizes = [size_of(Operand(plain_type(side))) for side in (first, second)]
    if "decimal" not in (kind_of(first), kind_of(second)) or sizes[0] is None or sizes[1] is None:
        return None
    scale = max(sizes[0][1], sizes[1][1])
    digits = max(sizes[0][0], sizes[1][0]) + scale
    return pa.decimal128(digits, scale) if digits <= DIGITS else None


def _coarser(source: pa.DataType, target: pa.DataType) -> bool:
    unit = tick_unit(target)
    return finer(tick_unit(source) or "s", unit or "s") == unit


def unchanged(actual: pa.Schema, wanted: pa.Schema) -> bool:
    """Check whether data needs no conversion, whatever its values. Dictionaries may hold nulls (`_no_null_entry`)."""
    pair = id(actual), id(wanted)
    found = _COMPARED.get(pair)
    if found is None:
        same = bool(actual.equals(wanted)) and not any(map(pa.types.is_dictionary, wanted.types))
        found = _COMPARED.keep(pair, (actual, wanted, same))
    return found[2]


def conformer(actual: pa.Schema, declared: pa.Schema, columns: Sequence[str], where: str) -> Conform:
    """Return the function that selects the named columns of each batch and converts them to the declared types."""
    wanted = [(name, declared.field(name).type) for name in columns]
    if all(_as_declared(actual.field(name), dtype) for name, dtype in wanted):
        return _selection(actual, columns)
    schema = pa.schema([pa.field(name, dtype) for name, dtype in wanted])

    def conform(batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [cast(batch.column(name), dtype, name, where) for name, dtype in wanted]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    return conform


def _as_declared(given: pa.Field, dtype: pa.DataType) -> bool:
    """Check whether a column needs no conversion, whatever its values. Dictionaries may hold nulls (`_no_null_entry`).

    Arrow treats a non-nullable field as a different field, and does not mix both kinds in one table.
    """
    return bool(given.type == dtype and given.nullable and not pa.types.is_dictionary(dtype))


def _selection(actual: pa.Schema, columns: Sequence[str]) -> Conform:
    if list(actual.names) == list(columns):
        return lambda batch: batch
    names = list(columns)
    return lambda batch: batch.select(names)


def cast(array: pa.Array, dtype: pa.DataType, name: str, where: str) -> pa.Array:
    """Convert one column, rejecting values that do not fit."""
    try:
        return _no_null_entry(_converted(array, dtype))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise PenstockOverflow(
            f"column {name!r} of {where} holds values that {dtype} cannot hold; declare it as {array.type}"
        ) from None  # Arrow's message quotes the value


def _decoded(array: pa.Array) -> pa.Array:
    """Decode run-end encoding, and cast dictionary values from views to offsets, from which alone Arrow can take."""
    if pa.types.is_run_end_encoded(array.type):
        from pyarrow.compute import run_end_decode  # noqa: PLC0415 - loads a module that few streams need

        return _decoded(run_end_decode(array))
    if not pa.types.is_dictionary(array.type):
        return array
    values = array.dictionary.cast(plain_type(array.type.value_type))
    return pa.DictionaryArray.from_arrays(array.indices, values)


def _no_null_entry(array: pa.Array) -> pa.Array:
    """Re-encode a dictionary that contains a null, so that only the validity of rows marks nulls."""
    if not pa.types.is_dictionary(array.type) or not array.dictionary.null_count:
        return array
    coded = array.cast(array.type.value_type).dictionary_encode()
    index = coded.indices.cast(array.type.index_type)
    return pa.DictionaryArray.from_arrays(index, coded.dictionary, ordered=array.type.ordered)


# --- Coalesce small batches that are already available: a push costs the same for ten rows as for ten thousand.

COALESCED_ROWS = 1 << 18  # rows; their processing far exceeds the cost of a push
SINGLY = 8


def gathered(
    batches: Iterable[pa.RecordBatch], singly: int = SINGLY, enough: int = COALESCED_ROWS
) -> Iterator[pa.RecordBatch]:
    """Concatenate adjacent batches of one schema up to `enough` rows. The first `singly` pass unchanged, for early results.

    >>> ones = [pa.record_batch({"v": [i]}) for i in range(6)]
    >>> [batch["v"].to_pylist() for batch in gathered(ones, singly=1, enough=3)]
    [[0], [1, 2, 3], [4, 5]]
    """
    parts = iter(batches)
    yield from islice(parts, singly)
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in parts:
        if held and (rows + batch.num_rows > enough or batch.schema != held[0].schema):
            yield from _joined(held)
            held, rows = [], 0
        held.append(batch)
        rows += batch.num_rows
    if held:
        yield from _joined(held)


def _joined(held: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Concatenate into one batch, or a few if texts exceed one array. Empty batches yield at least one batch."""
    if len(held) == 1:
        return held
    return pa.Table.from_batches(held).combine_chunks().to_batches() or held[:1]
