"""From rows to points: the time for which each sample holds, and the samples that future points may depend on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.algorithms.sort.sorting import Sorter
from penstock.algorithms.sorted_partitions.frames import Frames
from penstock.algorithms.sorted_partitions.partitions import Partitioner, SortedPartitions, carried_view
from penstock.algorithms.sorted_partitions.rows import Rows
from penstock.errors import OverflowError, SignalError
from penstock.operators.signals.points import BEGINNING, Points, defined, lanes_of, taken
from penstock.runtime.buffers import ticks_of, to_arrow
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME

OVERLAP = (
    "two intervals of one key overlap, so that the signal has two values at once; "
    "say which counts with resolve=, such as resolve='last' or resolve='sum'"
)
FARTHEST_TIME = 1 << 61  # farther times leave no room for shifts
TOO_FAR = "a time of a signal lies so far off that it cannot be moved within 64 bits; filter such rows out"


def stored(name: str) -> str:
    """Return the column name of a value in pending rows; a key may have the value's name."""
    return f"value.{name}"


@dataclass(frozen=True)
class _LaidOut:
    """Rows by partition; `order` gives their original indices, if they are needed and differ."""

    bounds: np.ndarray
    times: np.ndarray
    order: np.ndarray | None
    columns: Mapping[str, pa.Array]


@dataclass(frozen=True)
class Sampling:
    """The rule by which samples become points. `until` names the column of ends, `lasting` is the maximum
    duration.

    `resolve(partitions, frames)` combines the values of each frame's rows; without it the last one counts. `single`:
    the value at an instant is read, which overlapping intervals do not have.
    """

    values: tuple[str, ...]
    lasting: int | None
    until: str | None
    resolve: Callable[[SortedPartitions, Frames], list[pa.Array]] | None
    single: bool
    sorter: Sorter
    partitioner: Partitioner

    def points(self, rows: Rows, numbers: np.ndarray, partitions: int, until: int) -> Points:
        """Return the points of rows, partitioned by `numbers`."""
        partition_by_partition = self._laid_out(rows, numbers, partitions)
        bounds, times, order = (
            partition_by_partition.bounds,
            partition_by_partition.times,
            partition_by_partition.order,
        )
        if _farthest(bounds, times) > FARTHEST_TIME:
            raise OverflowError(TOO_FAR)
        columns = {name: partition_by_partition.columns[stored(name)] for name in self.values}
        final = np.full(partitions, max(until, BEGINNING), np.int64)
        if self.until is not None:
            ends = _ends(rows.batch.column(self.until))
            ends = ends if order is None else ends[order]
            return self._between(bounds, times, ends, columns, final)
        return self._held(*self._singled(bounds, times, columns), final)

    def ends(self, rows: Rows) -> np.ndarray | None:
        """Return the ends of rows, if a column holds them; else None."""
        return None if self.until is None else _ends(rows.batch.column(self.until))

    def _laid_out(self, rows: Rows, numbers: np.ndarray, partitions: int) -> _LaidOut:
        """Sort rows by partition, then time; the counting sort moves columns of fixed width directly."""
        order = rows.order(self.sorter)
        columns = {stored(name): rows.batch.column(stored(name)) for name in self.values}
        times = rows.times
        if order is not None:
            times, numbers = times[order], numbers[order]
            columns = {name: taken(column, order) for name, column in columns.items()}
        if partitions == 1:
            return _LaidOut(np.array([0, len(times)]), times, order, columns)
        partition = self.partitioner.partition(numbers, partitions)
        plain = {name: carried_view(column) for name, column in columns.items()}
        carried = {name: array for name, array in plain.items() if array is not None}
        moved = [] if len(carried) == len(columns) and self.until is None else [np.arange(len(times))]
        times, *rest = partition.carried([times, *carried.values(), *moved])
        made = {
            name: to_arrow(array, None, columns[name].type)
            for name, array in zip(carried, rest, strict=False)
        }
        places = rest[-1] if moved else None
        for name in columns:
            if name not in made:
                made[name] = taken(columns[name], rest[-1])
        if places is not None and order is not None:
            places = order[places]
        return _LaidOut(partition.all_bounds, times, order if places is None else places, made)

    def _singled(
        self, bounds: np.ndarray, times: np.ndarray, columns: Mapping[str, pa.Array]
    ) -> tuple[np.ndarray, np.ndarray, Mapping[str, pa.Array]]:
        """Reduce samples at one time of a partition to one: the last, or the resolved value."""
        same = times[1:] == times[:-1]
        if not same.any():
            return bounds, times, columns
        first = np.ones(len(times), np.bool_)
        first[1:] = ~same
        first[bounds[:-1][bounds[:-1] < len(times)]] = True
        if first.all():
            return bounds, times, columns
        lo = np.flatnonzero(first)
        hi = np.append(lo[1:], len(times))
        if self.resolve is None:
            joined: Mapping[str, pa.Array] = {name: taken(column, hi - 1) for name, column in columns.items()}
        else:
            made = self.resolve(lanes_of(columns, bounds, times), Frames(lo, hi, times[lo], times[lo]))
            joined = dict(zip(columns, made, strict=True))
        return np.searchsorted(lo, bounds), times[lo], joined

    def _held(
        self, bounds: np.ndarray, times: np.ndarray, columns: Mapping[str, pa.Array], final: np.ndarray
    ) -> Points:
        if self.lasting is None:
            return Points(bounds, times, np.ones(len(times), np.uint8), columns, final)
        return _ended(bounds, times, times + self.lasting, columns, final)

    # -- intervals -----------------------------------------------------------------------------------

    def _between(
        self,
        bounds: np.ndarray,
        times: np.ndarray,
        ends: np.ndarray,
        columns: Mapping[str, pa.Array],
        final: np.ndarray,
    ) -> Points:
        """Return the points of samples with explicit ends."""
        if (ends <= _following(bounds, times)).all():
            return _ended(bounds, times, ends, columns, final)
        if self.resolve is not None or not self.single:
            return self._overlapping(bounds, times, ends, columns, final)
        raise SignalError(OVERLAP)

    def _overlapping(
        self,
        bounds: np.ndarray,
        times: np.ndarray,
        ends: np.ndarray,
        columns: Mapping[str, pa.Array],
        final: np.ndarray,
    ) -> Points:
        """List the samples that hold between adjacent starts and ends; resolve them, or keep them as a multiset."""
        at, marks, lo, members, new_bounds = _active(bounds, times, ends)
        if self.resolve is None:
            nothing = {name: pa.nulls(len(at), column.type) for name, column in columns.items()}
            return Points(new_bounds, at, marks, nothing, final, lanes_of(columns, bounds, times))
        hi = np.append(lo[1:], len(members))
        several = {name: taken(column, members) for name, column in columns.items()}
        partitions = lanes_of(
            several, np.append(0, hi[new_bounds[1:] - 1]) if len(at) else bounds, times[members]
        )
        made = self.resolve(partitions, Frames(lo, hi, at, at))
        return Points(new_bounds, at, marks, dict(zip(columns, made, strict=True)), final)


def _farthest(bounds: np.ndarray, times: np.ndarray) -> int:
    """Return the largest distance of a time from zero; only the ends of the sorted partitions are read."""
    some = bounds[:-1] < bounds[1:]
    earliest, latest = times[bounds[:-1][some]], times[bounds[1:][some] - 1]
    return max(-int(earliest.min()), int(latest.max())) if len(earliest) else 0


def _ends(column: pa.Array) -> np.ndarray:
    """Return the times of a column; null is END_OF_TIME."""
    if not column.null_count:
        return ticks_of(column)
    there = column.is_valid().to_numpy(zero_copy_only=False)
    return np.where(there, ticks_of(column), END_OF_TIME)


def _following(bounds: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return the time of the next sample of the same partition; END_OF_TIME after the last one."""
    following = np.append(times[1:], END_OF_TIME)
    following[bounds[1:][bounds[1:] > 0] - 1] = END_OF_TIME
    return following


def _ended(
    bounds: np.ndarray,
    times: np.ndarray,
    ends: np.ndarray,
    columns: Mapping[str, pa.Array],
    final: np.ndarray,
) -> Points:
    """Add a point without a value where a sample ends before the next begins."""
    early = ends < _following(bounds, times)
    places = np.repeat(np.arange(len(times)), 1 + early)
    is_end = np.zeros(len(places), np.bool_)
    is_end[1:] = places[1:] == places[:-1]
    added = np.concatenate([[0], np.cumsum(early)])
    return Points(
        bounds + added[bounds],
        np.where(is_end, ends[places], times[places]),
        (~is_end).astype(np.uint8),
        {name: taken(column, np.where(is_end, -1, places)) for name, column in columns.items()},
        final,
    )


def _active(
    bounds: np.ndarray, times: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the instants at which samples start or end, a mask of the starts, and the samples that hold after
    each.
    """
    rows, partitions = len(times), len(bounds) - 1
    partition = np.repeat(np.arange(partitions), np.diff(bounds))
    ending = np.flatnonzero(ends != END_OF_TIME)
    number, instants, partition_of = _numbered(
        np.concatenate([partition, partition[ending]]), np.concatenate([times, ends[ending]])
    )
    new_bounds = np.searchsorted(partition_of, np.arange(partitions + 1))
    first, last = number[:rows], new_bounds[partition + 1]
    last[ending] = number[rows:]
    begins = np.zeros(len(instants), np.uint8)
    begins[first] = 1
    # List each sample at every instant at which it holds; the stable sort by instant preserves sample order.
    held = last - first
    samples = np.repeat(np.arange(rows), held)
    at = np.arange(len(samples)) + np.repeat(first - (np.cumsum(held) - held), held)
    firsts = np.concatenate([[0], np.cumsum(np.bincount(at, minlength=len(instants)))])[:-1]
    return instants, begins, firsts, samples[np.argsort(at, kind="stable")], new_bounds


def _numbered(partitions: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number the distinct times of all partitions in order; return each number's time and partition."""
    order = np.lexsort((times, partitions))
    new = np.ones(len(order), np.bool_)
    new[1:] = (np.diff(times[order]) != 0) | (np.diff(partitions[order]) != 0)
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(new) - 1
    kept = order[new]
    return number, times[kept], partitions[kept]


@dataclass(frozen=True)
class Retention:
    """How far back a result reaches: `levels` times, a number of ticks (`past`) and then a number of samples.

    `samples` is at least one: the value at an instant began before it. Reductions over all time need every
    sample: `sequential`. A program `forgets` if a sample matters for at most `past` ticks after it has ceased
    to hold; the last sample of a key is then dropped as well.
    """

    past: int
    samples: int
    levels: int
    sequential: bool
    forgets: bool

    def needed(
        self, rows: Rows, partitions: np.ndarray, emitted: np.ndarray, sampling: Sampling
    ) -> np.ndarray:
        """Return a mask of the rows to retain; results of each partition are final before `emitted`."""
        ends = sampling.ends(rows)
        if self.forgets:
            until = _held_until(rows, partitions, sampling.lasting) if ends is None else ends
            since = self._back(emitted)[partitions]
            return np.asarray((rows.times >= since) | (until > since))
        there = _there(rows) if self.samples > 1 else None
        return self.needed_times(rows.times, partitions, emitted, ends, there)

    def needed_times(
        self,
        all_times: np.ndarray,
        partitions: np.ndarray,
        emitted: np.ndarray,
        ends: np.ndarray | None = None,
        there: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the same mask from times and partitions; `there` marks rows with all their values."""
        if self.sequential:
            return np.ones(len(all_times), np.bool_)
        order = np.lexsort((all_times, partitions))
        times, own = all_times[order], partitions[order]
        bounds = np.searchsorted(own, np.arange(len(emitted) + 1))
        since = emitted
        single = None if there is None else _single(times, own, there[order])
        for _ in range(self.levels):
            since = self._before(times, own, bounds, since, single)
        keep = np.empty(len(all_times), np.bool_)
        keep[order] = times >= since[own]
        return keep if ends is None else keep | (ends > since[partitions])

    def _before(
        self,
        times: np.ndarray,
        partitions: np.ndarray,
        bounds: np.ndarray,
        since: np.ndarray,
        single: np.ndarray | None,
    ) -> np.ndarray:
        """Go back `past` ticks, then `samples` samples."""
        back = self._back(since)
        earlier = np.concatenate([[0], np.cumsum(times < back[partitions])])
        behind = np.diff(earlier[bounds]) + bounds[:-1]  # per partition, the first row at or after `back`
        place = np.maximum(behind - self.samples, bounds[:-1])
        if single is not None:
            place = _so_many_before(single, bounds[:-1], behind, self.samples)
        some = np.diff(bounds) > 0
        found = back.copy()
        found[some] = np.minimum(times[np.minimum(place, bounds[1:] - 1)[some]], back[some])
        return found

    def _back(self, since: np.ndarray) -> np.ndarray:
        return np.where(since <= START_OF_TIME + self.past, START_OF_TIME, since - self.past)


def _held_until(rows: Rows, partitions: np.ndarray, lasting: int | None) -> np.ndarray:
    """Return when each sample ceases to hold: at the next one of its partition, after `lasting`, or at once
    without a value.
    """
    order = np.lexsort((rows.times, partitions))
    times, own = rows.times[order], partitions[order]
    begins = np.ones(len(times), np.bool_)
    begins[1:] = (times[1:] != times[:-1]) | (own[1:] != own[:-1])
    first = np.flatnonzero(begins)
    following = np.full(len(first), END_OF_TIME, np.int64)
    same = own[first[1:]] == own[first[:-1]]
    following[:-1][same] = times[first[1:]][same]
    if lasting is not None:
        following = np.minimum(following, times[first] + lasting)
    valued = np.logical_or.reduceat(_defined(rows)[order], first) if len(first) else begins
    found = np.empty(len(times), np.int64)
    found[order] = np.where(valued, following, times[first])[np.cumsum(begins) - 1]
    return found


def _defined(rows: Rows) -> np.ndarray:
    """Return a mask of the rows with at least one value."""
    names = [name for name in rows.batch.schema.names if name.startswith(stored(""))]
    return defined({name: rows.batch.column(name) for name in names}, len(rows))


def _there(rows: Rows) -> np.ndarray:
    """Return a mask of the rows with all values."""
    found = np.ones(len(rows), np.bool_)
    for name, column in zip(rows.batch.schema.names, rows.batch.columns, strict=True):
        if name.startswith(stored("")) and column.null_count:
            found &= column.is_valid().to_numpy(zero_copy_only=False)
    return found


def _single(times: np.ndarray, partitions: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Mark rows that certainly are one sample: rows at one time form one sample, counted if all have values."""
    follows = np.zeros(len(times), np.bool_)
    follows[1:] = (times[1:] == times[:-1]) & (partitions[1:] == partitions[:-1])
    groups = np.cumsum(~follows) - 1
    whole = np.ones(int(groups[-1]) + 1 if len(groups) else 0, np.bool_)
    whole[groups[~there]] = False
    found: np.ndarray = ~follows & whole[groups]
    return found


def _so_many_before(single: np.ndarray, first: np.ndarray, behind: np.ndarray, samples: int) -> np.ndarray:
    """Return the row a number of samples before another, but not before the partition's first row."""
    counted = np.concatenate([[0], np.cumsum(single)])
    places = np.append(np.flatnonzero(single), len(single))
    wanted = counted[behind] - samples
    enough = wanted >= counted[first]
    return np.where(enough, places[np.maximum(wanted, 0)], first)
