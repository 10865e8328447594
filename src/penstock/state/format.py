"""The bytes of a saved state.

    file     ::= manifest chunk*                      the chunks in the order in which the manifest lists them
    manifest ::= magic · version · length · JSON · SHA-256 of all before
    JSON     ::= {"query": {what: how}, "chunks": [[name, length, SHA-256], …]}
    chunk    ::= an Arrow IPC stream                  of one table's rows (or some of them), plain or packed (packing.py)

The manifest's checksum covers the checksums of all chunks, and so the whole. No bytes reach Arrow before their checksum
matches. Checksums detect damage, not an attacker who can write them too: code from such a file is never run, since
Arrow holds data only, but the query continues from the attacker's data.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.ipc

from penstock.errors import StateError

# Increase it whenever the saved form of the same state changes, including the form of a stage's rows.
STATE_VERSION = 3

_MAGIC = b"PENSTOCK\x00STATE\r\n\n"
_HEAD = struct.Struct(f"<{len(_MAGIC)}sIQ")
_DIGEST = hashlib.sha256().digest_size

INSTEAD = "go on from an older copy, or start the query anew"


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
            "go on with the Penstock that saved it, or start the query anew"
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
