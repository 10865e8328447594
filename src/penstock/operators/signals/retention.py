"""The samples that future points may depend on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.algorithms.sorted_partitions.rows import Rows
from penstock.operators.signals.points import defined
from penstock.operators.signals.sampling import Sampling, stored
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME


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
