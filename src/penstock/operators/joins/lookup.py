"""Joins of a stream with a table: each stream row is matched on arrival, without buffering."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.algorithms.joins.joiner import Pairs
from penstock.algorithms.sorted_partitions.rows import Rows, joined
from penstock.operators.joins.algorithm_pairs import with_alone_in_order
from penstock.operators.joins.partitions import PartitionKernels, find, lay, number_keys
from penstock.operators.joins.results import (
    JoinShape,
    Residual,
    Results,
    alone,
    gives_left_rows,
    left_rows,
    pairs_of,
    partnered,
    satisfying,
)
from penstock.runtime.metrics import Metrics
from penstock.runtime.stage import TimedBatch
from penstock.state.state_table import StateTable


class TableStage:
    """The stage that passes on the rows of a table."""

    def push(self, port: int, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        return timed_batches

    def advance(self, port: int, watermark: int) -> tuple[list[TimedBatch], int]:
        return [], watermark

    def save(self) -> Mapping[str, StateTable]:
        """Save nothing: every run reads the table again."""
        return {}

    def load(self, tables: Mapping[str, pa.Table]) -> None: ...


@dataclass
class LookupStage:
    """A stream and a table; `table` is the port of the table.

    An unmatched row counts as filtered. A row with n matches counts as read n times. `paths` is the number of
    times that downstream stages would have counted the row.
    """

    table: int
    how: str
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    residual: Residual | None
    shape: JoinShape
    schema: pa.Schema
    kernels: PartitionKernels
    metrics: Metrics
    paths: int
    rows: list[pa.RecordBatch] = field(default_factory=list)

    def push(self, port: int, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        if port == self.table:
            self.rows += [timed_batch.batch for timed_batch in timed_batches]
            return []
        return [made for timed_batch in timed_batches if (made := self._met(timed_batch)).batch.num_rows]

    def advance(self, port: int, watermark: int) -> tuple[list[TimedBatch], int]:
        return [], watermark

    def save(self) -> Mapping[str, StateTable]:
        """Save nothing: stream rows are not buffered, and every run reads the table again."""
        return {}

    def load(self, tables: Mapping[str, pa.Table]) -> None: ...

    def _met(self, timed_batch: TimedBatch) -> TimedBatch:
        self.rows = [joined(self.rows, self.schema)]
        stream, table = _plain(timed_batch.batch), _plain(self.rows[0])
        mine, its = self._chosen(self._pairs(stream, table), len(stream))
        if not timed_batch.counted:
            self._count(mine, len(stream))
        sides = (stream, table) if self.table else (table, stream)
        results = Results(*((mine, its) if self.table else (its, mine)))
        made = list(self.shape.batches(results, *sides, self.kernels.threads))
        return timed_batch.filtered(joined(made, self.shape.schema), mine)

    def _count(self, passing: np.ndarray, rows: int) -> None:
        met = int(np.count_nonzero(np.diff(passing))) + 1 if len(passing) else 0
        self.metrics.filtered += (rows - met) * self.paths
        self.metrics.read += (len(passing) - met) * self.paths

    def _pairs(self, stream: Rows, table: Rows) -> Pairs:
        """Return pairs of stream and table rows, by stream row, then by table row."""
        names = self.keys if self.table else self.keys[::-1]
        columns = [
            [rows.batch.column(name) for name in column_name]
            for rows, column_name in zip((stream, table), names, strict=True)
        ]
        numbers = number_keys(columns[0], columns[1], (len(stream), len(table)), self.kernels)
        laid = [
            lay(partition, numbers.partitions, np.zeros(len(partition), np.int64), self.kernels)
            for partition in (numbers.left, numbers.right)
        ]
        found = find(laid[0], laid[1], (0, 0), self.kernels)
        if self.table:
            return pairs_of(found, self.residual, stream, table, self.kernels)
        plain = pairs_of(found, None, stream, table, self.kernels)
        return satisfying(plain[::-1], self.residual, table, stream)[::-1]

    def _chosen(self, pairs: Pairs, rows: int) -> Pairs:
        """Add unmatched rows (left), or select rows by whether they match (semi, anti)."""
        if self.how == "inner":
            return pairs
        if gives_left_rows(self.how):
            return alone(left_rows(self.how, partnered(rows, pairs[0])), 0)
        return with_alone_in_order(pairs, rows, self.kernels)


def _plain(batch: pa.RecordBatch) -> Rows:
    """Rows without times."""
    nothing = np.zeros(batch.num_rows, np.int64)
    return Rows(batch, nothing, None, None, np.ones(batch.num_rows, np.bool_))
