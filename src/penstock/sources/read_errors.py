"""Errors about files. They name the file, and never quote its rows."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from penstock.errors import PenstockError, SourceError
from penstock.sources.paths import require_file
from penstock.storage.access import LOCAL, Access
from penstock.storage.filesystems import reported

T = TypeVar("T")

# The parts of Arrow's messages that quote no values of the file. All others are dropped.
_SAFE = re.compile(
    r"\[Errno \d+\].*|(?:CSV|JSON) parse error|In CSV column #\d+|CSV conversion error to [^:]*|Row #\d+"
    r"|Expected \d+ columns, got \d+|Column\(.*\) changed from \w+ to \w+ in row \d+|Empty CSV file"
    r"|Parquet (?:magic|file).*|(?:Not|Invalid|Corrupt|Unexpected|Couldn't|Could not).*|File is.*"
)


def reading(path: str, read: Callable[[str], T], access: Access = LOCAL) -> T:
    """Read a regular file with `read`, and name the file in errors."""
    try:
        if not access.reaches(path):
            require_file(path)
        return read(path)
    except PenstockError:
        raise
    except (OSError, pa.ArrowException, UnicodeError) as reason:
        raise unreadable(path, reason, access) from None


def unreadable(path: str, reason: Exception, access: Access = LOCAL) -> SourceError:
    """Return the error for an unreadable file, without rows that Arrow's messages may quote."""
    if isinstance(reason, UnicodeError):
        why = "a name in it is not valid UTF-8"
    elif access.reaches(path) and isinstance(reason, OSError) and reason.errno is not None:
        why = reported(reason)
    else:
        why = _silent(str(reason))
    return SourceError(f"the file {path!r} cannot be read: {why}")


def _silent(message: str) -> str:
    parts = message.splitlines()[0].split(": ") if message else []
    safe = list(itertools.takewhile(_SAFE.fullmatch, parts))
    return ": ".join(safe) or "its content does not fit its format or its declared types"
