"""The addresses of a batch's columns, for native code."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from penstock.types.time import Time

# The words of a batch: the watermark before it, then after it; whether a row is behind the watermark at its arrival;
# and the address of each column's first value, 0 if it holds nulls, 1 if it holds none but has no fixed width.
WATERMARK, BEHIND, FIRST_COLUMN = range(3)
# The words of a plan: the number of columns, the place of the time column, the lateness; the width of each column's
# values in bytes, or 0.
COLUMNS, TIME, LATENESS, FIRST_WIDTH = range(4)

Words = array  # of 64-bit integers
# Fill the words of a batch by a plan. False: the times hold nulls, or there are none.
Reader = Callable[[pa.RecordBatch, "Words[int]", "Words[int]"], bool]


@dataclass(frozen=True, eq=False)
class ColumnLayout:
    """The plan by which batches of a schema are read; None if native code cannot read their times."""

    schema: pa.Schema
    plan: Words[int] | None

    @classmethod
    def of(cls, schema: pa.Schema, time: Time, lateness: int) -> ColumnLayout:
        at = schema.get_field_index(time.column)  # -1 if it is missing or there are two
        if at < 0 or not _has_ticks(schema.field(at).type):
            return cls(schema, None)
        return cls(schema, array("q", [len(schema), at, lateness, *[_width(field.type) for field in schema]]))

    def read(self, batch: pa.RecordBatch, watermark: int, reader: Reader) -> ColumnAddresses | None:
        """Read a batch. None: a row is behind the watermark, or native code cannot decide."""
        if self.plan is None:
            return None
        words = array("q", [0] * (FIRST_COLUMN + self.plan[COLUMNS]))
        words[WATERMARK] = watermark
        if not reader(batch, self.plan, words) or words[BEHIND]:
            return None
        return ColumnAddresses(self, batch, words)

    def places(self, names: tuple[str, ...]) -> list[int] | None:
        """The places of columns among the words of a batch; None if one is not a column, or has no fixed width."""
        found = [self.schema.get_field_index(name) for name in names]
        if any(at < 0 or not _width(self.schema.field(at).type) for at in found):
            return None
        return [FIRST_COLUMN + at for at in found]


@dataclass(frozen=True, slots=True, eq=False)
class ColumnAddresses:
    """The words of a batch, valid while it lives."""

    layout: ColumnLayout
    batch: pa.RecordBatch
    words: Words[int]

    @property
    def hold_nulls(self) -> bool:
        """Whether some column holds nulls; a kernel that tests for nulls may read no other part of a column."""
        return 0 in self.words[FIRST_COLUMN:]

    @property
    def watermark(self) -> int:
        """The watermark after the batch."""
        return self.words[WATERMARK]


def _has_ticks(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(dtype) or pa.types.is_int64(dtype))


def _width(dtype: pa.DataType) -> int:
    """The bytes of a value that kernels read where it lies, or 0."""
    plain = pa.types.is_primitive(dtype) and not pa.types.is_boolean(dtype)
    return dtype.bit_width // 8 if plain else 0
