"""Object code in files of a private directory, authenticated with a secret of the user.

A file is

    magic · version · length of key · key · HMAC-SHA-256 of all the rest · object code

The code and the key are authenticated before any of it is executed. The directory must belong to the
user and be writable by no other user, and no other user may be able to replace it through a parent; otherwise
it is not used. The number and size of files are bounded: the least recently used are deleted.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from penstock.atomic_write import replace_file
from penstock.errors import StateError

# --- Directories that only this user can write, and a secret that only this user can read.

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


# Increment when the same kernel compiles to different code, or is called in a different way.
CODEGEN_VERSION = 3
MOST_FILES = 4_096
MOST_FILE_BYTES = 256 << 20
SUFFIX = ".pko"
_KEY_FILE = "key"

_MAGIC = b"PENSTOCK\x00KERNEL\n"
_HEAD = struct.Struct(f"<{len(_MAGIC)}sII")
_DIGEST = hashlib.sha256().digest_size
_LONGEST_KEY = 1 << 16
_SAVES_BETWEEN_LOOKS = 32
_ABANDONED = 3_600.0  # seconds after which the writer of a temporary file must have been killed


class ObjectFiles:
    """The object files of one directory; `disabled` gives the reason if they are not used."""

    def __init__(self, directory: Path, files: int = MOST_FILES, size: int = MOST_FILE_BYTES) -> None:
        self.directory, self.disabled = private_directory(directory)
        self._files, self._size = files, size
        self._saves = 0
        self._secret = b""

    def path(self, key: str) -> Path | None:
        """Return the path of a key's file, or None if files are disabled."""
        if self.directory is None:
            return None
        return self.directory / f"{hashlib.sha256(key.encode()).hexdigest()}{SUFFIX}"

    def find(self, key: str) -> bytes | None:
        """Return the code of a key; None if its file is missing, damaged or not of this user."""
        path = self.path(key)
        if path is None or not path.exists():
            return None
        try:
            code = load(path, key, self._authority())
            os.utime(path)
        except (OSError, StateError):  # compile it again
            return None
        return code

    def keep(self, key: str, code: bytes) -> None:
        """Write the code of a key. An error, such as a full disk, disables files and does not stop the query."""
        path = self.path(key)
        if path is None:
            return
        try:
            save(path, key, code, self._authority())
            if self._saves % _SAVES_BETWEEN_LOOKS == 0:
                self._prune()
            self._saves += 1
        except (OSError, StateError) as error:
            self.directory, self.disabled = None, f"cannot use {path.parent}: {error}"

    def clear(self) -> None:
        """Delete all object files."""
        for file, _ in self._listed(SUFFIX):
            Path(file).unlink(missing_ok=True)

    def _authority(self) -> bytes:
        if not self._secret:
            assert self.directory is not None
            self._secret = secret_in(self.directory / _KEY_FILE)
        return self._secret

    def _prune(self) -> None:
        """Delete the least recently used files beyond the limits, and temporary files of killed processes."""
        now = time.time()
        for file, status in self._listed(".tmp"):
            if now - status.st_mtime > _ABANDONED:
                Path(file).unlink(missing_ok=True)
        recent = sorted(self._listed(SUFFIX), key=lambda listed: listed[1].st_mtime_ns, reverse=True)
        total = 0
        for place, (file, status) in enumerate(recent):
            total += status.st_size
            if place >= self._files or total > self._size:
                Path(file).unlink(missing_ok=True)

    def _listed(self, suffix: str) -> Iterator[tuple[str, os.stat_result]]:
        if self.directory is None:
            return
        with os.scandir(self.directory) as entries:
            for entry in entries:
                if entry.name.endswith(suffix):
                    with suppress(FileNotFoundError):  # other processes delete files concurrently
                        yield entry.path, entry.stat(follow_symlinks=False)


def save(path: Path, key: str, code: bytes, secret: bytes) -> None:
    """Write an object file atomically: readers get the old file, the new file or none."""
    replace_file(path, lambda file: file.write(_encode(key, code, secret)))


def load(path: Path, key: str, secret: bytes) -> bytes:
    """Read an object file's code; raise `StateError` if it is damaged, forged or belongs to another key."""
    return _decode(path.read_bytes(), key, secret, path.name)


def _encode(key: str, code: bytes, secret: bytes) -> bytes:
    name = key.encode()
    head = _HEAD.pack(_MAGIC, CODEGEN_VERSION, len(name)) + name
    return head + hmac.digest(secret, head + code, "sha256") + code


def _decode(data: bytes, key: str, secret: bytes, name: str) -> bytes:
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        raise StateError(f"{name} is not a compiled kernel; delete it")
    _, version, length = _HEAD.unpack_from(data)
    body = _HEAD.size + length + _DIGEST
    if version != CODEGEN_VERSION or length > _LONGEST_KEY or len(data) < body:
        raise StateError(f"{name} was written by another version of Penstock, or is cut short; delete it")
    head, digest, code = data[: body - _DIGEST], data[body - _DIGEST : body], data[body:]
    if not hmac.compare_digest(hmac.digest(secret, head + code, "sha256"), digest):
        raise StateError(
            f"{name} is damaged or was not written by this user: its checksum does not match; delete it"
        )
    if head[_HEAD.size :] != key.encode():
        raise StateError(f"{name} holds another kernel, or one compiled for another machine")
    return code
