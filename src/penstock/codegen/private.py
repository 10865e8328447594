"""Directories that only this user can write, and a secret that only this user can read."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from penstock.errors import StateError

_SECRET_BYTES = 32
_ROOT = 0


def private_directory(directory: Path) -> tuple[Path | None, str]:
    """Create a directory if it is missing. Return its real path, or the reason why it cannot be trusted.

    Callers use the real path from then on: symbolic links may change and are not resolved again.
    """
    try:
        _make(directory)
        real = directory.resolve(strict=True)
        problem = _own_problem(real) or _parents_problem(real)
    except OSError as error:
        return None, f"cannot use {directory}: {error.strerror}"
    return (None, problem) if problem else (real, "")


def _make(directory: Path) -> None:
    """Create a directory and its missing parents with mode 0700, whatever the umask is."""
    for parent in reversed([directory, *directory.parents]):
        if not parent.is_dir():
            parent.mkdir(mode=0o700, exist_ok=True)


def _own_problem(directory: Path) -> str:
    status = directory.stat()
    if not stat.S_ISDIR(status.st_mode):
        return f"{directory} is not a directory"
    if _user() not in (None, status.st_uid):
        return f"{directory} belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{directory} can be written by others"
    return ""


def _parents_problem(directory: Path) -> str:
    """Check the parents: a user who can write to a parent can rename its entries and replace them.

    In a directory with the sticky bit, such as /tmp, only owners can rename their entries.
    """
    if _user() is None:
        return ""
    for parent in directory.parents:
        status = parent.stat()
        if status.st_uid not in (_ROOT, _user()):
            return f"{parent}, which holds {directory}, belongs to another user"
        shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if shared and not status.st_mode & stat.S_ISVTX:
            return f"{parent}, which holds {directory}, can be written by others"
    return ""


def _user() -> int | None:
    return os.getuid() if hasattr(os, "getuid") else None


def secret_in(path: Path) -> bytes:
    """Read the secret in a file; create it on first use, readable by this user alone."""
    try:
        return _read_secret(path)
    except FileNotFoundError:
        _make_secret(path)
        return _read_secret(path)


def _read_secret(path: Path) -> bytes:
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:  # noqa: PTH123 - by its descriptor
        status, found = os.fstat(file.fileno()), file.read(_SECRET_BYTES + 1)
    own = _user() in (None, status.st_uid)
    if not own or (_user() is not None and status.st_mode & 0o077) or len(found) != _SECRET_BYTES:
        raise StateError(f"{path.name} is not a secret of this user; delete it")
    return found


def _make_secret(path: Path) -> None:
    """Write a new secret, unless another process was first: `link` fails if the file exists."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")  # 0600
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - by its descriptor
            file.write(os.urandom(_SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        Path(temporary).unlink(missing_ok=True)
