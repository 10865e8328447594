"""Build kernels, compile each once with a back end, and bind their column parameters to batches without copying."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from threading import Lock
from typing import TypeVar

import numpy as np
import pyarrow as pa

from penstock.algorithms.expressions.host_columns import HostColumns, Use
from penstock.algorithms.hash_table.kernels import index_kernel
from penstock.algorithms.hash_table.keys import Interner
from penstock.algorithms.hash_table.text_kernels import intern_kernel
from penstock.loop.abi import Binding
from penstock.loop.nodes import I32, I64, Kernel
from penstock.runtime.buffers import Reader, values_view, views_of
from penstock.runtime.kernels import Call, KernelCall, TextKernels
from penstock.runtime.source_stage import implied_times
from penstock.types.time import Time

Backend = Callable[[Kernel], KernelCall]
Prepare = Callable[[pa.RecordBatch, int], pa.RecordBatch]

_Key = TypeVar("_Key", bound=Hashable)
_Made = TypeVar("_Made")


class KernelFactory:
    """A thread-safe factory that builds and compiles each kernel once. `kernels` lists them for `explain`."""

    def __init__(self, backend: Backend, reader: Reader | None = None) -> None:
        """`reader` reads batches natively, if the back end is native."""
        self._backend, self.reader = backend, reader
        self._calls: dict[Hashable, KernelCall] = {}
        self._lock = Lock()
        self._making: dict[Hashable, Lock] = {}
        self.kernels: list[Kernel] = []
        self.texts = TextKernels(self._intern)

    def call(self, key: Hashable, build: Callable[[], Kernel]) -> KernelCall:
        """Return the callable of a kernel. One that is being compiled in the background delays no other."""
        found = self._calls.get(key)
        if found is not None:
            return found
        with self._lock:
            making = self._making.setdefault(key, Lock())
        with making:
            if key not in self._calls:
                kernel = build()
                self.kernels.append(kernel)
                self._calls[key] = self._backend(kernel)
            return self._calls[key]

    def index(self, width: int) -> Call:
        return self.call(("index", width), lambda: index_kernel(width))

    def _intern(self, large: bool, nullable: bool, wide: bool = False) -> Call:
        types = I64 if large else I32, I64 if wide else I32
        return self.call(("intern", *types, nullable), lambda: intern_kernel(types[0], nullable, types[1]))


def once(made: dict[_Key, _Made], key: _Key, make: Callable[[], _Made]) -> _Made:
    """Return the cached value of a key, or create it. Two threads may both create it; the values are equal."""
    found = made.get(key)
    if found is None:
        found = made[key] = make()
    return found


def preparation(host: HostColumns, time: Time, uses: Sequence[Use]) -> Prepare:
    """Return the function that adds host columns. Without host columns, Arrow's functions are not imported."""
    if not host.fields and not host.members:
        return lambda batch, first_row: batch
    from penstock.algorithms.expressions.host_columns import host_function  # noqa: PLC0415

    added = host_function(host.members | host.fields, host.source, uses)
    return _numbered(added, time) if time.implied else lambda batch, first_row: added(batch)


def _numbered(added: Callable[[pa.RecordBatch], pa.RecordBatch], time: Time) -> Prepare:
    """Materialise an implied time as a column while host columns are added; only kernels compute it implicitly."""

    def prepare(batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        if time.column in batch.schema.names:
            return added(batch)
        times = implied_times(time, first_row, batch.num_rows)
        timed = added(batch.append_column(pa.field(time.column, time.type), times))
        return timed.remove_column(batch.num_columns)

    return prepare


_NOTHING = np.zeros(64, np.uint8)


class BatchArguments:
    """The kernel arguments of a batch; codes and bitmaps are derived once."""

    def __init__(self, batch: pa.RecordBatch, interners: Mapping[str, Interner]) -> None:
        self.batch = batch
        self._interners = interners
        self._views = views_of(batch)
        self._codes: dict[str, np.ndarray] = {}
        self._filled: dict[tuple[Binding, ...], dict[str, object]] = {}

    def fill(self, bindings: tuple[Binding, ...]) -> dict[str, object]:
        """An argument for each binding; not cached with interners, because interning may reallocate the buffers."""
        if self._interners:
            return {binding.parameter: self._fill(binding) for binding in bindings}
        found = self._filled.get(bindings)
        if found is None:
            found = self._filled[bindings] = {binding.parameter: self._fill(binding) for binding in bindings}
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
                )  # encode the column first: then a dictionary's indices are likely its codes
                return self._interners[column].code_of(text)
        raise AssertionError(f"unknown role {binding.role}")

    def codes(self, column: str) -> np.ndarray:
        found = self._codes.get(column)
        if found is None:
            found = self._codes[column] = self._interners[column].encode(self.column(column))
        return found

    def column(self, name: str) -> pa.Array:
        found = self._views.columns.get(name)
        if found is None:
            found = self._views.columns[name] = self.batch.column(name)
        return found

    def values(self, name: str) -> np.ndarray:
        """A view of the values of a fixed-width column."""
        found = self._views.values.get(name)
        if found is None:
            found = self._views.values[name] = values_view(self.column(name))
        return found

    def with_nulls(self, names: tuple[str, ...]) -> frozenset[str]:
        """Which of the columns hold nulls."""
        return frozenset([name for name in names if self.column(name).null_count])

    def ends(self, name: str) -> tuple[int, int]:
        """The first and the last value of a non-empty integer column."""
        values = self.values(name)
        return int(values[0]), int(values[-1])


def _bytes(buffer: pa.Buffer | None) -> np.ndarray:
    return _NOTHING if buffer is None or len(buffer) == 0 else np.frombuffer(buffer, np.uint8)


def _padded(data: np.ndarray) -> np.ndarray:
    """Pad tiny buffers to the longest literal: kernels read a literal's length at any clamped offset."""
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
