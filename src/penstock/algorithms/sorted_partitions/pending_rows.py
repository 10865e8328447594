"""A buffer of rows for later windows. Batches are concatenated only on access: many small ones, once."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from penstock.algorithms.sorted_partitions.rows import Rows, no_rows
from penstock.runtime.stage import END_OF_TIME


@dataclass
class PendingRows:
    """Rows of one schema, in arrival order. Times are read only when `oldest` is needed."""

    schema: pa.Schema
    pieces: list[Rows] = field(init=False, default_factory=list)
    _unseen: list[Rows] = field(init=False, default_factory=list)
    _earliest: int = field(init=False, default=END_OF_TIME)

    def add(self, rows: Rows) -> None:
        self.pieces.append(rows)
        self._unseen.append(rows)

    @property
    def oldest(self) -> int:
        """The earliest time in the buffer."""
        self._earliest = min([self._earliest, *map(_oldest, self._unseen)])
        self._unseen = []
        return self._earliest

    @property
    def rows(self) -> Rows:
        """All rows, concatenated."""
        if len(self.pieces) != 1:
            self.pieces = [no_rows(self.schema).followed_by(*self.pieces)]
            self._unseen = list(self.pieces) if self._unseen else []  # releases the concatenated pieces
        return self.pieces[0]

    def add_before(self, rows: Rows) -> None:
        """Insert rows before all others."""
        self.pieces.insert(0, rows)
        self._unseen.append(rows)

    def replace(self, rows: Rows) -> None:
        """Replace the buffered rows."""
        self.pieces, self._unseen, self._earliest = [rows], [rows], END_OF_TIME

    def take(self) -> Rows:
        """Remove and return all rows."""
        rows = self.rows
        self.replace(no_rows(self.schema))
        return rows


def _oldest(rows: Rows) -> int:
    return int(rows.times.min()) if len(rows) else END_OF_TIME
