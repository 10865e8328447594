"""The samples of an incremental signal: rows on their way, then those that a cursor has not passed yet, numbered in order of time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.algorithms.sorted_partitions.rows import arrived
from penstock.algorithms.sorted_partitions.rows_ahead import RowsAhead
from penstock.loop.nodes import Type
from penstock.operators.rows.stage import RowsStage
from penstock.runtime.buffers import filled, numpy_type, words_per_cell
from penstock.runtime.stage import TimedBatch
from penstock.types.time import Time

FEWEST = 1 << 8
SEVERAL, MOST_SPARE = 16, 1 << 15  # room for several pushes, so that kernels stay bound to the memory


@dataclass
class SampleStore:
    """Cells of the samples numbered `base` … `end` - 1, by the names of the kernel's parameters. Numbers never change."""

    cells: Mapping[str, Type]
    arrays: dict[str, np.ndarray] = field(init=False, default_factory=dict)
    capacity: int = field(init=False)

    def __post_init__(self) -> None:
        self.capacity = FEWEST
        self.arrays = {name: filled(type, 0, FEWEST) for name, type in self.cells.items()}

    def reserve(self, base: int, first: int, end: int, rows: int) -> int:
        """Make room for rows; samples before `first` may be dropped for that. Return the new base.

        Samples are moved only if there are fewer than those dropped, or into memory that doubles: amortised constant.
        """
        if end - base + rows <= self.capacity:
            return base
        kept = end - first
        while self.capacity < 2 * kept + rows + min(SEVERAL * rows, MOST_SPARE):
            self.capacity *= 2
        for name, type in self.cells.items():
            words = words_per_cell(type)
            larger = np.empty(words * self.capacity, numpy_type(type))
            larger[: words * kept] = self.arrays[name][words * (first - base) : words * (end - base)]
            self.arrays[name] = larger
        return first


@dataclass
class SampleArrivals:
    """The rows of one sampled object on their way to its track."""

    port: int
    rows_stage: RowsStage
    schema: pa.Schema
    time: Time
    values: tuple[str, ...]  # columns of rows
    ahead: RowsAhead

    def take(self, timed_batch: TimedBatch) -> None:
        made = self.rows_stage.push(0, [timed_batch])
        self.ahead.add(arrived(made, self.schema, self.time))
