"""Signals that read their own past: they retain results instead of the inputs of these results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.algorithms.kernel_factory import BatchArguments
from penstock.loop.abi import ERRORS, WORDS, Binding, numbered
from penstock.operators.signals.accesses import Objects, Walked
from penstock.operators.signals.objects import FieldInputs, located
from penstock.operators.signals.points import BEGINNING, Points
from penstock.operators.signals.sampling import Retention
from penstock.runtime.buffers import indices, to_arrow
from penstock.runtime.kernels import Call
from penstock.runtime.stage import KernelOverflowError
from penstock.state.state_table import StateTable, integers, numbered_from_zero, require, typed


@dataclass(frozen=True)
class FeedbackResults:
    """Results at marks, by partition, in order of time."""

    partition: np.ndarray
    times: np.ndarray
    values: np.ndarray
    valid: np.ndarray

    def __len__(self) -> int:
        return len(self.times)

    def chosen(self, which: np.ndarray) -> FeedbackResults:
        return FeedbackResults(
            self.partition[which], self.times[which], self.values[which], self.valid[which]
        )


@dataclass
class FeedbackStep:
    """A field that reads its own past. For each read, `own` has the number of samples back and the shift.

    Final results are computed once: `known` holds the results that later ones may read, `done` the time before
    which each partition is final.
    """

    scope: FieldInputs
    own: tuple[tuple[int, int], ...]
    kernel: Callable[[frozenset[str]], tuple[Call, tuple[Binding, ...]]]
    locate: Call
    name: str
    type: pa.DataType
    dtype: np.dtype
    known: FeedbackResults = field(init=False)
    done: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        nothing = np.zeros(0, np.int64)
        self.known = FeedbackResults(nothing, nothing, np.zeros(0, self.dtype), np.zeros(0, np.uint8))
        self.done = nothing

    def points(self, objects: Objects) -> Points:
        walked = self.scope.reading.walk(objects).marked()
        partitions = len(walked.bounds) - 1
        grown = np.full(partitions - len(self.done), BEGINNING, np.int64)
        self.done = np.concatenate([self.done, grown])
        partition = np.repeat(np.arange(partitions), np.diff(walked.bounds))
        fresh = np.flatnonzero(walked.times >= self.done[partition])
        whole, places = self._joined(walked, partition, fresh)
        bounds = np.searchsorted(whole.partition, np.arange(partitions + 1))
        self._compute(walked.chosen(fresh), objects, whole, bounds, places)
        final = whole.times < walked.until[whole.partition]
        self.known, self.done = whole.chosen(final), np.maximum(self.done, walked.until)
        columns = {self.name: to_arrow(whole.values, whole.valid, self.type)}
        return Points(bounds, whole.times, np.ones(len(whole), np.uint8), columns, walked.until)

    def _joined(
        self, walked: Walked, partition: np.ndarray, fresh: np.ndarray
    ) -> tuple[FeedbackResults, np.ndarray]:
        """Return known results and room for new ones, by partition, and the indices of the new ones."""
        partitions = np.concatenate([self.known.partition, partition[fresh]])
        order = np.argsort(partitions, kind="stable")  # stable: known results precede new ones
        room = np.empty(len(fresh), self.dtype), np.zeros(len(fresh), np.uint8)
        whole = FeedbackResults(
            partitions,
            np.concatenate([self.known.times, walked.times[fresh]]),
            np.concatenate([self.known.values, room[0]]),
            np.concatenate([self.known.valid, room[1]]),
        ).chosen(order)
        return whole, np.flatnonzero(order >= len(self.known))

    def _compute(
        self, walked: Walked, objects: Objects, whole: FeedbackResults, bounds: np.ndarray, places: np.ndarray
    ) -> None:
        batch = self.scope.batch(walked, objects)
        call, bindings = self.kernel(frozenset(n for n in batch.schema.names if batch.column(n).null_count))
        head = np.zeros(WORDS, np.int64)
        given = BatchArguments(batch, {}).fill(bindings)
        shifts = [shift for back, shift in self.own if not back]
        backs = {
            numbered("back", i): self._at(whole, bounds, shift)[places] for i, shift in enumerate(shifts)
        }
        out = {"head": head, "out": whole.values, "out_valid": whole.valid, "place": places}
        defined = self._defined(whole, bounds, places)
        call({**given, **backs, **defined, **out, "rows": len(places), "first_row": 0})
        if head[ERRORS]:
            raise KernelOverflowError

    def _at(self, whole: FeedbackResults, bounds: np.ndarray, shift: int) -> np.ndarray:
        return located(self.locate, bounds, whole.times, bounds, whole.times, shift)

    @staticmethod
    def _defined(whole: FeedbackResults, bounds: np.ndarray, places: np.ndarray) -> dict[str, np.ndarray]:
        """List, by partition, the indices of results defined so far, with room for new ones."""
        found = np.flatnonzero(whole.valid)  # new results are not valid yet
        before = np.concatenate([[0], np.cumsum(whole.valid, dtype=np.int64)])
        known = np.diff(before[bounds])
        defined = np.zeros(len(whole), np.int64)
        partitions = whole.partition[found]
        defined[bounds[partitions] + np.arange(len(found)) - before[bounds][partitions]] = found
        partition = whole.partition[places]
        return {"defined": defined, "first": bounds[partition], "listed": known[partition]}

    def forget(self, retention: Retention, emitted: np.ndarray) -> None:
        """Drop the results that no future result reads."""
        known = self.known
        kept = retention.needed_times(known.times, known.partition, np.minimum(emitted, self.done))
        self.known = known.chosen(kept | self._last_defined())

    def _last_defined(self) -> np.ndarray:
        """Mark the last defined results of each partition, as many as are read back."""
        back = max(back for back, _ in self.own)
        defined = np.flatnonzero(self.known.valid)
        partitions = self.known.partition[defined]
        behind = np.searchsorted(partitions, partitions, side="right") - np.arange(len(partitions))
        kept = np.zeros(len(self.known), np.bool_)
        kept[defined[behind <= back]] = True
        return kept

    # -- state ---------------------------------------------------------------------------------------

    def save(self) -> StateTable:
        known = self.known
        columns = {
            "place": indices(np.arange(len(known) + len(self.done))),
            "partition": indices(np.concatenate([known.partition, np.arange(len(self.done))])),
            "time": indices(np.concatenate([known.times, self.done])),
            "kind": indices(np.repeat([0, 1], [len(known), len(self.done)])),
            "value": to_arrow(
                np.concatenate([known.values, np.zeros(len(self.done), self.dtype)]),
                np.concatenate([known.valid, np.zeros(len(self.done), np.uint8)]),
                self.type,
            ),
        }
        return StateTable(pa.Table.from_arrays(list(columns.values()), names=list(columns)), (), ("place",))

    def load(self, table: pa.Table, partitions: int) -> None:
        """Restore saved results, for a given number of partitions."""
        table = numbered_from_zero(table, "place")
        is_mark = integers(table, "kind") == 1
        partition, time = integers(table, "partition"), integers(table, "time")
        value = typed(table, "value", self.type)
        valid = value.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8)
        values = value.fill_null(0).to_numpy(zero_copy_only=False).astype(self.dtype)
        self.known = FeedbackResults(partition, time, values, valid).chosen(~is_mark)
        self.done = time[is_mark]
        require(np.array_equal(partition[is_mark], np.arange(partitions)), "the partitions of a filter")
        require(_in_order(self.known, partitions), "the results of a filter")


def _in_order(known: FeedbackResults, partitions: int) -> bool:
    """Whether results are in order of partition, then strictly of time."""
    partition, time = known.partition, known.times
    later = (partition[1:] > partition[:-1]) | ((partition[1:] == partition[:-1]) & (time[1:] > time[:-1]))
    return bool(later.all() and ((partition >= 0) & (partition < partitions)).all())
