"""Sessions as frames: which rows form a session, which sessions are complete, and which ends lateness needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import numpy as np

from penstock.algorithms.sorted_partitions.frames import Frames, Released
from penstock.algorithms.sorted_partitions.partitions import SortedPartitions
from penstock.algorithms.sorted_partitions.rows import taken
from penstock.operators.sorted_windows.session_lateness import SessionLateness
from penstock.runtime.buffers import room
from penstock.runtime.kernels import Call
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME
from penstock.runtime.threads import run_on_threads
from penstock.runtime.time_limits import within_reach

# Fewer rows than this are not worth a second thread.
ROWS_PER_THREAD = 1 << 17


@dataclass
class SessionFraming(Released):
    """Session windows. `count` and `listed` are kernels; no session is complete before the watermark passes `due`.

    `lateness` stores the ends of emitted sessions.
    """

    gap: int
    count: Call
    listed: Call
    threads: int
    lateness: SessionLateness
    due: int = field(default=START_OF_TIME)

    def completes(self, before: int, watermark: int) -> bool:
        return watermark > self.due

    def _sessions(self, partitions: SortedPartitions) -> Frames:
        """All sessions; each thread finds those of some partitions: count first, then fill."""
        given = {"times": partitions.times, "bounds": partitions.bounds, "gap": self.gap}
        parts = [{**given, "begin": begin, "end": end} for begin, end in self._parts(partitions)]
        found = np.zeros(len(parts) + 1, np.int64)

        def count(place: int) -> None:
            found[place + 1] = self.count(parts[place])

        run_on_threads([partial(count, place) for place in range(len(parts))])
        first = np.cumsum(found)
        bounds, start, last = (room(int(first[-1]) + more) for more in (1, 0, 0))
        bounds[-1] = len(partitions)
        made = {"lo": bounds, "start": start, "last": last}
        run_on_threads(
            [
                partial(self.listed, {**part, **made, "first": int(at)})
                for part, at in zip(parts, first, strict=False)
            ]
        )
        return Frames(bounds[:-1], bounds[1:], start, within_reach(last, 0, self.gap) + self.gap)

    def _parts(self, partitions: SortedPartitions) -> list[tuple[int, int]]:
        """Split partitions into a run of about equal rows for each thread."""
        threads = max(min(self.threads, len(partitions) // ROWS_PER_THREAD), 1)
        rows = np.linspace(0, len(partitions), threads + 1)[1:-1]
        inner = np.searchsorted(partitions.bounds, rows).tolist()
        return list(pairwise([0, *inner, partitions.count]))

    def frames(self, partitions: SortedPartitions, watermark: int) -> Frames:
        found = self._sessions(partitions)
        return found if watermark == END_OF_TIME else found.chosen(found.end < watermark)

    def needed(self, partitions: SortedPartitions, watermark: int) -> np.ndarray:
        found = self._sessions(partitions)
        open_yet = found.end >= watermark
        # Later rows, and rows ahead of the watermark, may extend a session; a new session ends no sooner than watermark + gap.
        self.due = min(int(found.end[open_yet].min(initial=END_OF_TIME)), watermark + self.gap)
        ended = self._ended(found, open_yet, partitions, watermark)
        self.lateness.note(
            taken(partitions.arrived_rows.batch, partitions.rows(found.lo[ended])), found.end[ended]
        )
        return np.repeat(open_yet, found.lengths)

    def _ended(
        self, found: Frames, open_yet: np.ndarray, partitions: SortedPartitions, watermark: int
    ) -> np.ndarray:
        """The complete sessions that end at most two gaps before the watermark, or before the next open session of their key."""
        twice = 2 * self.gap
        near = ~open_yet & (found.end >= max(watermark - twice, START_OF_TIME))
        last = np.flatnonzero(~open_yet[:-1] & open_yet[1:])
        apart = (found.start[last + 1] - found.end[last]).view(np.uint64)
        near[
            last[
                (partitions.of_rows(found.lo[last]) == partitions.of_rows(found.lo[last + 1]))
                & (apart <= twice)
            ]
        ] = True
        return np.flatnonzero(near)

    def ahead(self, watermark: int) -> int:
        return watermark if watermark in (START_OF_TIME, END_OF_TIME) else watermark - 1
