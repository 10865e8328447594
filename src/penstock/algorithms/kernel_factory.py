"""The kernel factory: builds kernels and compiles each once with a back end."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import TypeVar

import pyarrow as pa

from penstock.algorithms.expressions.host_columns import HostColumns, Use
from penstock.algorithms.hash_table.number_keys import index_kernel
from penstock.algorithms.hash_table.text_kernels import intern_kernel
from penstock.loop.nodes import I32, I64, Kernel
from penstock.runtime.column_addresses import Reader
from penstock.runtime.implied_times import implied_times
from penstock.runtime.kernels import Call, KernelCall, TextKernels
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

    def _intern(self, large: bool, nullable: bool) -> Call:
        return self.call(("intern", large, nullable), lambda: intern_kernel(I64 if large else I32, nullable))


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
    from penstock.algorithms.expressions.arrow_compute import host_function  # noqa: PLC0415

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
