"""Replace files atomically: a reader finds the old one, the new one or none.

A writer holds a lock on what it writes. What is left of one that was killed has no lock: the next writer of the same file
removes it. Locks decide, not process numbers: those of other machines and containers mean nothing here.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_MODE = 0o600  # what is written may hold rows: it is its owner's


def replace_file(target: Path, write: Callable[[BinaryIO], object], lasting: bool = False) -> None:
    """Write a file in one step; a `lasting` one survives the loss of power once this returns."""
    with draft(target) as (file, path):
        write(file)
        file.flush()
        if lasting:
            os.fsync(file.fileno())
        path.replace(target)
    if lasting:
        _sync_folder(target.parent)


@contextmanager
def draft(target: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """Open a file beside the target, hidden and locked; it is gone afterwards unless it was given another name."""
    stem = _stem(target)
    remove_stale(target.parent, stem)
    file, path = _opened(target.parent, stem)
    try:
        with file:  # the lock ends with it, when the file has its last name
            yield file, path
    finally:
        path.unlink(missing_ok=True)


def remove_stale(folder: Path, stem: str) -> None:
    """Remove the files that killed writers left behind, and no others."""
    with os.scandir(folder) as entries:
        left = [
            entry.path for entry in entries if entry.name.startswith(stem) and entry.name.endswith(".tmp")
        ]
    for path in left:
        with suppress(OSError):  # it is locked, or gone, or locks are unknown to the file system
            _remove_unlocked(path)


def _remove_unlocked(path: str) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)  # noqa: PTH108 - a name from scandir
    finally:
        os.close(descriptor)


def _stem(target: Path) -> str:
    """What all drafts of a file begin with; its own name could be too long."""
    return f".penstock-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]}-"


def _opened(folder: Path, stem: str) -> tuple[BinaryIO, Path]:
    """Open a new file that another writer cannot take for a dead one's."""
    while True:
        path = folder / f"{stem}{secrets.token_hex(8)}.tmp"
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE), "wb")
        with suppress(OSError):  # a file system without locks: nothing is removed there either
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file.fileno()).st_nlink:
            return file, path
        file.close()  # it was removed before it was locked


def _sync_folder(folder: Path) -> None:
    """Make the new name last too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
