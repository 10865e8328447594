"""Read Thrift's compact protocol with bounds checks, for data that may be damaged or malicious.

Every length is compared with the remaining bytes, and the nesting depth of structs is limited.
"""

from __future__ import annotations

from typing import Any

Struct = dict[int, Any]

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)
CONTINUED = 128  # a byte from this value on is followed by another of the same number
LONGEST_NUMBER = 10  # bytes of a 64-bit number

_DEEPEST = 12
_WIDTHS = {BYTE: 1, DOUBLE: 8, UUID: 16}


class DamagedError(ValueError):
    """The data violates the protocol."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned number. Returns the number and its end."""
    value = shift = 0
    for place in range(at, at + LONGEST_NUMBER):
        if place >= len(data):
            break
        byte = data[place]
        value |= (byte & (CONTINUED - 1)) << shift
        if byte < CONTINUED:
            return value, place + 1
        shift += 7
    raise DamagedError("a number does not end")


def signed(value: int) -> int:
    """Decode a zigzag number, whose sign is in the lowest bit."""
    return (value >> 1) ^ -(value & 1)


def head(data: bytes, at: int, last: int) -> tuple[int, int, int]:
    """Read a field header. Returns the type, 0 at the end of the struct, the field number, and the header's end."""
    if at >= len(data):
        raise DamagedError("a struct does not end")
    byte = data[at]
    if byte >> 4 or not byte:
        return byte & 15, last + (byte >> 4), at + 1
    value, at = varint(data, at + 1)
    return byte & 15, signed(value), at


def list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """Read a list header. Returns the element type, the length, and the header's end."""
    if at >= len(data):
        raise DamagedError("a list does not end")
    byte, at = data[at], at + 1
    size = byte >> 4
    if size == 15:
        size, at = varint(data, at)
    if size > len(data) - at:
        raise DamagedError("a list is longer than its data")
    return byte & 15, size, at


def struct(data: bytes, at: int, depth: int = 0) -> tuple[Struct, int]:
    """Read a struct. Returns its fields by number and its end."""
    found: Struct = {}
    kind, number, at = head(data, at, 0)
    while kind:
        found[number], at = value(data, at, kind, depth + 1)
        kind, number, at = head(data, at, number)
    return found, at


def value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """Read a field's value. Returns the value and its end."""
    if depth > _DEEPEST:
        raise DamagedError("structs lie too deep in each other")
    match kind:
        case 1 | 2:
            return kind == TRUE, at
        case 4 | 5 | 6:
            number, at = varint(data, at)
            return signed(number), at
        case 8:
            return _binary(data, at)
        case 9 | 10:
            return _elements(data, at, depth)
        case 11:
            return _map(data, at, depth)
        case 12:
            return struct(data, at, depth)
        case 3 | 7 | 13:
            return _bytes(data, at, _WIDTHS[kind])
        case _:
            raise DamagedError("a field has no type that there is")


def _bytes(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if size > len(data) - at:
        raise DamagedError("a value is longer than its data")
    return data[at : at + size], at + size


def _binary(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = varint(data, at)
    return _bytes(data, at, size)


def _elements(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    kind, size, at = list_head(data, at)
    found = []
    for _ in range(size):
        item, at = element(data, at, kind, depth)
        found.append(item)
    return found, at


def element(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """Read an element of a list; booleans take a byte there."""
    return _bytes(data, at, 1) if kind in (TRUE, FALSE) else value(data, at, kind, depth + 1)


def _map(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    size, at = varint(data, at)
    if size > len(data) - at:
        raise DamagedError("a map is longer than its data")
    if not size:
        return [], at
    if at >= len(data):
        raise DamagedError("a map does not end")
    kinds, at = (data[at] >> 4, data[at] & 15), at + 1
    found = []
    for _ in range(size):
        for kind in kinds:
            item, at = element(data, at, kind, depth)
            found.append(item)
    return found, at
