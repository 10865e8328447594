"""The samples of an incremental signal in order of time, its cursors and spans, and when its results are final."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.algorithms.sorted_partitions.rows import Rows, arrived
from penstock.algorithms.sorted_partitions.rows_ahead import RowsAhead
from penstock.loop.abi import numbered
from penstock.loop.nodes import Type
from penstock.operators.rows.stage import RowsStage
from penstock.operators.signals.accesses import SpanReading
from penstock.operators.signals.points import BEGINNING
from penstock.runtime.buffers import filled, numpy_type, words_per_cell
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, TimedBatch
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
    """The rows of one sampled object on their way to its track.

    Rows in order of time enter it at once, whatever the watermark is. As soon as one comes out of order, all wait in sorted
    runs until the watermark has passed them.
    """

    port: int
    rows_stage: RowsStage
    schema: pa.Schema
    time: Time
    values: tuple[str, ...]  # columns of rows
    ahead: RowsAhead
    newest: int = START_OF_TIME  # the time of the last row in order
    orderly: bool = True  # no row came out of order
    entering: list[Rows] = field(default_factory=list)  # rows in order, on their way to the track

    def computed(self, timed_batch: TimedBatch) -> Rows:
        """Return the samples of a batch."""
        return arrived(self.rows_stage.push(0, [timed_batch]), self.schema, self.time)

    def in_order(self, rows: Rows) -> bool:
        """Whether rows, and all before them, came in order of time."""
        if not self.orderly or self.ahead.chains or rows.sequence is not None or rows.branch is not None:
            return False
        times = rows.times
        return not len(rows) or bool(times[0] >= self.newest and (times[1:] >= times[:-1]).all())

    def released(self, watermark: int) -> list[Rows]:
        """Remove and return the rows that enter the track: all of those in order, others once the watermark passed them."""
        entering, self.entering = self.entering, []
        if self.ahead.chains:
            in_a_chain = self.orderly and len(self.ahead.chains) == 1
            rows = self.ahead.release(END_OF_TIME if in_a_chain and self._plain() else watermark)
            if len(rows):
                self.newest = int(rows.times[-1])
                return [rows]
        return entering

    def _plain(self) -> bool:
        """Whether rows of one time are in order of arrival."""
        rows = self.ahead.chains[0][0].rows
        return rows.sequence is None and rows.branch is None


@dataclass(frozen=True)
class HeldAccess:
    """A value behind a cursor: its track, and the names of the track's columns that it holds."""

    track: int
    cursor: int
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Moves:
    """How time moves: the track and the offset of each cursor, the spans that are reduced, and all spans and shifts of
    which results become final.
    """

    tracks: tuple[int, ...]
    offsets: tuple[int, ...]
    spans: tuple[SpanReading, ...]
    inputs: tuple[SpanReading, ...]
    shifts: tuple[int, ...]
    accesses: tuple[HeldAccess, ...]

    def final(self, watermark: int) -> int:
        """Return the time before which results are final."""
        if watermark == END_OF_TIME:
            return END_OF_TIME
        time = max(watermark, BEGINNING)
        return min([*(time + shift for shift in self.shifts), *(_final(span, time) for span in self.inputs)])

    def arguments(self) -> dict[str, object]:
        """The kernel arguments that do not change."""
        found: dict[str, object] = {}
        for place, offset in enumerate(self.offsets):
            found[numbered("offset", place)] = offset
        for place, span in enumerate(self.spans):
            found[numbered("size", place)] = span.size
            found[numbered("step", place)] = span.step
            found[numbered("delay", place)] = span.delay
        return found


def _final(span: SpanReading, time: int) -> int:
    """Return the time before which a span is final: a tumbling window holds from its beginning."""
    return (time - time % span.step if span.kind == "per" else time) + span.delay
