"""Keep compiled kernels: in memory, and as checksummed object files in a private directory.

A kernel is found by its fingerprint and by the machine it was compiled for. A file is

    magic · version · length of key · key · SHA-256 of all the rest · object code

and nothing of it is ever unpickled or executed before the checksum and the key agree. The checksum
guards against damage, not against an enemy: the directory must belong to the user and be writable by
nobody else, or it is not used at all.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from penstock.codegen.effort import Effort
from penstock.codegen.native import NativeKernel
from penstock.errors import StateError
from penstock.loop.nodes import Kernel
from penstock.loop.show import fingerprint
from penstock.replacing import replace_file

# Raise it whenever the same kernel would be compiled to other code, or called in another way.
CODEGEN_VERSION = 2

_MAGIC = b"PENSTOCK\x00KERNEL\n"
_HEAD = struct.Struct(f"<{len(_MAGIC)}sII")
_DIGEST = hashlib.sha256().digest_size
_LONGEST_KEY = 1 << 16
_ENVIRONMENT = "PENSTOCK_CACHE_DIR"

Build = Callable[[Kernel, Effort], bytes]


def default_directory(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Choose where object files go: PENSTOCK_CACHE_DIR (empty: nowhere), else the user's cache."""
    chosen = environment.get(_ENVIRONMENT)
    if chosen is not None:
        return Path(chosen) if chosen else None
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "penstock"


def object_key(kernel: Kernel, effort: Effort = Effort.FULL) -> str:
    """Name a kernel's code: what it computes, for which machine, made by which compiler and how."""
    return _key(fingerprint(kernel), effort)


def _key(name: str, effort: Effort) -> str:
    from penstock.codegen.target import host  # noqa: PLC0415 - loads LLVM

    return f"{name} {host()} penstock-{CODEGEN_VERSION} {effort}"


class KernelCache:
    """Compiled kernels by key; safe to share between threads.

    `directory=None` keeps them in memory only. A directory that is not private is not used either:
    `disabled` then says why.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._kernels: dict[str, NativeKernel] = {}
        self._compiling: dict[str, threading.Lock] = {}
        self._offered: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self.disabled = "" if directory is None else _problem(directory)
        self.directory = None if self.disabled else directory

    def offer(self, objects: Mapping[str, bytes]) -> None:
        """Take object code by key that a trusted process compiled: our own driver, through Spark."""
        with self._lock:
            self._offered.update(objects)

    def soonest(self, kernel: Kernel, build: Build) -> NativeKernel:
        """Give the fully compiled kernel if it is here already, in memory or on disk; else one that is made quickly."""
        name = fingerprint(kernel)  # which takes as long as a tenth of quick code
        ready = self._find(_key(name, Effort.FULL), kernel)
        return ready or self._get(_key(name, Effort.QUICK), kernel, build, Effort.QUICK)

    def get(self, kernel: Kernel, build: Build, effort: Effort = Effort.FULL) -> NativeKernel:
        """Give the compiled kernel, calling `build` for its object code only if it is nowhere."""
        return self._get(object_key(kernel, effort), kernel, build, effort)

    def _find(self, key: str, kernel: Kernel) -> NativeKernel | None:
        with self._lock:
            found = self._kernels.get(key)
        code = None if found is not None else self._ready(key)
        return found if code is None else self._keep(key, NativeKernel(kernel, code))

    def _get(self, key: str, kernel: Kernel, build: Build, effort: Effort) -> NativeKernel:
        with self._lock:
            found = self._kernels.get(key)
            lock = self._compiling.setdefault(key, threading.Lock())
        if found is not None:
            return found
        with lock:  # others may compile other kernels meanwhile
            return self._kernels.get(key) or self._keep(key, self._make(key, kernel, build, effort))

    def _keep(self, key: str, loaded: NativeKernel) -> NativeKernel:
        with self._lock:
            self._compiling.pop(key, None)
            return self._kernels.setdefault(key, loaded)

    def _make(self, key: str, kernel: Kernel, build: Build, effort: Effort) -> NativeKernel:
        if effort is Effort.QUICK:  # made as fast as a file is read
            return NativeKernel(kernel, build(kernel, effort), effort)
        code = self._ready(key)
        if code is None:
            code = build(kernel, effort)
            self._to_disk(key, code)
        return NativeKernel(kernel, code, effort)

    def path(self, key: str) -> Path | None:
        """Name the file of a key, if files are kept."""
        if self.directory is None:
            return None
        return self.directory / f"{hashlib.sha256(key.encode()).hexdigest()}.pko"

    def _ready(self, key: str) -> bytes | None:
        """Give code that is ready: offered by another process, or on disk."""
        if key in self._offered:
            return self._offered[key]
        path = self.path(key)
        if path is None:
            return None
        try:
            return load(path, key)
        except (OSError, StateError):  # absent, damaged or foreign: compile it again
            return None

    def _to_disk(self, key: str, code: bytes) -> None:
        path = self.path(key)
        if path is None:
            return
        try:
            save(path, key, code)
        except OSError:  # a full disk must not stop a query
            self.directory = None


def save(path: Path, key: str, code: bytes) -> None:
    """Write an object file in one step: readers see the old one, the new one or none."""
    replace_file(path, lambda file: file.write(_encode(key, code)))


def load(path: Path, key: str) -> bytes:
    """Read an object file's code; `StateError` if it is damaged or belongs to another key."""
    return _decode(path.read_bytes(), key, path.name)


def _encode(key: str, code: bytes) -> bytes:
    name = key.encode()
    head = _HEAD.pack(_MAGIC, CODEGEN_VERSION, len(name)) + name
    return head + hashlib.sha256(head + code).digest() + code


def _decode(data: bytes, key: str, name: str) -> bytes:
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        raise StateError(f"{name} is not a compiled kernel; delete it")
    _, version, length = _HEAD.unpack_from(data)
    body = _HEAD.size + length + _DIGEST
    if version != CODEGEN_VERSION or length > _LONGEST_KEY or len(data) < body:
        raise StateError(f"{name} was written by another version of Penstock, or is cut short; delete it")
    head, digest, code = data[: body - _DIGEST], data[body - _DIGEST : body], data[body:]
    if hashlib.sha256(head + code).digest() != digest:
        raise StateError(f"{name} is damaged: its checksum does not match; delete it")
    if head[_HEAD.size :] != key.encode():
        raise StateError(f"{name} holds another kernel, or one compiled for another machine")
    return code


def _problem(directory: Path) -> str:
    """Make the directory if need be; say why it cannot be trusted, or nothing."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
    except OSError as error:
        return f"cannot use {directory}: {error.strerror}"
    if not stat.S_ISDIR(status.st_mode):
        return f"{directory} is not a directory"
    if hasattr(os, "getuid") and status.st_uid != os.getuid():
        return f"{directory} belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{directory} can be written by others"
    return ""
