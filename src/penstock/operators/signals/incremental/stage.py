"""The stage of an incremental signal: samples wait until the watermark passes them; then a kernel goes from event to event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.algorithms.keyed_states.table import CompletedStates, KeyedProgram, KeyedTable
from penstock.algorithms.sort.sorting import Sorter
from penstock.algorithms.sorted_partitions.rows import Rows, no_rows, rows_back
from penstock.algorithms.sorted_partitions.rows_ahead import RowsAhead
from penstock.errors import OverflowError
from penstock.loop.abi import numbered
from penstock.loop.nodes import Type
from penstock.operators.signals.incremental.samples import Moves, SampleArrivals, SampleStore
from penstock.operators.signals.intervals import ValueRuns, batch_of_runs, moments_of
from penstock.operators.signals.points import as_type
from penstock.operators.signals.sampling import FARTHEST_TIME, TOO_FAR
from penstock.operators.signals.stage import IntervalLayout, late_rows_dropped
from penstock.runtime.buffers import indices, plain, to_arrow, values_view
from penstock.runtime.metrics import Metrics
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, TimedBatch
from penstock.state.state_table import (
    StateTable,
    array_of,
    integers,
    numbered_from_zero,
    read_scalars,
    require,
    scalars,
    typed,
)
from penstock.types.time import Time

# Words of `marks`, see kernels/events.py.
NOW, TOUCHED, EVALUATED, INSTANT, OLDEST, NEWEST, TRACKS = range(7)
BASE, END, PER_TRACK = 0, 1, 2
NONE = -1
SAMPLE, HELD, OPEN = (
    (f"{kind}_value", f"{kind}_there") for kind in ("sample", "held", "open")
)  # parameters of cells
EVENTS, RESTORING = "events", "restoring"  # kernels; those that only enter rows are named after their track


class SignalKernels(KeyedProgram, Protocol):
    """The kernels of a signal, and the cells that they keep: per key, by hint, and per sample of each track."""

    @property
    def cells(self) -> Mapping[str, tuple[Type, ...]]: ...
    @property
    def samples(self) -> Sequence[Mapping[str, Type]]: ...


class SignalTable(KeyedTable):
    """Keys with cells of several kinds; the samples are kept apart."""

    program: SignalKernels

    def _types(self, hint: str) -> tuple[Type, ...]:
        return self.program.cells[hint]

    def _columns(self, batch: pa.RecordBatch) -> Sequence[str]:
        names: list[str] = batch.schema.names
        return names

    def _order(self, rows: int) -> np.ndarray | None:
        """Intervals leave in order of their starts."""
        starts = self._outputs["out_first"][:rows]
        return None if (starts[1:] >= starts[:-1]).all() else np.argsort(starts, kind="stable")


@dataclass
class IncrementalSignals:
    """Emits the intervals of an expression over samples as they end, or as they begin if the layout has no ends."""

    program: SignalKernels
    arrivals: Sequence[SampleArrivals]
    moves: Moves
    layout: IntervalLayout
    times: Sequence[Time]
    metrics: Metrics
    sorter: Sorter
    watermark: int = field(init=False, default=START_OF_TIME)
    ports: list[int] = field(init=False)
    table: SignalTable = field(init=False)
    stores: list[SampleStore] = field(init=False)
    marks: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        moves, program = self.moves, self.program
        self.ports = [START_OF_TIME] * len(self.times)
        of_keys = {"touched": 0, "stamp": 0, "start": 0, "open": 0, "older": NONE, "newer": NONE}
        of_keys |= {numbered("newest_sample", track): NONE for track in range(len(self.arrivals))}
        for place in range(len(moves.accesses)):
            of_keys |= {numbered("held_number", place): NONE, numbered("held_time", place): 0}
        for place in range(len(moves.spans)):
            of_keys |= {numbered("held", place): 0}
            of_keys |= {numbered(name, place): NONE for name in ("first", "newest", "middle")}
        self.table = SignalTable(program, of_keys, {}, tuple(program.cells))
        self.stores = [SampleStore(cells) for cells in program.samples]
        self.marks = np.zeros(TRACKS + PER_TRACK * len(self.stores) + len(moves.tracks), np.int64)
        self.marks[[OLDEST, NEWEST]] = NONE
        self._fixed = moves.arguments()

    # -- stage ---------------------------------------------------------------------------------------

    def push(self, port: int, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        for timed_batch in timed_batches:
            timely = late_rows_dropped(timed_batch, port, self.times[port], self.ports, self.metrics)
            if timely.batch.num_rows:
                for track, arrivals in enumerate(self.arrivals):
                    if arrivals.port == port:
                        self._take(track, arrivals.computed(timely))
        return []

    def _take(self, track: int, rows: Rows) -> None:
        arrivals = self.arrivals[track]
        if arrivals.in_order(rows):
            if len(rows):
                arrivals.entering.append(rows)
                arrivals.newest = int(rows.times[-1])
            return
        if arrivals.orderly:
            self._take_back(track)
        arrivals.ahead.add(rows)

    def _take_back(self, track: int) -> None:
        """A row came out of order: let the samples that the watermark has not passed wait again, as if they had from the first."""
        arrivals, begin = self.arrivals[track], self._passed(track)
        waiting = self._waiting(track)
        keys = self._sample_keys(track, begin)
        self.table.arrays[numbered("newest_sample", track)][keys] = NONE
        self.marks[TRACKS + PER_TRACK * track + END] = begin
        arrivals.ahead = RowsAhead(arrivals.schema, self.sorter)
        arrivals.ahead.add(waiting)
        arrivals.entering, arrivals.orderly = [], False

    def _passed(self, track: int) -> int:
        """The number of the first sample that the watermark has not passed."""
        first = self._first(track)
        times = self._kept(track, numbered("sample_time", track), first)
        return (
            first + int(np.searchsorted(times, self.watermark))
            if self.watermark != END_OF_TIME
            else self._end(track)
        )

    def _kept(self, track: int, name: str, first: int) -> np.ndarray:
        """A view of the cells of samples from a number on."""
        base = int(self.marks[TRACKS + PER_TRACK * track + BASE])
        found: np.ndarray = self.stores[track].arrays[name][first - base : self._end(track) - base]
        return found

    def _waiting(self, track: int) -> Rows:
        """The rows that the watermark has not passed, those of one time in order of arrival."""
        arrivals = self.arrivals[track]
        early = self._sample_rows(track, self._passed(track), self._end(track))
        return early.followed_by(*arrivals.entering, arrivals.ahead.rows())

    def advance(self, port: int, watermark: int) -> tuple[list[TimedBatch], int]:
        self.ports[port] = max(self.ports[port], watermark)
        now = min(self.ports)
        if now <= self.watermark:
            return [], self._ahead()
        self.watermark = now
        released = [arrivals.released(now) for arrivals in self.arrivals]
        batch = self._batch(list(self._run(released, EVENTS)))
        if self.table.crowded():
            self._forget_keys()
        return ([TimedBatch(batch, counted=True)] if batch.num_rows else []), self._ahead()

    def _ahead(self) -> int:
        """Return the earliest possible start of future intervals: of a new key, or of one that is open."""
        if self.watermark in (START_OF_TIME, END_OF_TIME):
            return self.watermark
        known = [self.watermark - self.layout.lag, self.moves.final(self.watermark)]
        oldest = int(self.marks[OLDEST])
        if oldest != NONE:
            known.append(int(self.table.arrays["start"][oldest]))
        return max(min(known), START_OF_TIME)

    # -- kernels -------------------------------------------------------------------------------------

    def _run(self, released: Sequence[Sequence[Rows]], variant: str) -> Iterator[CompletedStates]:
        """Enter rows into their tracks, then apply the events up to the time that is final."""
        for track in range(len(released) - 1, 0, -1):
            for rows in released[track]:
                yield from self._enter(track, rows, str(track))
        *before, last = released[0] or [no_rows(self.arrivals[0].schema)]
        for rows in before:
            yield from self._enter(0, rows, "0")
        yield from self._enter(0, last, variant)

    def _enter(self, track: int, rows: Rows, variant: str) -> Iterator[CompletedStates]:
        _check_times(rows.times)
        self._reserve(track, len(rows))
        given: dict[str, object] = {
            **self._fixed, "limit": self.moves.final(self.watermark), "marks": self.marks
        }  # fmt: skip
        for store in self.stores:
            given |= store.arrays
        return self.table.run(rows.batch, variant, given)

    def _first(self, track: int) -> int:
        """The number of the first sample that a cursor has not passed."""
        positions = self.marks[TRACKS + PER_TRACK * len(self.stores) :]
        own = [at for at, of in zip(positions.tolist(), self.moves.tracks, strict=True) if of == track]
        return min(own, default=self._end(track))

    def _end(self, track: int) -> int:
        return int(self.marks[TRACKS + PER_TRACK * track + END])

    def _reserve(self, track: int, rows: int) -> None:
        word = TRACKS + PER_TRACK * track + BASE
        base = int(self.marks[word])
        if self._end(track) - base + rows > self.stores[track].capacity:
            self.marks[word] = self.stores[track].reserve(base, self._first(track), self._end(track), rows)

    # -- results -------------------------------------------------------------------------------------

    def _batch(self, found: list[CompletedStates]) -> pa.RecordBatch:
        runs = [ValueRuns(made.keys, made.first, made.last, self._named(made.reduced)) for made in found]
        if self.watermark == END_OF_TIME and self.layout.ends:
            runs.append(self._open_runs())
        whole = runs[0] if len(runs) == 1 else self._joined(runs)
        if (whole.start[1:] < whole.start[:-1]).any():
            whole = whole.chosen(self.sorter.order(whole.start))
        keys = self.table.directory.arrays(whole.partition)
        return batch_of_runs(whole.start, whole.end, [*keys, *whole.columns.values()], self.layout.schema)

    def _named(self, arrays: Sequence[pa.Array]) -> dict[str, pa.Array]:
        return dict(zip(self.layout.values.names, arrays, strict=True))

    def _joined(self, runs: Sequence[ValueRuns]) -> ValueRuns:
        def whole(arrays: list[np.ndarray]) -> np.ndarray:
            return np.concatenate([np.zeros(0, np.int64), *arrays])

        columns = {
            field.name: pa.concat_arrays(
                [pa.nulls(0, field.type), *(run.columns[field.name] for run in runs)]
            )
            for field in self.layout.values
        }
        parts = [run.partition for run in runs], [run.start for run in runs], [run.end for run in runs]
        return ValueRuns(whole(parts[0]), whole(parts[1]), whole(parts[2]), columns)

    def _open_runs(self) -> ValueRuns:
        """The open intervals, whose ends are not known."""
        arrays = self.table.arrays
        keys = np.flatnonzero(arrays["open"][: len(self.table.directory)])
        values = [
            to_arrow(
                arrays[numbered("open_value", place)][keys], arrays[numbered("open_there", place)][keys], type
            )
            for place, type in enumerate(self.layout.values.types)
        ]
        ends = np.full(len(keys), END_OF_TIME, np.int64)
        return ValueRuns(keys, arrays["start"][keys], ends, self._named(values))

    # -- keys ----------------------------------------------------------------------------------------

    def _used(self, ends: Sequence[int]) -> np.ndarray:
        """Which keys have samples that are kept, a value that holds, or an open interval; `ends` are those of the tracks."""
        arrays, keys = self.table.arrays, len(self.table.directory)
        used: np.ndarray = arrays["open"][:keys] != 0
        for place in range(len(self.program.cells["held_there"])):
            used |= arrays[numbered("held_there", place)][:keys] != 0
        for track, end in enumerate(ends):
            first = self._first(track)
            used[self._sample_keys(track, first)[: end - first]] = True
        return used

    def _sample_keys(self, track: int, first: int) -> np.ndarray:
        """A view of the keys of samples from a number on."""
        return self._kept(track, numbered("sample_key", track), first)

    def _forget_keys(self) -> None:
        """Forget the keys that no future result depends on."""
        ends = [self._end(track) for track in range(len(self.stores))]
        moved = self.table.keep_keys(np.flatnonzero(self._used(ends)))
        for track in range(len(self.stores)):
            keys = self._sample_keys(track, self._first(track))
            keys[:] = moved[keys]
        for words in (self.table.arrays["older"], self.table.arrays["newer"]):
            words[:] = np.where(words == NONE, NONE, moved[words])
        for word in (OLDEST, NEWEST):
            if self.marks[word] != NONE:
                self.marks[word] = moved[self.marks[word]]

    # -- state: the rows and open intervals that `SignalStage` saves, so that either stage goes on from both ----

    def save(self) -> Mapping[str, StateTable]:
        ports = {f"port_{port}": mark for port, mark in enumerate(self.ports)}
        kept = {f"rows_{track}": self._rows(track) for track in range(len(self.arrivals))}
        rows = {name: rows.kept(self.layout.keys) for name, rows in kept.items() if len(rows)}
        return {"marks": scalars(watermark=self.watermark, **ports), "partitions": self._partitions(), **rows}

    def _rows(self, track: int) -> Rows:
        """The samples that are kept, those whose value holds, and the rows that wait."""
        arrivals = self.arrivals[track]
        if self.watermark == END_OF_TIME:
            return no_rows(arrivals.schema)
        passed = self._sample_rows(track, self._first(track), self._passed(track))
        return self._held_rows(track).followed_by(passed, self._once(track, self._waiting(track)))

    def _once(self, track: int, rows: Rows) -> Rows:
        """Of rows of one key and time, the last one in place of the first."""
        if len(rows) < 2:
            return rows
        order = rows.order(self.sorter)
        order = np.arange(len(rows)) if order is None else order
        columns = [as_type(rows.column(key.name), key.type) for key in self.program.keys]
        keys = self.table.key_numbers(columns, len(rows))[order]
        grouped = order[np.lexsort((keys, rows.times[order]))]
        begins = np.ones(len(rows), np.bool_)
        numbers = np.empty(len(rows), np.int64)
        numbers[order] = keys
        alike = rows.times[grouped[1:]] == rows.times[grouped[:-1]]
        begins[1:] = ~(alike & (numbers[grouped[1:]] == numbers[grouped[:-1]]))
        starts = np.flatnonzero(begins)
        last = grouped[np.append(starts[1:], len(rows)) - 1]
        return rows.chosen(last[np.argsort(np.minimum.reduceat(grouped, starts))])

    def _sample_rows(self, track: int, first: int, end: int) -> Rows:
        """Samples from one number to another as rows."""
        arrivals, count = self.arrivals[track], end - first
        columns = {}
        begin = sum(len(other.values) for other in self.arrivals[:track])
        for place, name in enumerate(arrivals.values, start=begin):
            values, there = (self._kept(track, numbered(hint, place), first)[:count] for hint in SAMPLE)
            columns[name] = to_arrow(values.copy(), there, arrivals.schema.field(name).type)
        times = self._kept(track, numbered("sample_time", track), first)[:count].copy()
        return self._as_rows(track, self._sample_keys(track, first)[:count], times, columns)

    def _held_rows(self, track: int) -> Rows:
        """The last sample of each key that all cursors have passed, if its value holds."""
        arrays, offsets, arrivals = self.table.arrays, self.moves.offsets, self.arrivals[track]
        own = [(place, access) for place, access in enumerate(self.moves.accesses) if access.track == track]
        if not own:
            return no_rows(arrivals.schema)
        slowest, access = max(own, key=lambda pair: offsets[pair[1].cursor])
        begin = sum(len(other.columns) for other in self.moves.accesses[:slowest])
        cells = {name: place for place, name in enumerate(access.columns, start=begin)}
        numbers = arrays[numbered("held_number", slowest)]
        holds = np.zeros(len(numbers), np.bool_)
        for place in cells.values():
            holds |= arrays[numbered("held_there", place)] != 0
        keys = np.flatnonzero(holds & (numbers < self._first(track)) & (numbers != NONE))
        columns = {}
        for name in arrivals.values:
            dtype = arrivals.schema.field(name).type
            if name in cells:
                values, there = (arrays[numbered(hint, cells[name])][keys] for hint in HELD)
                columns[name] = to_arrow(values, there, dtype)
            else:
                columns[name] = pa.nulls(len(keys), dtype)
        return self._as_rows(track, keys, arrays[numbered("held_time", slowest)][keys], columns)

    def _as_rows(self, track: int, keys: np.ndarray, times: np.ndarray, columns: dict[str, pa.Array]) -> Rows:
        arrivals = self.arrivals[track]
        names = self.layout.keys
        known = dict(zip(names, self.table.directory.arrays(keys), strict=True))
        arrays = []
        for column in arrivals.schema:
            if column.name in columns:
                arrays.append(columns[column.name])
            elif column.name in known:
                arrays.append(as_type(known[column.name], column.type))
            else:
                arrays.append(moments_of(times - arrivals.time.shift, None, column.type))
        batch = pa.RecordBatch.from_arrays(arrays, schema=arrivals.schema)
        return Rows(batch, times, None, None, np.ones(len(times), np.bool_))

    def _partitions(self) -> StateTable:
        """The key, progress and open interval of each used key, in order of the keys."""
        ends = [self._passed(track) for track in range(len(self.stores))]
        used = np.flatnonzero(self._used(ends)) if self.watermark != END_OF_TIME else np.zeros(0, np.int64)
        names = [f"key:{name}" for name in self.layout.keys]
        keys = pa.Table.from_arrays(
            [*map(plain, self.table.directory.arrays(used, decoded=True)), indices(used)], [*names, "n"]
        )
        used = values_view(
            array_of(keys.sort_by([(name, "ascending") for name in names]) if names else keys, "n")
        )
        arrays = self.table.arrays
        opened = arrays["open"][used]
        emitted = START_OF_TIME if self.watermark == START_OF_TIME else self.moves.final(self.watermark)
        columns = dict(zip(names, map(plain, self.table.directory.arrays(used, decoded=True)), strict=True))
        columns["partition"] = indices(np.arange(len(used)))
        columns["emitted"] = indices(np.full(len(used), emitted, np.int64))
        columns["open"] = indices((opened != 0).astype(np.int64))
        columns["start"] = indices(np.where(opened != 0, arrays["start"][used], 0))
        for place, value in enumerate(self.layout.values):
            values, there = (arrays[numbered(hint, place)][used] for hint in OPEN)
            there = np.where(opened != 0, there, 0).astype(
                there.dtype
            )  # of a closed interval, what memory held
            columns[f"value:{value.name}"] = to_arrow(
                np.where(there != 0, values, 0).astype(values.dtype), there, value.type
            )
        table = pa.Table.from_arrays(list(columns.values()), names=list(columns))
        return StateTable(table, tuple(names), ("partition",))

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        saved = read_scalars(tables["marks"])
        self.watermark = saved["watermark"]
        self.ports = [saved[f"port_{port}"] for port in range(len(self.times))]
        released = []
        for track, arrivals in enumerate(self.arrivals):
            name = f"rows_{track}"
            rows = no_rows(arrivals.schema)
            if name in tables:
                rows = rows_back(tables[name], arrivals.schema, arrivals.time)
            arrivals.ahead.add(rows.chosen(rows.times >= self.watermark))
            passed = rows.chosen(rows.times < self.watermark)
            order = passed.order(self.sorter)
            released.append([passed if order is None else passed.chosen(order)])
        for _ in self._run(released, RESTORING):
            raise AssertionError("restored samples have no results")
        if "partitions" in tables:
            self._load_open(numbered_from_zero(tables["partitions"], "partition"))

    def _load_open(self, table: pa.Table) -> None:
        opened = np.flatnonzero(integers(table, "open"))
        table = table.take(indices(opened[np.argsort(integers(table, "start")[opened], kind="stable")]))
        starts = integers(table, "start")
        require((starts < self.moves.final(self.watermark)).all(), "the open intervals of a signal")
        keys, arrays = self.table.numbers(table), self.table.arrays
        arrays = self.table.arrays
        arrays["start"][keys], arrays["open"][keys] = starts, 1
        for place, value in enumerate(self.layout.values):
            column = typed(table, f"value:{value.name}", value.type)
            there = column.is_valid().to_numpy(zero_copy_only=False)
            numbers = (
                column.fill_null(False).to_numpy(zero_copy_only=False)
                if pa.types.is_boolean(value.type)
                else values_view(column)
            )
            arrays[numbered("open_value", place)][keys] = numbers
            arrays[numbered("open_there", place)][keys] = there
        if len(keys) and self.layout.ends:
            arrays["older"][keys], arrays["newer"][keys] = [NONE, *keys[:-1]], [*keys[1:], NONE]
            self.marks[[OLDEST, NEWEST]] = keys[0], keys[-1]


def _check_times(times: np.ndarray) -> None:
    """Refuse times, which ascend, that cannot be moved."""
    if len(times) and max(-int(times[0]), int(times[-1])) > FARTHEST_TIME:
        raise OverflowError(TOO_FAR)
