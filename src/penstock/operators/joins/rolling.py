"""Rolling joins: aggregates over the rows of the other side around each row, at once or between pushes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.algorithms.kernel_factory import BatchArguments
from penstock.algorithms.keyed_states.row_store import NULL_KEY, RowStore
from penstock.algorithms.keyed_states.table import KeyedProgram
from penstock.algorithms.sorted_partitions.frames import Frames
from penstock.algorithms.sorted_partitions.partitions import SortedPartitions
from penstock.algorithms.sorted_partitions.results import Reductions
from penstock.algorithms.sorted_partitions.rows import Rows, taken
from penstock.loop.abi import ERRORS, WORDS, numbered
from penstock.operators.joins.incremental import HeldSides
from penstock.operators.joins.partitions import PartitionKernels, find, lay, number_keys
from penstock.operators.joins.results import RowByRow, Waits
from penstock.runtime.buffers import column_type, longer, numpy_type, to_arrow, words_per_cell
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, KernelOverflowError, moved


@dataclass(frozen=True)
class RollingMatcher(RowByRow):
    """Every left row, in order, with reductions over right rows from `lo` to `hi` after it, both included."""

    lo: int
    hi: int
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    reductions: Reductions
    schema: pa.Schema
    kernels: PartitionKernels

    @property
    def waits(self) -> Waits:
        """Results have the time of their left row."""
        return max(self.hi, 0), None

    def emit(
        self, left: Rows, right: Rows, before: int, watermark: int
    ) -> tuple[list[pa.RecordBatch], np.ndarray, np.ndarray]:
        wait = max(self.hi, 0)
        due = len(left)
        if watermark != END_OF_TIME:
            due = int(np.searchsorted(left.times, max(watermark - wait, START_OF_TIME)))
        made = [self._batch(left.chosen(np.arange(due)) if due < len(left) else left, right)] if due else []
        kept = np.arange(len(left)) >= due
        oldest = (
            watermark
            if watermark in (START_OF_TIME, END_OF_TIME)
            else max(watermark - wait + self.lo, START_OF_TIME)
        )
        return made, kept, right.times >= oldest

    def _batch(self, left: Rows, right: Rows) -> pa.RecordBatch:
        columns = [
            [rows.batch.column(name) for name in names]
            for rows, names in zip((left, right), self.keys, strict=True)
        ]
        numbers = number_keys(columns[0], columns[1], (len(left), len(right)), self.kernels)
        own = lay(numbers.left, numbers.partitions, left.times, self.kernels)
        other = lay(numbers.right, numbers.partitions, right.times, self.kernels)
        found = find(own, other, (self.lo, self.hi), self.kernels)
        # Frames slide along partitions, so they are listed by partition; results return to input order.
        frames = Frames(found.first[own.places], found.last[own.places], own.values, own.values)
        ranking = (lambda: other.places) if numbers.partitions > 1 else None
        partitions = SortedPartitions(right, other.bounds, other.values[: other.rows], None, ranking)
        reduced = self.reductions.arrays(partitions, [frames])
        back = np.empty(len(left), np.int64)
        back[own.places] = np.arange(len(left))
        arrays = reduced if numbers.partitions == 1 else list(_taken(reduced, back, self.kernels.threads))
        return pa.RecordBatch.from_arrays([*left.batch.columns, *arrays], schema=self.schema)


def _taken(arrays: list[pa.Array], places: np.ndarray, threads: int) -> list[pa.Array]:
    names = [str(place) for place in range(len(arrays))]
    moved: list[pa.Array] = taken(pa.RecordBatch.from_arrays(arrays, names), places, threads).columns
    return moved


ROLLING_KEYS = ("first", "entering", "last", "newest", "middle", "held")
STATE, SUFFIX = "state", "suffix"


@dataclass
class IncrementalRolling:
    """Every left row, in order, with reductions over right rows from `lo` to `hi` after it, both included."""

    lo: int
    hi: int
    sides: HeldSides
    program: KeyedProgram
    schema: pa.Schema
    head: np.ndarray = field(init=False, default_factory=lambda: np.zeros(WORDS, np.int64))
    states: dict[str, np.ndarray] = field(init=False, default_factory=dict)
    _nullable: frozenset[str] = field(init=False, default=frozenset())

    @property
    def stores(self) -> tuple[RowStore, RowStore]:
        return self.sides.stores

    @property
    def waits(self) -> Waits:
        """Results have the time of their left row."""
        return self.delays[0], None

    @property
    def delays(self) -> tuple[int, int]:
        """Left rows come once all right rows of their frames are passed."""
        return max(self.hi, 0), 0

    def undecided(self, side: int) -> int:
        return END_OF_TIME

    def held(self, side: int) -> np.ndarray:
        return np.arange(self.stores[side].first, self.stores[side].end)

    # -- steps ---------------------------------------------------------------------------------------

    def step(self, left: Rows, right: Rows, watermark: int) -> list[pa.RecordBatch]:
        store = self.stores[1]
        if store.crowded or self.sides.crowded:
            self._compact()
        keys = self.sides.number(0, left)
        since, until = moved(left.times, self.lo), moved(left.times, self.hi)
        beyond = (left.times > END_OF_TIME - max(self.lo, 0)) | (left.times < START_OF_TIME - min(self.hi, 0))
        keys[beyond] = NULL_KEY
        reduced = self._run(self._add_right(right), keys, since, until)
        if watermark == END_OF_TIME:
            store.first = store.end
        else:
            oldest = max(watermark - self.delays[0] + self.lo, START_OF_TIME)
            store.first = store.place_of(min(oldest, END_OF_TIME), store.first)
        if not len(left):
            return []
        return [pa.RecordBatch.from_arrays([*left.batch.columns, *reduced], schema=self.schema)]

    def _add_right(self, rows: Rows) -> int:
        """Append right rows, but for those without a key: no frame has them. Return the first new one."""
        begin = self.stores[1].end
        if len(rows):
            numbers = self.sides.number(1, rows)
            having = numbers != NULL_KEY
            self.stores[1].add(rows.chosen(having), numbers[having])
        return begin

    def _run(self, begin: int, keys: np.ndarray, since: np.ndarray, until: np.ndarray) -> list[pa.Array]:
        store, batch = self.stores[1], self.stores[1].rows().batch
        self._nullable |= {name for name in self.program.columns if batch.column(name).null_count}
        kernel = self.program.kernel(self._nullable, "")
        self._make_room(len(self.sides.words["first"]), store.end)
        results: dict[str, np.ndarray] = {}
        for output in kernel.outputs:
            results[output.values] = np.empty(len(keys) or 1, column_type(output.type))
            results[output.valid or ""] = np.empty(len(keys) or 1, np.uint8)
        given = {
            "head": self.head,
            "lo": begin,
            "hi": store.end,
            "first_row": 0,
            "capacity": 0,
            "rows": len(keys),
        }
        nothing = dict.fromkeys(("out_key", "out_first", "out_last"), self.head)  # written by other kernels
        lists = {"times": store.times, "keys": store.keys, "links": store.links, **self.sides.words}
        left_rows = {"left_keys": keys, "since": since, "until": until}
        columns = BatchArguments(batch, {}).fill(kernel.bindings)
        kernel.call({**given, **nothing, **lists, **left_rows, **columns, **self.states, **results})
        if self.head[ERRORS]:
            raise KernelOverflowError
        return [
            to_arrow(results[output.values][: len(keys)], results[output.valid or ""][: len(keys)], dtype)
            for output, dtype in zip(kernel.outputs, self.program.types, strict=True)
        ]

    def _make_room(self, keys: int, rows: int) -> None:
        """Make room for the states of keys, and for what is stored for each right row."""
        self._enlarge("previous", np.dtype(np.int64), 1, rows)
        for place, type in enumerate(self.program.states):
            for hint, size in ((STATE, keys), (SUFFIX, rows)):
                self._enlarge(numbered(hint, place), numpy_type(type), words_per_cell(type), size)

    def _enlarge(self, name: str, dtype: np.dtype, words: int, size: int) -> None:
        old = self.states.setdefault(name, np.zeros(words, dtype))
        if len(old) < words * size:
            self.states[name] = longer(old, 2 * words * size)

    # -- compaction and state ------------------------------------------------------------------------

    def _compact(self) -> None:
        """Forget obsolete rows and keys. Aggregates begin anew; rows enter them again."""
        store = self.stores[1]
        store.keep(np.arange(store.first, store.end))
        if self.sides.crowded:
            self.sides.forget_keys()
        self.sides.reset()
        self._enter_all()

    def _enter_all(self) -> None:
        nothing = np.zeros(0, np.int64)
        self._run(0, nothing, nothing, nothing)

    def restore(self, left: Rows, right: Rows, watermark: int) -> None:
        self._add_right(right)
        self._enter_all()
