"""Rows that wait for their windows. They are only put together when somebody looks: many small batches, once."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from penstock.runtime.sorted_partitions.rows import Rows, no_rows
from penstock.runtime.stage import END_OF_TIME


@dataclass
class PendingRows:
    """Rows of one schema, as they came. Their times are only looked at when somebody asks for the earliest."""

    schema: pa.Schema
    pieces: list[Rows] = field(init=False, default_factory=list)
    _unseen: list[Rows] = field(init=False, default_factory=list)
    _earliest: int = field(init=False, default=END_OF_TIME)

    def add(self, rows: Rows) -> None:
        self.pieces.append(rows)
        self._unseen.append(rows)

    @property
    def oldest(self) -> int:
        """The earliest time among them."""
        self._earliest = min([self._earliest, *map(_oldest, self._unseen)])
        self._unseen = []
        return self._earliest

    @property
    def rows(self) -> Rows:
        """All of them."""
        if len(self.pieces) != 1:
            self.pieces = [no_rows(self.schema).followed_by(*self.pieces)]
            self._unseen = list(self.pieces) if self._unseen else []  # what they were made of is let go
        return self.pieces[0]

    def add_before(self, rows: Rows) -> None:
        """Let rows wait that come before all others."""
        self.pieces.insert(0, rows)
        self._unseen.append(rows)

    def replace(self, rows: Rows) -> None:
        """Let these wait instead."""
        self.pieces, self._unseen, self._earliest = [rows], [rows], END_OF_TIME

    def take(self) -> Rows:
        """All of them; nobody waits any more."""
        rows = self.rows
        self.replace(no_rows(self.schema))
        return rows


def _oldest(rows: Rows) -> int:
    return int(rows.times.min()) if len(rows) else END_OF_TIME
