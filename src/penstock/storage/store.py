"""What is asked of a store of files, whatever it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.errors import SourceError

Buffer = bytes | memoryview
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in a store: its key, its size in bytes, and when it was written, in nanoseconds."""

    key: str
    size: int
    written: int


class Store(Protocol):
    """A flat set of files by key. Keys contain slashes; folders exist only as their prefixes.

    A missing file is a `FileNotFoundError`. Any other failure is an `OSError` whose text has no secret.
    """

    def list(self, folder: str) -> Iterator[Entry]:
        """List all files below a folder, in any order; none if there is no such folder."""

    def entry(self, key: str) -> Entry:
        """Describe one file."""

    def tail(self, key: str, size: int) -> tuple[Buffer, int]:
        """Read up to `size` bytes at the end of a file. Returns them and the size of the file."""

    def spans(self, key: str, spans: Sequence[Span]) -> Sequence[Buffer]:
        """Read several ranges of bytes, each by one request."""

    def write(self, key: str, data: Buffer) -> None:
        """Write a file, or replace it, in one step."""

    def create(self, key: str, data: Buffer) -> bool:
        """Write a new file in one step; False if there is one of this name."""


def refused(path: str, doing: str, reason: OSError) -> SourceError:
    """Return the error for a failed request."""
    return SourceError(f"{path!r} cannot be {doing}: {reported(reason)}")


def reported(reason: Exception) -> str:
    """Return why a request failed, in one line."""
    if isinstance(reason, FileNotFoundError):
        return "there is no such file or bucket; check the name"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return next(iter(str(reason).splitlines()), type(reason).__name__)
