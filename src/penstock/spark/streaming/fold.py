"""Aggregate a task's rows into panes before the shuffle, and send the partial aggregates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.compile import Compiled
from penstock.runtime.session import Session
from penstock.spark.streaming.pane_row_counts import counted
from penstock.spark.tasks import ENGINE, Query
from penstock.state.state_table import CELLS, NULLS, shares

_SENT = (CELLS, NULLS)


@dataclass(frozen=True, slots=True)
class PreAggregation:
    """The query up to its first `windows`. Their keys at positions `keys` partition all later work."""

    query: Query
    windows: tuple[str, ...]
    keys: tuple[int, ...]

    @property
    def compiled(self) -> Compiled:
        return counted(self.query, self.windows)

    def open(self) -> Session:
        """Open a session. No row is late here, since the watermark exists only after the shuffle."""
        return self.compiled.open(ENGINE, bounded=True, known=self.query.known())

    def shares(self, session: Session, shards: int) -> Iterator[tuple[int, str, pa.Table]]:
        """Partition the partial aggregates of a task. Yields shard number, table name and rows."""
        for shard, tables in shares(session.save(), self.keys, shards).items():
            for name, table in _sent(tables.items()):
                yield shard, name, table


def _sent(tables: Iterable[tuple[str, pa.Table]]) -> Iterator[tuple[str, pa.Table]]:
    return ((name, table) for name, table in tables if name.rpartition("/")[2] in _SENT)
