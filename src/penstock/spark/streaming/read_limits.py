"""Spark's read limits, which versions before 4.2 lack.

Before 4.2 a reader gets neither the offset at which a batch starts nor a limit on what it may read (`TrackingReader`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxFiles,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    PASSES_START = True
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxFiles,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )

        PASSES_START = True
    except ImportError:
        PASSES_START = False

        class ReadLimit:
            """How much a batch may read."""

        class ReadAllAvailable(ReadLimit):
            """No limit."""

        @dataclass(frozen=True)
        class ReadMaxFiles(ReadLimit):
            """A number of files."""

            max_files: int

        @dataclass(frozen=True)
        class ReadMaxRows(ReadLimit):
            """A number of rows."""

            max_rows: int

        class SupportsTriggerAvailableNow:
            """Marks readers whose end can be fixed."""


__all__ = [
    "PASSES_START",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxFiles",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
]
