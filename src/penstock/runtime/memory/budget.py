"""The memory that a run may use for the rows and states it holds, and the files to which rows are spilled."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO, cast

from penstock.errors import EngineError, MemoryLimitError

LEAST_BUDGET = 1 << 20  # a smaller budget would be used up by the buffers of one batch
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")
# Where cluster managers ask their tasks to put temporary files, most specific first.
_FOLDERS = "PENSTOCK_SPILL_DIR", "SPARK_LOCAL_DIRS", "LOCAL_DIRS"


def memory_bytes(given: object, least: int = LEAST_BUDGET) -> int:
    """Return a size in bytes, given as a number or as text with a unit; Spark's `512m` and `4g` are binary.

    >>> memory_bytes("4GB"), memory_bytes("512MiB"), memory_bytes("1g")
    (4000000000, 536870912, 1073741824)
    """
    found = _parsed(given)
    if found is None:
        raise EngineError(f"memory must be a size such as '4GB' or a number of bytes, not {given!r:.60}")
    if found < least:
        raise EngineError(
            f"memory={given!r:.60} is too little to run anything in; give at least {size_of(least)}"
        )
    return found


def _parsed(given: object) -> int | None:
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    found = _SIZE.fullmatch(given) if isinstance(given, str) else None
    unit = None if found is None else _UNITS.get(found[2].lower())
    return None if found is None or unit is None else int(float(found[1]) * unit)


def size_of(size: float) -> str:
    """Format a number of bytes.

    >>> size_of(1_500_000), size_of(3_100_000_000)
    ('1.5 MB', '3.1 GB')
    """
    for unit, length in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= length:
            return f"{size / length:.1f} {unit}"
    return f"{size:.0f} bytes"


@dataclass
class Budget:
    """A limit in bytes, and what has been spilled because of it. Only a `strict` one refuses states beyond the limit.

    `folder` is where rows are spilled; without one, it is a folder for temporary files.
    """

    limit: int
    strict: bool = True
    folder: str | None = None
    spilled: int = 0

    def file(self) -> BinaryIO:
        """Open a file for one run of rows. It has no name, or none any longer, so that nothing remains after a crash."""
        folder = self.folder or spill_folder(os.environ)
        try:
            return cast(BinaryIO, tempfile.TemporaryFile(dir=folder))
        except OSError as error:
            raise no_room(folder, error) from None


def spill_folder(environment: Mapping[str, str]) -> str:
    """Return the folder for spilled rows: the first that the environment names, or the system's."""
    for name in _FOLDERS:
        first = environment.get(name, "").split(",")[0].strip()
        if first:
            return first
    return tempfile.gettempdir()


def no_room(folder: str, error: OSError) -> MemoryLimitError:
    """Return the error for a folder that takes no spilled rows."""
    return MemoryLimitError(
        f"rows beyond the memory of this run cannot be spilled to {folder!r}: {error.strerror or error}; "
        "name a folder on a local disk with room in PENSTOCK_SPILL_DIR, or give more memory"
    )
