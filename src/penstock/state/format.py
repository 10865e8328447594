"""The bytes of a saved state.

    file     ::= manifest chunk*                      the chunks in the order in which the manifest lists them
    manifest ::= magic · version · length · JSON · SHA-256 of all before
    JSON     ::= {"query": {what: how}, "chunks": [[name, length, SHA-256], …]}
    chunk    ::= an Arrow IPC stream                  of one table's rows (or some of them), plain or packed

The manifest's checksum covers the checksums of all chunks, and so the whole. No bytes reach Arrow before their checksum
matches. Checksums detect damage, not an attacker who can write them too: code from such a file is never run, since
Arrow holds data only, but the query continues from the attacker's data.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from penstock.errors import StateError
from penstock.runtime.buffers import room, to_arrow, values_view

# Increase it whenever the saved form of the same state changes, including the form of a stage's rows.
STATE_VERSION = 3

_MAGIC = b"PENSTOCK\x00STATE\r\n\n"
_HEAD = struct.Struct(f"<{len(_MAGIC)}sIQ")
_DIGEST = hashlib.sha256().digest_size

INSTEAD = "continue from an older copy, or start the query again"


@dataclass(frozen=True)
class Manifest:
    """The query a state belongs to, and the length and checksum of each chunk, in order."""

    query: Mapping[str, str]
    chunks: Mapping[str, tuple[int, str]]

    @staticmethod
    def of(query: Mapping[str, str], chunks: Mapping[str, bytes]) -> Manifest:
        return Manifest(query, {name: (len(data), _digest(data)) for name, data in sorted(chunks.items())})

    def encode(self) -> bytes:
        listed = [[name, length, digest] for name, (length, digest) in self.chunks.items()]
        body = json.dumps({"query": dict(self.query), "chunks": listed}).encode()
        head = _HEAD.pack(_MAGIC, STATE_VERSION, len(body)) + body
        return head + hashlib.sha256(head).digest()

    def check(self, name: str, data: bytes, where: str) -> None:
        """Refuse a chunk that differs from the listed one."""
        if (len(data), _digest(data)) != self.chunks[name]:
            raise StateError(f"{where} is damaged: the checksum of chunk {name!r} does not match; {INSTEAD}")


def encode_file(query: Mapping[str, str], chunks: Mapping[str, bytes]) -> bytes:
    """Concatenate a manifest and its chunks."""
    manifest = Manifest.of(query, chunks)
    return manifest.encode() + b"".join(chunks[name] for name in manifest.chunks)


def decode_file(data: bytes, where: str) -> tuple[Mapping[str, str], dict[str, bytes]]:
    """Read the query and the chunks of a file; `where` names it in errors."""
    manifest, begin = decode_manifest(data, where)
    chunks = {}
    for name, (length, _) in manifest.chunks.items():
        chunks[name] = data[begin : begin + length]
        manifest.check(name, chunks[name], where)
        begin += length
    if begin != len(data):
        raise StateError(f"{where} is damaged: there is more behind its end; {INSTEAD}")
    return manifest.query, chunks


def decode_manifest(data: bytes, where: str) -> tuple[Manifest, int]:
    """Read the manifest at the start of the data; return it and its end."""
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        raise StateError(f"{where} is not a saved state, or is cut short; {INSTEAD}")
    _, version, length = _HEAD.unpack_from(data)
    if version != STATE_VERSION:
        raise StateError(
            f"{where} has version {version} of the format, and this Penstock reads version {STATE_VERSION}; "
            "use the Penstock that saved it, or start the query again"
        )
    end = _HEAD.size + length
    if hashlib.sha256(data[:end]).digest() != data[end : end + _DIGEST]:
        raise StateError(
            f"{where} is damaged or cut short: the checksum of its manifest does not match; {INSTEAD}"
        )
    return _parsed(data[_HEAD.size : end], where), end + _DIGEST


def _parsed(body: bytes, where: str) -> Manifest:
    try:
        found = json.loads(body)
        query = {str(what): str(how) for what, how in found["query"].items()}
        chunks = {str(name): (int(length), str(digest)) for name, length, digest in found["chunks"]}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise StateError(f"{where} has no readable manifest; {INSTEAD}") from None
    return Manifest(query, chunks)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --- chunks -------------------------------------------------------------------------------------------------


def encode_table(table: pa.Table, compression: str | None = None) -> bytes:
    """Write rows as an Arrow IPC stream, plain or with compressed buffers; `decode_table` reads both."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def decode_table(data: bytes, what: str) -> pa.Table:
    """Read an Arrow IPC stream and validate every value."""
    try:
        with pa.ipc.open_stream(data) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError):
        raise StateError(f"{what} holds no well-formed Arrow stream; {INSTEAD}") from None
    return table


# --- Pack tables for the exchange between tasks, quickly: integers in as many bits as they need.
#
#     pane  5 5 5 5 6 6 6   →   runs: 5 up to row 4, 6 up to row 7
#     key   900 … 1100      →   900, and the distances from it in 8 bits
#
# A compressor saves less on such columns, and takes ten times as long. Tables with other columns are compressed.

# Between two tasks the JVM copies a payload about ten times, one value at a time, so smaller payloads arrive sooner.
COMPRESSION = "lz4"

ROWS_WORTH_PACKING = 1 << 12  # rows from which packing each column is faster than compressing the table

_SCHEMA, _BASES = b"penstock schema", b"penstock bases"
_PAIR = 16  # bytes of a 128-bit integer, which is packed as two 64-bit columns
_RUN = 16  # minimum average length of runs for run-length encoding …
_LOOKED_AT = 1 << 12  # … in the first rows of a column; the whole column is scanned only then
_NARROW = (np.uint8, np.uint16, np.uint32)


def pack(table: pa.Table, compression: str | None = COMPRESSION) -> bytes:
    """Write a table for `unpack`. A table that cannot be packed is written with `compression`."""
    whole = table.combine_chunks()
    columns = [column.chunk(0) for column in whole.columns if column.num_chunks == 1]
    few = table.num_rows < ROWS_WORTH_PACKING or len(columns) < table.num_columns
    if few or not columns or not all(map(_packable, columns)):
        return encode_table(table, compression)
    made = [_packed(partition) for column in columns for partition in _partitions(column)]
    about = {
        _SCHEMA: whole.schema.remove_metadata().serialize().to_pybytes(),
        _BASES: json.dumps([base for _, base in made]).encode(),
    }
    arrays = [array for array, _ in made]
    fields = [pa.field(str(place), array.type) for place, array in enumerate(arrays)]
    return encode_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields, about)))


def unpack(data: bytes, what: str) -> pa.Table:
    """Read the bytes that `pack` wrote; `what` names them in errors."""
    table = decode_table(data, what)
    about = table.schema.metadata or {}
    if _SCHEMA not in about:
        return table
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(about[_SCHEMA]))
        bases = [int(base) for base in json.loads(about[_BASES])]
        partitions = [
            _unpacked(column.chunk(0), base) for column, base in zip(table.columns, bases, strict=True)
        ]
        return pa.Table.from_arrays(list(_columns(partitions, schema)), schema=schema)
    except (pa.ArrowException, ValueError, TypeError, KeyError, IndexError, OverflowError):
        raise StateError(f"{what} is not what a task packs") from None


def _packable(column: pa.Array) -> bool:
    """Whether a column is non-empty, has no nulls, and holds integers of at most 64 bits or of 128."""
    kind = column.type
    whole = pa.types.is_integer(kind) or pa.types.is_temporal(kind) or kind == pa.binary(_PAIR)
    return bool(whole and not pa.types.is_interval(kind) and len(column) and not column.null_count)


def _partitions(column: pa.Array) -> Iterator[np.ndarray]:
    """Yield a column as 64-bit integers: a 128-bit column as two."""
    if column.type != pa.binary(_PAIR):
        yield values_view(column).astype(np.int64, copy=False)
        return
    pairs = np.frombuffer(column.buffers()[1], np.int64, 2 * len(column), _PAIR * column.offset)
    yield from (pairs[half::2] for half in range(2))


def _columns(partitions: Sequence[np.ndarray], schema: pa.Schema) -> Iterator[pa.Array]:
    """Rebuild the columns from 64-bit integer arrays."""
    if len(partitions) != sum(2 if field.type == pa.binary(_PAIR) else 1 for field in schema):
        raise ValueError("not as many partitions as there were")
    given = iter(partitions)
    for field in schema:
        if field.type == pa.binary(_PAIR):
            yield _pairs(next(given), next(given))
        else:
            partition = next(given)
            yield to_arrow(partition.astype(_view_of(field.type), copy=False), None, field.type)


def _view_of(kind: pa.DataType) -> np.dtype:
    return values_view(pa.nulls(1, kind)).dtype


def _pairs(low: np.ndarray, high: np.ndarray) -> pa.Array:
    pairs = room(2 * len(low))
    pairs[0::2], pairs[1::2] = low, high
    return pa.Array.from_buffers(pa.binary(_PAIR), len(low), [None, pa.py_buffer(pairs)])


def _packed(partition: np.ndarray) -> tuple[pa.Array, int]:
    """Encode integers as runs, or as distances from their minimum; return the array and that minimum."""
    begin = partition[:_LOOKED_AT]
    if _RUN * np.count_nonzero(begin[1:] != begin[:-1]) < len(begin):
        last = np.append(np.flatnonzero(partition[1:] != partition[:-1]), len(partition) - 1)
        upto = to_arrow((last + 1).astype(np.int32), None, pa.int32())
        return pa.RunEndEncodedArray.from_arrays(upto, to_arrow(partition[last], None, pa.int64())), 0
    low, high = int(partition.min()), int(partition.max())
    narrow = next((kind for kind in _NARROW if high - low <= np.iinfo(kind).max), None)
    if narrow is None:
        return to_arrow(np.ascontiguousarray(partition), None, pa.int64()), 0
    distances = np.subtract(partition, low, out=room(len(partition), narrow), casting="unsafe")
    return to_arrow(distances, None, pa.from_numpy_dtype(narrow)), low


def _unpacked(array: pa.Array, base: int) -> np.ndarray:
    if pa.types.is_run_end_encoded(array.type):
        # The last run end may lie beyond the end of the array.
        lengths = np.diff(np.minimum(values_view(array.run_ends), len(array)), prepend=0)
        return np.repeat(values_view(array.values), lengths)
    if array.type == pa.int64():
        return values_view(array)
    partition: np.ndarray = np.add(values_view(array), np.int64(base), out=room(len(array)))
    return partition
