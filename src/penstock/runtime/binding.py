"""Fill a kernel's column parameters from a batch, without copying."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import ref

import numpy as np
import pyarrow as pa

from penstock.loop.abi import Binding
from penstock.runtime.buffers import values_view
from penstock.runtime.interner import Interner

_NOTHING = np.zeros(64, np.uint8)


@dataclass(slots=True, weakref_slot=True)
class Known:
    """What has been found out about a batch, for as long as it lives: over data in memory, every run is given the same ones.

    Views of its columns, which of them hold nulls, and of some the first and the last value, and the least and largest of the
    first ones: guesses, for whoever made the data may write to it.
    """

    batch: ref[pa.RecordBatch]
    columns: dict[str, pa.Array] = field(default_factory=dict)
    values: dict[str, np.ndarray] = field(default_factory=dict)
    ends: dict[str, tuple[int, int]] = field(default_factory=dict)
    ranges: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    nulls: dict[tuple[str, ...], frozenset[str]] = field(default_factory=dict)

    def column(self, name: str) -> pa.Array:
        found = self.columns.get(name)
        if found is None:
            batch = self.batch()
            assert batch is not None, "a batch that somebody asks about is held by them"
            found = self.columns[name] = batch.column(name)
        return found


_KNOWN: dict[int, Known] = {}


def known(batch: pa.RecordBatch) -> Known:
    """What has been found out about a batch so far."""
    place = id(batch)
    found = _KNOWN.get(place)
    if found is None or found.batch() is not batch:
        found = _KNOWN[place] = Known(ref(batch, lambda _: _KNOWN.pop(place, None)))
    return found


class BatchArguments:
    """The arguments a batch gives to kernels; what is derived (codes, bitmaps) is derived once."""

    def __init__(self, batch: pa.RecordBatch, interners: Mapping[str, Interner]) -> None:
        self.batch = batch
        self._interners = interners
        self.known = known(batch)
        self._codes: dict[str, np.ndarray] = {}
        self._filled: dict[tuple[Binding, ...], dict[str, object]] = {}

    def fill(self, bindings: tuple[Binding, ...]) -> dict[str, object]:
        """Give an argument for each binding; where texts are numbered, numbers may grow from call to call."""
        if self._interners:
            return {binding.parameter: self._fill(binding) for binding in bindings}
        found = self._filled.get(bindings)
        if found is None:
            found = self._filled[bindings] = {each.parameter: self._fill(each) for each in bindings}
        return found

    def _fill(self, binding: Binding) -> object:
        column, text = binding.column, binding.text
        if binding.role == "values":
            return self.values(column)
        array = self.column(column)
        match binding.role:
            case "bits":
                return _bytes(array.buffers()[1])
            case "validity":
                return _validity(array)
            case "shift":
                return array.offset
            case "offsets":
                return _offsets(array)
            case "bytes":
                return _padded(_bytes(array.buffers()[2]))
            case "size":
                return len(_padded(_bytes(array.buffers()[2])))
            case "codes":
                return self.codes(column)
            case "text_offsets" | "text":
                self.codes(column)  # interning may move the arena
                return self._interners[column].arena(binding.role)
            case "literal":
                assert text is not None
                return np.frombuffer(text.encode() or b"\0", np.uint8)
            case "code":
                assert text is not None
                self.codes(
                    column
                )  # the column's texts first: then a dictionary's numbers are likely its codes
                return self._interners[column].code_of(text)
        raise AssertionError(f"unknown role {binding.role}")

    def codes(self, column: str) -> np.ndarray:
        found = self._codes.get(column)
        if found is None:
            found = self._codes[column] = self._interners[column].encode(self.column(column))
        return found

    def column(self, name: str) -> pa.Array:
        return self.known.column(name)

    def values(self, name: str) -> np.ndarray:
        """A view of the values of a fixed-width column."""
        found = self.known.values.get(name)
        if found is None:
            found = self.known.values[name] = values_view(self.column(name))
        return found

    def with_nulls(self, names: tuple[str, ...]) -> frozenset[str]:
        """Which of some columns hold nulls: Arrow, too, counts them once."""
        found = self.known.nulls.get(names)
        if found is None:
            found = frozenset(name for name in names if self.column(name).null_count)
            self.known.nulls[names] = found
        return found

    def ends(self, name: str) -> tuple[int, int]:
        """The first and the last value of a column of whole numbers that has any, as they were when somebody first asked."""
        found = self.known.ends.get(name)
        if found is None:
            values = self.values(name)
            found = self.known.ends[name] = int(values[0]), int(values[-1])
        return found

    @property
    def ranges(self) -> dict[tuple[str, int], tuple[int, int]]:
        """The least and the largest of so many first values of columns, as far as somebody has looked."""
        return self.known.ranges


def _bytes(buffer: pa.Buffer | None) -> np.ndarray:
    return _NOTHING if buffer is None or len(buffer) == 0 else np.frombuffer(buffer, np.uint8)


def _padded(data: np.ndarray) -> np.ndarray:
    """Kernels read a literal's length at any clamped place: tiny buffers get room for the longest."""
    if len(data) >= len(_NOTHING):
        return data
    larger = np.zeros(len(_NOTHING), np.uint8)
    larger[: len(data)] = data
    return larger


def _validity(array: pa.Array) -> np.ndarray:
    buffer = array.buffers()[0]
    if buffer is None:
        return np.full((array.offset + len(array) + 7) // 8 + 1, 0xFF, np.uint8)
    return np.frombuffer(buffer, np.uint8)


def _offsets(array: pa.Array) -> np.ndarray:
    width = np.dtype(np.int64 if pa.types.is_large_string(array.type) else np.int32)
    buffer = array.buffers()[1]
    if buffer is None or len(buffer) == 0:
        return np.zeros(1, width)
    return np.frombuffer(buffer, width, len(array) + 1, array.offset * width.itemsize)
