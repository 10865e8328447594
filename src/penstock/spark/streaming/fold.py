"""Before the shuffle, where windows are made of panes: fold the rows of a task, and send what the panes hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.compile import Compiled
from penstock.runtime.session import Session
from penstock.runtime.state.merge import CELLS, NULLS, shares
from penstock.spark.streaming.pane_row_counts import counted
from penstock.spark.tasks import ENGINE, Query

_SENT = (CELLS, NULLS)


@dataclass(frozen=True, slots=True)
class Fold:
    """The query up to its first `windows`, whose keys at the places `keys` divide all that is behind them."""

    query: Query
    windows: tuple[str, ...]
    keys: tuple[int, ...]

    @property
    def compiled(self) -> Compiled:
        return counted(self.query, self.windows)

    def open(self) -> Session:
        """Begin to fold: nothing is late here, since time is known behind the shuffle only."""
        return self.compiled.open(ENGINE, bounded=True)

    def shares(self, session: Session, shards: int) -> Iterator[tuple[int, str, pa.Table]]:
        """Divide what a task has folded: the number of a shard, the name of a table, its rows."""
        for shard, tables in shares(session.save(), self.keys, shards).items():
            for name, table in _sent(tables.items()):
                yield shard, name, table


def _sent(tables: Iterable[tuple[str, pa.Table]]) -> Iterator[tuple[str, pa.Table]]:
    return ((name, table) for name, table in tables if name.rpartition("/")[2] in _SENT)
