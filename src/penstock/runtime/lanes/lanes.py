"""Lanes: the rows of each key side by side, in order of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.runtime.buffers import values_view
from penstock.runtime.indexer import Indexer
from penstock.runtime.keys import LARGEST, SMALL, SPARSEST
from penstock.runtime.lanes.rows import Rows
from penstock.runtime.programs import Call


@dataclass(frozen=True)
class Lanes:
    """Rows lane by lane. Lane i is rows bounds[i] … bounds[i + 1]; `moment[r]` ranks row r in time, among all.

    `moment` is None where there is one lane, whose rows are in order of time.
    """

    rows: Rows
    bounds: np.ndarray
    moment: np.ndarray | None

    @property
    def count(self) -> int:
        return len(self.bounds) - 1

    def of_rows(self, rows: np.ndarray) -> np.ndarray:
        """The lane of each row."""
        lane: np.ndarray = np.searchsorted(self.bounds, rows, side="right") - 1
        return lane


@dataclass(frozen=True)
class Layout:
    """Puts rows into lanes by their keys."""

    keys: tuple[str, ...]
    new_index: Callable[[int], Indexer]
    count_lanes: Call
    fill_lanes: Call
    threads: int

    def lanes(self, rows: Rows) -> Lanes:
        order = rows.order()
        if not self.keys:
            ordered = rows if order is None else rows.chosen(order, self.threads)
            bounds = np.array([0, len(rows)] if len(rows) else [0], np.int64)
            return Lanes(ordered, bounds, None)
        numbers = self._numbers(rows)
        moment, bounds = self._partition(numbers if order is None else numbers[order])
        places = moment if order is None else order[moment]
        return Lanes(rows.chosen(places, self.threads), bounds, moment)

    def _numbers(self, rows: Rows) -> np.ndarray:
        columns = [rows.batch.column(name) for name in self.keys]
        if len(columns) == 1:
            dense = _dense(columns[0])
            if dense is not None:
                return dense
        return self.new_index(len(columns)).number(columns)

    def _partition(self, lanes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sort rows by lane, keeping their order; give their places, and the bounds of lanes that have rows."""
        rows = len(lanes)
        counts = np.zeros(int(lanes.max()) + 1 if rows else 0, np.int64)
        self.count_lanes({"lanes": lanes, "counts": counts, "lo": 0, "hi": rows})
        ends = np.cumsum(counts)
        order = np.empty(rows, np.int64)
        self.fill_lanes({"lanes": lanes, "places": ends - counts, "order": order, "lo": 0, "hi": rows})
        return order, np.concatenate([[0], ends[counts > 0]])


def _dense(column: pa.Array) -> np.ndarray | None:
    """Number keys by subtraction, where they are whole numbers in a small range."""
    whole = pa.types.is_integer(column.type) or pa.types.is_temporal(column.type)
    if not whole or column.null_count or not len(column):
        return None
    values = values_view(column)
    least, most = int(values.min()), int(values.max())
    if most - least >= min(max(SPARSEST * len(values), SMALL), LARGEST):
        return None
    found: np.ndarray = values.astype(np.int64) - least
    return found


def same_keys(columns: Sequence[pa.Array]) -> Sequence[pa.Array]:
    """Let one value stand for equal ones: 0.0 for -0.0."""
    return [_canonical(column) for column in columns]


def _canonical(column: pa.Array) -> pa.Array:
    if not pa.types.is_floating(column.type):
        return column
    import pyarrow.compute as pc  # noqa: PLC0415 - float keys are rare

    return pc.add(column, pa.scalar(0.0, column.type))
