"""The state of an open query as a value: save, load, compare, and store it in chunks."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.atomic_write import replace_file
from penstock.errors import StateError
from penstock.state.chunks import MOST_CHUNK_BYTES, cut, require_same
from penstock.state.format import INSTEAD, Manifest, decode_file, decode_manifest, encode_file, pack, unpack
from penstock.state.state_table import StateTable
from penstock.storage.access import Access
from penstock.storage.uri import resolved

MANIFEST = "manifest"


@dataclass(frozen=True)
class StateChanges:
    """The difference between two states for a store: chunks to write, names of chunks to delete."""

    written: Mapping[str, bytes]
    deleted: frozenset[str]


class State:
    """The state of an open query, as a value that outlives the process.

    `live.state()` returns it; `query.open(state=)` and `query.run(..., state=)` continue from it. It belongs to one
    query: a query that differs, or reads other columns, refuses it with a `StateError`.

    >>> import pyarrow as pa, penstock as pk
    >>> events = pk.stream("events", {"t": "int64", "v": "int64"}, time="t")
    >>> totals = events.window(10).agg(total=pk.sum("v"))
    >>> with totals.open() as live:
    ...     _ = live.push(pa.record_batch({"t": [1, 2], "v": [3, 4]}))
    ...     state = live.state()
    >>> with totals.open(state=state) as live:
    ...     late = live.push(pa.record_batch({"t": [3, 12], "v": [5, 6]}))
    >>> late[0]["total"].to_pylist()
    [12]
    """

    def __init__(self, query: Mapping[str, str], chunks: Mapping[str, bytes]) -> None:
        """`query` identifies the query the state belongs to: an identity for each part, by name."""
        if not isinstance(query, Mapping) or not isinstance(chunks, Mapping):
            raise StateError("a pk.State is made by live.state(), State.load(path) or State.from_bytes(data)")
        self._query, self._chunks = dict(query), dict(chunks)

    @staticmethod
    def of(query: Mapping[str, str], kept: Mapping[str, StateTable], most: int = MOST_CHUNK_BYTES) -> State:
        """Build a state from state tables by name, in chunks of at most `most` bytes."""
        chunks = {
            f"{name}:{bits}" if bits else name: pack(part, None)
            for name, table in kept.items()
            for bits, part in cut(table, most).items()
        }
        return State(query, chunks)

    def tables(self, query: Mapping[str, str]) -> dict[str, pa.Table]:
        """Return the rows of every table; `StateError` unless the state belongs to this query."""
        require_same(self._query, query)
        parts: dict[str, list[pa.Table]] = {}
        for name, data in self._chunks.items():
            parts.setdefault(name.partition(":")[0], []).append(unpack(data, f"chunk {name!r}"))
        try:
            return {name: pa.concat_tables(several).combine_chunks() for name, several in parts.items()}
        except pa.ArrowException:
            raise StateError(
                "the chunks of the saved state do not have the same columns; pass all chunks of one save, and no others"
            ) from None

    @property
    def query(self) -> dict[str, str]:
        """The identity of the query that the state belongs to. `state.tables(state.query)` reads the state without the query."""
        return dict(self._query)

    # Bytes and files

    def to_bytes(self) -> bytes:
        """Return the whole state as bytes: the content of a file."""
        return encode_file(self._query, self._chunks)

    @staticmethod
    def from_bytes(data: bytes, where: str = "the saved state") -> State:
        """Read the bytes that `to_bytes` returned; `StateError` if a single bit has changed."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise StateError(
                f"a state is read from bytes, as to_bytes gave them, not from a {type(data).__name__}"
            )
        return State(*decode_file(bytes(data), where))

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, object] | None = None,
        filesystem: object = None,
    ) -> None:
        """Write a file atomically, readable by its owner only: after a crash it is the old file or the new one.

        The path may be a URI of an object store, with `storage_options=` or `filesystem=` as in `scan`.
        """
        access = Access.of(storage_options, filesystem)
        target = _named(path)
        try:
            data = self.to_bytes()
            if access.reaches(target):
                access.write(target, data)
            else:
                replace_file(Path(target), lambda file: file.write(data), lasting=True)
        except (OSError, ValueError) as error:
            raise StateError(f"cannot save the state to {target!r}: {_reason(error)}") from None

    @staticmethod
    def load(
        path: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, object] | None = None,
        filesystem: object = None,
    ) -> State:
        """Read a file that `save` wrote."""
        access = Access.of(storage_options, filesystem)
        source = _named(path)
        try:
            data = access.read(source) if access.reaches(source) else _content(Path(source))
        except (OSError, ValueError) as error:
            raise StateError(f"cannot read a state from {str(path)!r}: {_reason(error)}") from None
        return State.from_bytes(data, f"the state in {str(path)!r}")

    # Chunks

    def chunks(self) -> dict[str, bytes]:
        """Return the state in chunks of about 1 MB at most, by name; one of them, the manifest, lists the others.

        Each key's rows are in one chunk, so a store that saves chunks separately rewrites only those that changed.
        """
        return {MANIFEST: Manifest.of(self._query, self._chunks).encode(), **self._chunks}

    @staticmethod
    def from_chunks(chunks: Mapping[str, bytes], where: str = "the saved state") -> State:
        """Build a state from its chunks; `StateError` unless exactly the listed chunks are given."""
        if not isinstance(chunks, Mapping):
            raise StateError(
                f"a state is put together from a mapping, as chunks() gave it, not from a {type(chunks).__name__}"
            )
        if MANIFEST not in chunks:
            raise StateError(f"{where} has no manifest; {INSTEAD}")
        manifest, end = decode_manifest(chunks[MANIFEST], where)
        given = {name: data for name, data in chunks.items() if name != MANIFEST}
        if end != len(chunks[MANIFEST]) or given.keys() != manifest.chunks.keys():
            raise StateError(
                f"{where} is not whole: its chunks are not those that its manifest lists; {INSTEAD}"
            )
        for name, data in given.items():
            manifest.check(name, data, where)
        return State(manifest.query, given)

    def changes(self, since: State | None = None) -> StateChanges:
        """Return the changes since an earlier state, as chunks to write and names to delete.

        >>> state = State({}, {"w1/cells": b"new", "in0/marks": b"same"})
        >>> changed = state.changes(State({}, {"in0/marks": b"same", "w1/rows": b"old"}))
        >>> sorted(changed.written), sorted(changed.deleted)
        (['manifest', 'w1/cells'], ['w1/rows'])
        """
        if not isinstance(since, State | None):
            raise StateError(f"changes takes an earlier pk.State, not a {type(since).__name__}")
        new, old = self.chunks(), {} if since is None else since.chunks()
        written = {name: data for name, data in new.items() if old.get(name) != data}
        return StateChanges(written, frozenset(old) - frozenset(new))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self.chunks() == other.chunks()

    def __hash__(self) -> int:
        return hash(self.chunks()[MANIFEST])

    def __repr__(self) -> str:
        size = sum(map(len, self._chunks.values()))
        return f"<State of {len(self._chunks)} chunks, {size} bytes>"


def _named(path: object) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise StateError(
            f"a state is kept in a file named by a string or path, not by a {type(path).__name__}"
        )
    return resolved(os.fspath(path))


def _content(path: Path) -> bytes:
    """Read a file. Anything else is refused before it is opened: reading a pipe or a device may never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is not a regular file")
    return path.read_bytes()


def _reason(error: OSError | ValueError) -> str:
    """The reason why a file cannot be accessed; an invalid file name raises ValueError."""
    return str(getattr(error, "strerror", None) or error)
