"""The eager join stage: each open window has a run of an eager algorithm, which emits pairs as rows arrive.

A pair is emitted with its later row, or shortly after (pmj). Unmatched rows are emitted when their window is
complete; the window's state is then dropped, so the watermark bounds the state. The order of results depends on
the order of arrival; a caller accepts this by naming an eager algorithm in `run` or `open`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.algorithms.joins.adapt.auto_join import WatchedRun
from penstock.algorithms.joins.joiner import EagerJoiner, EagerRun, Pairs
from penstock.algorithms.sorted_partitions.rows import Rows, rows_back
from penstock.operators.joins.algorithm_pairs import is_whole
from penstock.operators.joins.partitions import PartitionKernels
from penstock.operators.joins.results import (
    NULL_ROW,
    JoinShape,
    Residual,
    Results,
    alone,
    joined_pairs,
    left_rows,
    preserves,
    satisfying,
)
from penstock.operators.joins.stage import Port
from penstock.operators.joins.windows import GridWindows
from penstock.runtime.buffers import flags, indices, values_view
from penstock.runtime.metrics import ChosenAlgorithm, JoinMetrics
from penstock.runtime.stage import START_OF_TIME, TimedBatch
from penstock.state.state_table import StateTable, in_order, kept_rows, read_scalars, rows_of, scalars

Keys = tuple[tuple[str, ...], tuple[str, ...]]


@dataclass
class EagerRows:
    """Rows of one side of a window, in few pieces of geometrically falling size, so that rows are seldom copied."""

    pieces: list[Rows] = field(default_factory=list)
    matched: np.ndarray = field(default_factory=lambda: np.zeros(0, np.bool_))

    def __len__(self) -> int:
        return len(self.matched)

    def add(self, rows: Rows) -> None:
        self.matched = np.concatenate([self.matched, np.zeros(len(rows), np.bool_)])
        self.pieces.append(rows)
        while len(self.pieces) > 1 and len(self.pieces[-2]) < 2 * len(self.pieces[-1]):
            last = self.pieces.pop()
            self.pieces[-1] = self.pieces[-1].followed_by(last)

    def taken(self, places: np.ndarray) -> Rows:
        """Return the rows at some indices; NULL_ROW yields an arbitrary row."""
        known = np.maximum(places, 0)
        if len(self.pieces) == 1:
            return self.pieces[0].chosen(known)
        chosen, order = [], np.empty(len(known), np.int64)
        begin = done = 0
        for piece in self.pieces:
            here = np.flatnonzero((known >= begin) & (known < begin + len(piece)))
            chosen.append(piece.chosen(known[here] - begin))
            order[here] = np.arange(done, done + len(here))
            begin, done = begin + len(piece), done + len(here)
        rows = chosen[0]
        for part in chosen[1:]:
            rows = rows.followed_by(part)
        return rows.chosen(order)

    @property
    def whole(self) -> Rows:
        """All rows, merged into one piece."""
        while len(self.pieces) > 1:
            last = self.pieces.pop()
            self.pieces[-1] = self.pieces[-1].followed_by(last)
        return self.pieces[0]


class OpenWindow:
    """The state of one window while its rows arrive."""

    def __init__(self, bounds: tuple[int, int], parts: Parts) -> None:
        self.bounds, self._parts = bounds, parts
        self.sides = EagerRows(), EagerRows()
        self._index = parts.kernels.new_index(len(parts.keys[0]))
        self._run: WatchedRun | None = None
        self._places: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        self._settled = [0, 0]  # all pairs among the first n rows of each side have been emitted

    def push(self, side: int, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Add rows of a side; yield the new results."""
        begin = len(self.sides[side])
        self.sides[side].add(rows)
        return self._results(self._pushed(side, rows, begin))

    def close(self) -> Iterator[pa.RecordBatch]:
        """Close the window: yield the remaining pairs, then the unmatched rows."""
        yield from self._results(self._finished())
        yield from self._given(self._alone())

    def settle(self) -> list[pa.RecordBatch]:
        """Return all pairs found so far and close the run, so that the rows alone define the remaining work."""
        made = list(self._results(self._finished()))
        self._settled = [len(buffered) for buffered in self.sides]
        return made

    def resume(self, settled: Sequence[int], matched: Sequence[np.ndarray]) -> None:
        """Restore the state of a saved window."""
        self._settled = list(settled)
        for buffered, known in zip(self.sides, matched, strict=True):
            buffered.matched = known

    # -- pairs -------------------------------------------------------------------------------------------

    def _pushed(self, side: int, rows: Rows, begin: int) -> Pairs:
        if self._run is None:
            self._begin(side, begin)
        return self._push(side, rows, begin)

    def _begin(self, side: int, begin: int) -> None:
        """Open a run and push the earlier rows again, if a run was closed for a checkpoint; `_new` drops their
        pairs.
        """
        self._run = WatchedRun(self._parts.open())
        self._places = [], []
        self._index = self._parts.kernels.new_index(len(self._parts.keys[0]))
        for place, buffered in enumerate(self.sides):
            before = begin if place == side else len(buffered)
            if before:
                self._push(place, buffered.whole.part(0, before), 0)

    def _push(self, side: int, rows: Rows, begin: int) -> Pairs:
        assert self._run is not None
        codes, there = self._codes(side, rows)
        self._places[side].append(begin + there)
        return self._new(self._run.push_right(codes) if side else self._run.push_left(codes))

    def _finished(self) -> Pairs:
        if self._run is None:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        found = self._new(self._run.close())
        self._parts.note(self._run.chosen or ChosenAlgorithm(self._parts.joiner.name), self._run.metrics)
        self._run = None
        return found

    def _codes(self, side: int, rows: Rows) -> Pairs:
        """Return the codes of rows without a null in the key, and the indices of these rows."""
        columns = [rows.batch.column(name) for name in self._parts.keys[side]]
        known = np.logical_and.reduce(
            [column.is_valid().to_numpy(zero_copy_only=False) for column in columns]
        )
        there = np.flatnonzero(known)
        if self._parts.whole:
            return values_view(columns[0]).astype(np.int64)[there], there
        return self._index.number(columns)[there], there

    def _new(self, pairs: Pairs) -> Pairs:
        """Map the run's row numbers to row indices; drop pairs that were emitted before."""
        own, other = (
            np.concatenate([np.zeros(0, np.int64), *places])[numbers] if len(numbers) else numbers
            for places, numbers in zip(self._places, pairs, strict=True)
        )
        fresh = (own >= self._settled[0]) | (other >= self._settled[1])
        return (own, other) if fresh.all() else (own[fresh], other[fresh])

    # -- results -----------------------------------------------------------------------------------------

    def _results(self, pairs: Pairs) -> Iterator[pa.RecordBatch]:
        if not len(pairs[0]):
            return
        pairs = self._satisfying(pairs)
        own, other = pairs
        first = ~self.sides[0].matched[own]
        self.sides[0].matched[own] = True
        self.sides[1].matched[other] = True
        how = self._parts.how
        if how == "anti":
            return
        if how == "semi":
            pairs = alone(np.unique(own[first]), 0)
        yield from self._given(pairs)

    def _satisfying(self, pairs: Pairs) -> Pairs:
        residual = self._parts.residual
        if residual is None:
            return pairs
        left, right = (buffered.taken(places) for buffered, places in zip(self.sides, pairs, strict=True))
        all_pairs = np.arange(len(left))
        kept, _ = satisfying((all_pairs, all_pairs), residual, left, right)
        return pairs[0][kept], pairs[1][kept]

    def _alone(self) -> Pairs:
        """Return the unmatched rows of the sides that `how` preserves."""
        how = self._parts.how
        if how == "anti":
            return alone(left_rows(how, self.sides[0].matched), 0)
        return joined_pairs(
            [
                alone(np.flatnonzero(~side_rows.matched), side)
                for side, side_rows in enumerate(self.sides)
                if preserves(how, side)
            ]
        )

    def _given(self, pairs: Pairs) -> Iterator[pa.RecordBatch]:
        """Yield the result batches of some pairs; the rows of both sides are gathered first."""
        if not len(pairs[0]):
            return
        rows = [
            buffered.taken(places) if len(buffered) else self._parts.null_row[side]
            for side, (buffered, places) in enumerate(zip(self.sides, pairs, strict=True))
        ]
        number = np.arange(len(pairs[0]))
        left, right = (np.where(pair == NULL_ROW, NULL_ROW, number) for pair in pairs)
        start, end = (np.full(len(number), bound) for bound in self.bounds)
        results = Results(left, right, start, end)
        yield from self._parts.shape.batches(results, rows[0], rows[1], self._parts.kernels.threads)


@dataclass(frozen=True)
class Parts:
    """The configuration that the windows of a join share. `whole`: the key is a single integer column."""

    joiner: EagerJoiner
    how: str
    keys: Keys
    residual: Residual | None
    shape: JoinShape
    kernels: PartitionKernels
    whole: bool
    null_row: tuple[Rows, Rows]
    note: Callable[[ChosenAlgorithm, JoinMetrics], None]

    def open(self) -> EagerRun:
        return self.joiner.open(self.kernels.threads)


def whole_numbers(port: Port) -> bool:
    """Whether the key of a side is a single integer column."""
    return len(port.keys) == 1 and is_whole(port.schema.field(port.keys[0]).type)


@dataclass
class EagerJoinStage:
    """Two ports, and an eager run for each open window of a grid."""

    left: Port
    right: Port
    windows: GridWindows
    parts: Parts
    open_windows: dict[int, OpenWindow] = field(default_factory=dict)
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    watermark: int = START_OF_TIME

    def push(self, port: int, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        side = self._ports[port]
        made = self._waited()
        rows = side.taken(timed_batches)
        if rows is not None:
            for start, end, some in self._by_window(rows):
                made += self._window(start, end).push(port, some)
        return [TimedBatch(batch, counted=True) for batch in made]

    def advance(self, port: int, watermark: int) -> tuple[list[TimedBatch], int]:
        side = self._ports[port]
        side.watermark = max(side.watermark, watermark)
        self.watermark = min(self.left.watermark, self.right.watermark)
        made = self._waited()
        for end in sorted(end for end in self.open_windows if end <= self.watermark):
            made += self.open_windows.pop(end).close()
        return [TimedBatch(batch, counted=True) for batch in made if batch.num_rows], self._ahead()

    def _ahead(self) -> int:
        """Return the output watermark: a future pair lies in an open window or consists of future rows."""
        starts = [window.bounds[0] for window in self.open_windows.values()]
        return min([self.watermark, *starts])

    def _waited(self) -> list[pa.RecordBatch]:
        made, self.waiting = self.waiting, []
        return made

    def _by_window(self, rows: Rows) -> Iterator[tuple[int, int, Rows]]:
        placed = self.windows.side(rows.times)
        for end in np.unique(placed.end[placed.inside]).tolist():
            which = placed.inside & (placed.end == end)
            yield end - self.windows.grid.size, end, rows.chosen(which)

    def _window(self, start: int, end: int) -> OpenWindow:
        if end not in self.open_windows:
            self.open_windows[end] = OpenWindow((start, end), self.parts)
        return self.open_windows[end]

    # -- state ---------------------------------------------------------------------------------------------

    def save(self) -> Mapping[str, StateTable]:
        """Save rows, their matched flags, and the results that settling the windows emitted."""
        for window in self.open_windows.values():
            self.waiting += window.settle()
        times = {"left": self.left.watermark, "right": self.right.watermark}
        kept: dict[str, StateTable] = {"marks": scalars(**times)}
        for place, name in enumerate(("left", "right")):
            buffered_sides = [
                open_window.sides[place]
                for open_window in self.open_windows.values()
                if len(open_window.sides[place])
            ]
            if buffered_sides:
                kept[name] = _kept(buffered_sides, self._ports[place])
        if self.waiting:
            made = pa.Table.from_batches(self.waiting)
            kept["waiting"] = kept_rows(made, np.zeros(len(made), np.int64), ())
        return kept

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        saved = read_scalars(tables["marks"])
        for place, name in enumerate(("left", "right")):
            port = self._ports[place]
            port.watermark = saved[name]
            if name in tables:
                self._take_back(place, port, tables[name])
        self.watermark = min(self.left.watermark, self.right.watermark)
        for window in self.open_windows.values():
            window.resume(
                [len(buffered) for buffered in window.sides], [buffered.matched for buffered in window.sides]
            )
        if "waiting" in tables:
            self.waiting = [_batch_back(tables["waiting"], self.parts.shape.schema)]

    def _take_back(self, place: int, port: Port, table: pa.Table) -> None:
        rows = rows_back(table, port.schema, port.time)
        matched = ~rows.fresh
        placed = self.windows.side(rows.times)
        for end in np.unique(placed.end).tolist():
            which = placed.end == end
            buffered = self._window(end - self.windows.grid.size, end).sides[place]
            buffered.add(rows.chosen(which))
            buffered.matched = matched[which]

    @property
    def _ports(self) -> tuple[Port, Port]:
        return self.left, self.right


def _kept(buffered_sides: Sequence[EagerRows], port: Port) -> StateTable:
    rows = [buffered.whole for buffered in buffered_sides]
    table = pa.Table.from_batches([row.batch for row in rows])
    times = np.concatenate([row.times for row in rows])
    alone = ~np.concatenate([buffered.matched for buffered in buffered_sides])
    branch = indices(np.zeros(len(times), np.int64))
    return kept_rows(table, times, port.keys, branch=branch, fresh=flags(alone))


def _batch_back(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    return rows_of(in_order(table), schema)
