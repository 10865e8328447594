"""Where kernels are made callable by a back end, each once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import TypeVar

import pyarrow as pa

from penstock.kernels.tables.index import index_kernel
from penstock.kernels.text import intern_kernel
from penstock.loop.nodes import I32, I64, Kernel
from penstock.lower.host import HostColumns, Use
from penstock.runtime.programs import Call, KernelCall, Texts

Backend = Callable[[Kernel], KernelCall]

_Key = TypeVar("_Key", bound=Hashable)
_Made = TypeVar("_Made")


class Workshop:
    """Makes callables of kernels, each once, whichever thread asks first; keeps the kernels to show."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._calls: dict[Hashable, KernelCall] = {}
        self._lock = Lock()
        self.kernels: list[Kernel] = []
        self.texts = Texts(self._intern)

    def call(self, key: Hashable, build: Callable[[], Kernel]) -> KernelCall:
        with self._lock:
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
    """Give what was made for a key before, or make it. (Two threads may both make it: it is the same.)"""
    found = made.get(key)
    if found is None:
        found = made[key] = make()
    return found


def preparation(
    host: HostColumns, schema: pa.Schema, uses: Sequence[Use]
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """The function that adds host columns; most queries have none and need not load Arrow's functions."""
    if not host.fields:
        return lambda batch: batch
    from penstock.lower.arrow_compute import host_function  # noqa: PLC0415

    return host_function(host.fields, schema, uses)
