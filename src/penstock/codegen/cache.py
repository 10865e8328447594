"""Cache of compiled kernels: in memory, and as object files in a private directory (`files.py`).

The key is the kernel's fingerprint, which excludes the literals of the query, and the target machine. The
cache is bounded. Evicted code is freed when the last call to it returns: see `tiers.py`.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from penstock.codegen.files import CODEGEN_VERSION, ObjectFiles
from penstock.codegen.llvm import OptimisationLevel
from penstock.codegen.native import Code, NativeKernel
from penstock.loop.nodes import Kernel
from penstock.loop.show import fingerprint

# --- A map that evicts the least recently used values once it has too many entries or too many bytes.

_Kept = TypeVar("_Kept")


class Bounded(Generic[_Kept]):
    """Values by key, with limits on entries and bytes. Not thread-safe: callers lock it."""

    def __init__(self, entries: int, size: int, bytes_of: Callable[[_Kept], int]) -> None:
        self._entries, self._size, self._bytes_of = entries, size, bytes_of
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: str) -> _Kept | None:
        """Look up a value and mark it as most recently used."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: str, value: _Kept) -> list[_Kept]:
        """Insert a value, even one above the limit by itself; return the values evicted or replaced."""
        left = [self._pop(key)] if key in self._kept else []
        self._kept[key] = value
        self.bytes += self._bytes_of(value)
        while len(self._kept) > 1 and (len(self._kept) > self._entries or self.bytes > self._size):
            left.append(self._pop(next(iter(self._kept))))
        return left

    def clear(self) -> list[_Kept]:
        """Remove all values; return them."""
        left = list(self._kept.values())
        self._kept.clear()
        self.bytes = 0
        return left

    def _pop(self, key: str) -> _Kept:
        value = self._kept.pop(key)
        self.bytes -= self._bytes_of(value)
        return value


# Limits in memory. A loaded kernel takes some 75 KB in addition to its code, and at most two memory maps.
MOST_KERNELS = 512
MOST_CODE_BYTES = 64 << 20

_ENVIRONMENT = "PENSTOCK_CACHE_DIR"

Build = Callable[[Kernel, OptimisationLevel], bytes]


def default_directory(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Choose the directory of object files: PENSTOCK_CACHE_DIR (empty: no files), else the user's cache."""
    chosen = environment.get(_ENVIRONMENT)
    if chosen is not None:
        return Path(chosen) if chosen else None
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "penstock"


def object_key(kernel: Kernel, effort: OptimisationLevel = OptimisationLevel.FULL) -> str:
    """Build the cache key of a kernel's code: fingerprint, target machine, compiler version and level."""
    return _key(fingerprint(kernel), effort)


def _key(name: str, effort: OptimisationLevel) -> str:
    from penstock.codegen.target import host  # noqa: PLC0415 - loads LLVM

    return f"{name} {host()} penstock-{CODEGEN_VERSION} {effort}"


class KernelCache:
    """Compiled kernels by key; thread-safe.

    `directory=None` keeps them in memory only. A directory that is not private is not used: `disabled` then
    gives the reason.
    """

    def __init__(
        self, directory: Path | None = None, kernels: int = MOST_KERNELS, size: int = MOST_CODE_BYTES
    ) -> None:
        self._codes: Bounded[Code] = Bounded(kernels, size, lambda code: len(code.object_code))
        self._offered: Bounded[bytes] = Bounded(kernels, size, len)
        self._compiling: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self.files = None if directory is None else ObjectFiles(directory)

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def directory(self) -> Path | None:
        """The directory of object files, or None."""
        return None if self.files is None else self.files.directory

    @property
    def disabled(self) -> str:
        """The reason why the given directory is not used, or an empty string."""
        return "" if self.files is None else self.files.disabled

    def offer(self, objects: Mapping[str, bytes]) -> None:
        """Add object code by key that a trusted process compiled: the Spark driver of this application."""
        with self._lock:
            for key, code in objects.items():
                self._offered.put(key, code)

    def soonest(self, kernel: Kernel, build: Build) -> NativeKernel:
        """Return the FULL kernel if it is in memory or on disk, else one compiled at the QUICK level."""
        name = fingerprint(kernel)  # costs a tenth of compiling at the QUICK level
        code = self._find(_key(name, OptimisationLevel.FULL))
        return NativeKernel(
            kernel,
            code or self._get(_key(name, OptimisationLevel.QUICK), kernel, build, OptimisationLevel.QUICK),
        )

    def get(
        self, kernel: Kernel, build: Build, effort: OptimisationLevel = OptimisationLevel.FULL
    ) -> NativeKernel:
        """Return the compiled kernel; call `build` only on a cache miss."""
        return NativeKernel(kernel, self._get(object_key(kernel, effort), kernel, build, effort))

    def clear(self, files: bool = False) -> None:
        """Drop all code in memory, and delete the object files if `files` is true."""
        with self._lock:
            left = self._codes.clear(), self._offered.clear()
        del left  # LLVM frees the code outside the lock
        if files and self.files is not None:
            self.files.clear()

    def _find(self, key: str) -> Code | None:
        with self._lock:
            found = self._codes.get(key)
        ready = None if found is not None else self._ready(key)
        return found if ready is None else self._keep(key, Code(ready))

    def _get(self, key: str, kernel: Kernel, build: Build, effort: OptimisationLevel) -> Code:
        with self._lock:
            found = self._codes.get(key)
            if found is not None:
                return found
            lock = self._compiling.setdefault(key, threading.Lock())
        try:
            with lock:  # other kernels may be compiled concurrently
                return self._in_memory(key) or self._keep(key, self._make(key, kernel, build, effort))
        finally:
            with self._lock:
                self._compiling.pop(key, None)

    def _in_memory(self, key: str) -> Code | None:
        with self._lock:
            return self._codes.get(key)

    def _keep(self, key: str, loaded: Code) -> Code:
        with self._lock:
            found = self._codes.get(key)
            left = [] if found is not None else self._codes.put(key, loaded)
        del left  # frees outside the lock, as in `clear`
        return found or loaded

    def _make(self, key: str, kernel: Kernel, build: Build, effort: OptimisationLevel) -> Code:
        if effort is OptimisationLevel.QUICK:  # compiling takes no longer than reading a file
            return Code(build(kernel, effort), effort)
        code = self._ready(key)
        if code is None:
            code = build(kernel, effort)
            if self.files is not None:
                self.files.keep(key, code)
        return Code(code, effort)

    def _ready(self, key: str) -> bytes | None:
        """Return existing object code: offered by another process, or on disk."""
        with self._lock:
            offered = self._offered.get(key)
        if offered is not None or self.files is None:
            return offered
        return self.files.find(key)
