"""The type rules of scalar functions: operand types in, result type out, None where undefined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.expr import decimals
from penstock.types.arrow import finer, kind_of, member_type, tick_unit, value_type

NUMBER_KINDS = frozenset({"bool", "int", "uint", "float"})
REAL_KINDS = NUMBER_KINDS | {"decimal"}
INTEGERS = frozenset({"bool", "int", "uint"})
INSTANTS = frozenset({"timestamp", "date"})


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of a type rule: its type without dictionary, whether it is a literal >= 0, and a whole literal's digits."""

    type: pa.DataType
    natural: bool = False
    digits: int | None = None

    @property
    def kind(self) -> str:
        return kind_of(self.type)


Rule = Callable[[Sequence[Operand], Mapping[str, object]], pa.DataType | None]


def number_type(operands: Sequence[Operand]) -> pa.DataType | None:
    """Return the 64-bit type of arithmetic on these numbers."""
    kinds = {operand.kind for operand in operands}
    if "float" in kinds and kinds <= REAL_KINDS:
        return pa.float64()
    if not kinds <= NUMBER_KINDS:
        return None
    unsigned = all(operand.kind == "uint" or operand.natural for operand in operands)
    wide = any(operand.type == pa.uint64() for operand in operands)
    return pa.uint64() if unsigned and wide else pa.int64()


def common_type(operands: Sequence[Operand]) -> pa.DataType | None:
    """Return the type that can hold any of these values, as the branches of a `Case` need.

    >>> common_type([Operand(pa.int8()), Operand(pa.float32())])
    DataType(double)
    """
    typed = [operand for operand in operands if operand.kind != "null"]
    if not typed:
        return pa.null()
    kinds = {operand.kind for operand in typed}
    if all(operand.type == typed[0].type for operand in typed):
        return typed[0].type
    if "decimal" in kinds and "float" not in kinds:
        return decimals.common_type(typed)
    if kinds <= REAL_KINDS - {"bool"}:
        return number_type(typed)
    if kinds == {"string"}:
        return pa.string()
    if kinds in ({"timestamp"}, {"duration"}, {"date"}):
        return _finest(typed)
    return None


def type_of_both(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """Return the type of a column that holds the values of two columns, with dictionaries decoded."""
    return first if first == second else common_type([Operand(value_type(side)) for side in (first, second)])


def _finest(operands: Sequence[Operand]) -> pa.DataType | None:
    unit = tick_unit(operands[0].type)
    zones = {zone_of(operand.type) for operand in operands}
    for operand in operands:
        unit = finer(unit or "d", tick_unit(operand.type) or "d")
    match operands[0].kind:
        case "timestamp":
            return pa.timestamp(unit, zones.pop()) if len(zones) == 1 else None
        case "duration":
            return pa.duration(unit)
        case _:
            return pa.date64()


def zone_of(dtype: pa.DataType) -> str | None:
    """Return the zone of a timestamp; None for other types."""
    return dtype.tz if pa.types.is_timestamp(dtype) else None


def comparable(first: pa.DataType, second: pa.DataType) -> bool:
    """Return whether two types can be compared."""
    a, b = kind_of(first), kind_of(second)
    if a == "bool" or b == "bool":
        return a == b
    if a in REAL_KINDS and b in REAL_KINDS:
        return True
    if a in INSTANTS and b in INSTANTS:
        return (zone_of(first) is None) == (zone_of(second) is None)
    return a == b and a in ("string", "duration")


def add(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    a, b = operands
    match a.kind, b.kind:
        case ("timestamp", "duration"):
            return pa.timestamp(finer(a.type.unit, b.type.unit), a.type.tz)
        case ("duration", "timestamp"):
            return pa.timestamp(finer(a.type.unit, b.type.unit), b.type.tz)
        case ("duration", "duration"):
            return pa.duration(finer(a.type.unit, b.type.unit))
        case _:
            return decimals.result_type("add", operands) or number_type(operands)


def sub(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    a, b = operands
    match a.kind, b.kind:
        case ("timestamp", "timestamp"):
            same = (a.type.tz is None) == (b.type.tz is None)
            return pa.duration(finer(a.type.unit, b.type.unit)) if same else None
        case ("timestamp" | "duration", "duration"):
            return add(operands, options)
        case _:
            return decimals.result_type("sub", operands) or number_type(operands)


def mul(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    a, b = operands
    if a.kind == "duration" and b.kind in ("int", "uint"):
        return a.type
    if b.kind == "duration" and a.kind in ("int", "uint"):
        return b.type
    return decimals.result_type("mul", operands) or number_type(operands)


def div(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    kinds = {operand.kind for operand in operands}
    if kinds <= NUMBER_KINDS or kinds == {"duration"}:
        return pa.float64()
    return decimals.result_type("div", operands) or number_type(operands)


def floordiv(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    a, b = operands
    if (a.kind, b.kind) == ("duration", "duration"):
        return pa.int64()
    if a.kind == "duration" and b.kind in ("int", "uint"):
        return a.type
    return decimals.result_type("floordiv", operands) or number_type(operands)


def mod(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    if all(operand.kind == "duration" for operand in operands):
        return pa.duration(finer(operands[0].type.unit, operands[1].type.unit))
    return decimals.result_type("mod", operands) or number_type(operands)


def whole(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    return number_type(operands) if all(operand.kind in INTEGERS for operand in operands) else None


def remainder(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    return decimals.result_type("remainder", operands) or number_type(operands)


def to_float(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    return pa.float64() if all(operand.kind in REAL_KINDS for operand in operands) else None


def negated(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    (a,) = operands
    if a.kind in ("duration", "decimal"):
        return a.type
    return (
        pa.int64()
        if a.kind in ("int", "uint")
        else to_float(operands, options)
        if a.kind == "float"
        else None
    )


def magnitude(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    (a,) = operands
    if a.kind in ("duration", "decimal"):
        return a.type
    return number_type(operands) if a.kind in ("int", "uint", "float") else None


def sign(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    (a,) = operands
    if a.kind in ("int", "uint", "duration", "decimal"):
        return pa.int64()
    return pa.float64() if a.kind == "float" else None


def rounded(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    (a,) = operands
    if a.kind == "float":
        return pa.float64()
    if a.kind == "decimal":
        places = options.get("decimals", 0)
        assert isinstance(places, int)
        return decimals.rounded_type(a.type, places)
    return a.type if a.kind in ("int", "uint") else None


def compared(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    return pa.bool_() if comparable(operands[0].type, operands[1].type) else None


def logical(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    return pa.bool_() if all(operand.kind == "bool" for operand in operands) else None


def test_of_any(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    return pa.bool_()


def test_of_number(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    return pa.bool_() if operands[0].kind in REAL_KINDS else None


def common(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    kinds = {operand.kind for operand in operands}
    return None if "other" in kinds else common_type(operands)


ordered = common


def part_of_day(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    return pa.int64() if operands[0].kind == "timestamp" else None


def part_of_date(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    return pa.int64() if operands[0].kind in INSTANTS else None


def date_of(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    return pa.date32() if operands[0].kind in INSTANTS else None


def ticks_of(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    return pa.int64() if operands[0].kind in INSTANTS | {"duration"} else None


def truncated(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    (a,) = operands
    return a.type if a.kind in INSTANTS | {"duration", "int", "uint"} else None


def floored(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    (a,) = operands
    return a.type if a.kind in INSTANTS else None


def written(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    return pa.string() if operands[0].kind in INSTANTS else None


def on_clock_of(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    """Return the type of a timestamp reinterpreted in another zone; "" is none."""
    (a,) = operands
    return pa.timestamp(a.type.unit, options["zone"] or None) if a.kind == "timestamp" else None


def parsed(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    """Return the type of a text parsed as a time: with a zone if the format has one."""
    if operands[0].kind != "string":
        return None
    zone = "UTC" if "%z" in str(options["format"]) else None
    return pa.date32() if options["goal"] == "date" else pa.timestamp("us", zone)


def member(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
    return member_type(operands[0].type, str(options["name"]))


def _strings(result: pa.DataType) -> Rule:
    def rule(operands: Sequence[Operand], options: Mapping[str, object]) -> pa.DataType | None:
        return result if all(operand.kind == "string" for operand in operands) else None

    return rule


string_to_string = _strings(pa.string())
string_to_int = _strings(pa.int64())
string_to_bool = _strings(pa.bool_())
