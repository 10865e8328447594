"""Check Parquet footers before Arrow reads them: some requests about a damaged footer terminate the process.

Arrow's Python layer does not catch the C++ exceptions of these: a row group with fewer column chunks than the schema has
leaves, chunks that are encrypted or of another type than in the schema, statistics shorter than a value of their type,
size statistics for other levels than the schema's, and unknown codecs. Lists that claim more elements than there are
bytes exhaust memory; deeply nested groups exhaust the stack.

Column chunks of one type differ mostly in their numbers. A chunk that was checked field by field is therefore generalised
to a regular expression, which accepts only equally valid chunks, in a tenth of the time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from penstock.caches import CACHES, BoundedTable
from penstock.sources.thrift import (
    BINARY,
    I16,
    I32,
    I64,
    LIST,
    LONGEST_NUMBER,
    SET,
    STRUCT,
    DamagedError,
    Struct,
    element,
    head,
    list_head,
    struct,
    value,
    varint,
)

# Field numbers and enum values of parquet.thrift.
_SCHEMA, _GROUPS = 2, 4
_TYPE, _LENGTH, _REPETITION, _CHILDREN = 1, 2, 3, 5
_OPTIONAL, _REPEATED = 1, 2
_COLUMNS, _ROWS = 1, 3
_ABOUT, _CRYPTO, _ENCRYPTED = 3, 8, 9
_CODEC, _CODECS = 4, range(8)
_STATISTICS, _BOUNDS = 12, (1, 2, 5, 6)
_SIZES, _TEXT_BYTES, _REPEATS, _OPTIONS = 16, 1, 2, 3
_BYTES, _FIXED = 6, 7
TYPE_NAMES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8, _BYTES: 0}

_DEEPEST = 64  # nesting depth of groups in a schema
_MOST_SHAPES = 8  # patterns per type
_WORTH = 8  # chunks checked field by field before a pattern is built, which costs as much as checking dozens of them
_LONGEST_CHUNK = 1024  # bytes of the longest chunk that becomes a pattern
_LONGEST_TEXT = 64  # bytes of a name or a text bound in a pattern
_NUMBERS = (I16, I32, I64)
_NUMBER = rb"[\x80-\xff]{0,%d}+[\x00-\x7f]" % (LONGEST_NUMBER - 1)
_TEXT = rb"(?:" + b"|".join(rb"\x%02x.{%d}" % (size, size) for size in range(_LONGEST_TEXT + 1)) + rb")"


@dataclass(frozen=True, slots=True)
class LeafColumn:
    """A leaf column of the schema: its type, the width of a value in bytes, 0 if it varies, and its levels.

    Levels count the `repeated` and `optional` nodes on the path, including the leaf.
    """

    type: int
    width: int
    repeated: int
    optional: int

    @property
    def name(self) -> str:
        """Return Arrow's name of the type."""
        return TYPE_NAMES[self.type]


@dataclass(slots=True)
class Shapes:
    """Patterns of valid column chunks of a type, newest first, and the number of chunks that matched none."""

    patterns: tuple[re.Pattern[bytes], ...] = ()
    strange: int = 0

    def learn(self, pattern: bytes) -> None:
        # Replace the tuple: other threads iterate over the old one.
        self.patterns = (re.compile(pattern, re.DOTALL), *self.patterns[: _MOST_SHAPES - 1])
        self.strange = 0


# By the digests of valid footers: planning and reading check the same ones.
_GOOD: BoundedTable[bytes, tuple[LeafColumn, ...]] = CACHES.table(most=4096)


def checked_footer(data: bytes) -> tuple[LeafColumn, ...]:
    """Check a footer, unless it is known to be valid."""
    digest = blake2b(data, digest_size=16).digest()
    found = _GOOD.get(digest)
    return _GOOD.keep(digest, check_footer(data)) if found is None else found


def check_footer(data: bytes) -> tuple[LeafColumn, ...]:
    """Raise `DamagedError` if Arrow cannot safely process a footer; return the leaf columns of its schema."""
    leaves: tuple[LeafColumn, ...] | None = None
    seen: set[int] = set()
    kind, number, at = head(data, 0, 0)
    while kind:
        if number in seen:
            raise DamagedError("a field comes twice")
        seen.add(number)
        if number == _SCHEMA:
            leaves, at = _schema(data, at, kind)
        elif number == _GROUPS:
            at = _row_groups(data, at, kind, leaves)
        else:
            _, at = value(data, at, kind, 1)
        kind, number, at = head(data, at, number)
    if leaves is None or _GROUPS not in seen:
        raise DamagedError("there is no schema, or there are no row groups")
    return leaves


# --- the schema -----------------------------------------------------------------------------------------


def _schema(data: bytes, at: int, kind: int) -> tuple[tuple[LeafColumn, ...], int]:
    elements, at = value(data, at, kind, 1)
    if kind != LIST or not elements or not all(isinstance(item, dict) for item in elements):
        raise DamagedError("the schema is no list of columns")
    return tuple(_leaf(level, *levels) for level, levels in _levels(elements)), at


def _levels(elements: Sequence[Struct]) -> Iterator[tuple[Struct, tuple[int, int]]]:
    """Walk a tree given by its nodes in depth-first order, and compute the levels of its leaves."""
    open_groups = [(1, 0, 0)]  # remaining nodes, and the levels so far
    for item in elements:
        while open_groups and not open_groups[-1][0]:
            open_groups.pop()
        if not open_groups or len(open_groups) > _DEEPEST:
            raise DamagedError("the schema is no tree, or groups lie too deep in each other")
        left, repeated, optional = open_groups.pop()
        open_groups.append((left - 1, repeated, optional))
        kind = item.get(_REPETITION, 0) if len(open_groups) > 1 else 0  # the root has none
        inside = repeated + (kind == _REPEATED), optional + (kind in (_OPTIONAL, _REPEATED))
        children = _count(item)
        open_groups.append((children, *inside))
        if not children and len(open_groups) > 2:
            yield item, inside
    if any(left for left, _, _ in open_groups):
        raise DamagedError("columns of the schema are missing")


def _count(element: Struct) -> int:
    """Return the number of children of a group; 0 for a leaf."""
    count = element.get(_CHILDREN, 0)
    if not isinstance(count, int) or count < 0:
        raise DamagedError("a group has no number of columns")
    return count


def _leaf(element: Struct, repeated: int, optional: int) -> LeafColumn:
    kind, length = element.get(_TYPE), element.get(_LENGTH, 0)
    if kind == _FIXED and isinstance(length, int) and length > 0:
        return LeafColumn(_FIXED, length, repeated, optional)
    if not isinstance(kind, int) or kind not in _WIDTHS:
        raise DamagedError("a column has no type that there is")
    return LeafColumn(kind, _WIDTHS[kind], repeated, optional)


# --- row groups -----------------------------------------------------------------------------------------


def _row_groups(data: bytes, at: int, kind: int, leaves: Sequence[LeafColumn] | None) -> int:
    elements, size, at = list_head(data, at)
    if kind != LIST or leaves is None or (size and elements != STRUCT):
        raise DamagedError("row groups do not follow the schema")
    shapes = [_shapes(leaf) for leaf in leaves]
    for _ in range(size):
        at = _row_group(data, at, leaves, shapes)
    return at


def _row_group(data: bytes, at: int, leaves: Sequence[LeafColumn], shapes: Sequence[Shapes]) -> int:
    """Check a row group, and return the offset of its end."""
    seen: dict[int, int] = {}
    kind, number, at = head(data, at, 0)
    while kind:
        if number in seen:
            raise DamagedError("a field of a row group comes twice")
        seen[number] = kind
        if number == _COLUMNS:
            at = _chunks(data, at, leaves, shapes)
        else:
            _, at = value(data, at, kind, 2)
        kind, number, at = head(data, at, number)
    if seen.get(_COLUMNS) != LIST or seen.get(_ROWS) != I64:
        raise DamagedError("a row group has no columns, or no number of rows")
    return at


def _chunks(data: bytes, at: int, leaves: Sequence[LeafColumn], shapes: Sequence[Shapes]) -> int:
    kind, size, at = list_head(data, at)
    if size != len(leaves) or (size and kind != STRUCT):
        raise DamagedError("a row group has other columns than the schema")
    for leaf, known in zip(leaves, shapes, strict=True):
        for shape in known.patterns:
            if found := shape.match(data, at):
                at = found.end()
                break
        else:
            at = _chunk(data, at, leaf, known)
    return at


def _chunk(data: bytes, at: int, leaf: LeafColumn, known: Shapes) -> int:
    """Check a column chunk field by field, and build its pattern."""
    found, end = struct(data, at, 3)
    about = found.get(_ABOUT)
    if _CRYPTO in found or _ENCRYPTED in found:
        raise DamagedError("a column is encrypted, which this version cannot read; write it unencrypted")
    if not isinstance(about, dict) or about.get(_TYPE) != leaf.type:
        raise DamagedError("a column has another type than the schema says")
    if about.get(_CODEC) not in _CODECS:
        raise DamagedError("a column is compressed in no way that there is")
    _check_statistics(about.get(_STATISTICS, {}), leaf)
    _check_sizes(about.get(_SIZES, {}), leaf)
    known.strange += 1
    if known.strange >= _WORTH and end - at <= _LONGEST_CHUNK:
        known.learn(_pattern(data, at, leaf, ())[0])
    return end


def _check_statistics(reported: object, leaf: LeafColumn) -> None:
    if not isinstance(reported, dict):
        raise DamagedError("a column has no statistics where they should be")
    for bound in (reported[number] for number in _BOUNDS if number in reported):
        if not isinstance(bound, bytes) or len(bound) < leaf.width:
            raise DamagedError("a statistic is shorter than a value of its column")


def _check_sizes(reported: object, leaf: LeafColumn) -> None:
    """Check size statistics: levels are counted for each level of the column or not at all, text bytes for texts only."""
    if not isinstance(reported, dict) or (_TEXT_BYTES in reported and leaf.type != _BYTES):
        raise DamagedError("a column has no sizes where they should be")
    for number, levels in ((_REPEATS, leaf.repeated), (_OPTIONS, leaf.optional)):
        counts = reported.get(number, [])
        if not isinstance(counts, list) or len(counts) not in (0, levels + 1):
            raise DamagedError("a column has sizes of other levels than the schema says")


# --- patterns of column chunks ------------------------------------------------------------------------------


@CACHES.results(most=256)
def _shapes(leaf: LeafColumn) -> Shapes:
    """Return the patterns of a column type, shared by all files: few programs write them."""
    return Shapes()


def _pattern(data: bytes, at: int, leaf: LeafColumn, path: tuple[int, ...]) -> tuple[bytes, int]:
    """Build the pattern of a valid struct. Numbers vary except type and codec; texts vary, but bounds of fixed width keep their length."""
    parts: list[bytes] = []
    kind, number, after = head(data, at, 0)
    while kind:
        parts.append(re.escape(data[at:after]) if kind > 2 else b"[%s]" % _either(data[at]))
        part, at = _value_pattern(data, after, kind, leaf, (*path, number))
        parts.append(part)
        kind, number, after = head(data, at, number)
    return b"".join([*parts, rb"\x00"]), after


def _either(byte: int) -> bytes:
    """Match both booleans: a boolean is stored in the header of its field."""
    return rb"\x%02x\x%02x" % (byte & 0xF0 | 1, byte & 0xF0 | 2)


def _value_pattern(
    data: bytes, at: int, kind: int, leaf: LeafColumn, path: tuple[int, ...]
) -> tuple[bytes, int]:
    if kind == STRUCT:
        return _pattern(data, at, leaf, path)
    if kind in (LIST, SET):
        return _list_pattern(data, at, leaf, path)
    _, end = value(data, at, kind, len(path))
    if kind in _NUMBERS and path not in ((_ABOUT, _TYPE), (_ABOUT, _CODEC)):
        return _NUMBER, end
    if kind == BINARY:
        begin = varint(data, at)[1]
        bound = path[:-1] == (_ABOUT, _STATISTICS) and leaf.width
        long = end - begin > _LONGEST_TEXT
        return (re.escape(data[at:begin]) + b".{%d}" % (end - begin) if bound or long else _TEXT), end
    return re.escape(data[at:end]), end


def _list_pattern(data: bytes, at: int, leaf: LeafColumn, path: tuple[int, ...]) -> tuple[bytes, int]:
    kind, size, after = list_head(data, at)
    parts = [re.escape(data[at:after])]
    at = after
    for _ in range(size):
        if kind <= 2:
            part, at = b".", element(data, at, kind, len(path))[1]
        else:
            part, at = _value_pattern(data, at, kind, leaf, path)
        parts.append(part)
    return b"".join(parts), at
