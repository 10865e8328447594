"""What each row looks back on, as frames: one for each new row, in the order of lanes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from penstock.runtime.engine import run_on_threads
from penstock.runtime.flow import NEVER
from penstock.runtime.lanes.framing import Frames, Released, within_reach
from penstock.runtime.lanes.lanes import ROWS_PER_THREAD, Lanes
from penstock.runtime.programs import Call
from penstock.types.windows import LookBack


@dataclass(frozen=True)
class LookBackFraming(Released):
    """Several spans at once. `calls` find the frames of each: a span of time, or what lies before a delay."""

    spans: tuple[LookBack, ...]
    calls: tuple[Call, ...]
    threads: int

    def frames(self, lanes: Lanes) -> list[Frames]:
        """The frames of new rows, for each span."""
        whole = [self._span(span, call, lanes) for span, call in zip(self.spans, self.calls, strict=True)]
        if lanes.fresh.all():
            return whole
        new = np.flatnonzero(lanes.fresh)
        return [each.chosen(new) for each in whole]

    def _span(self, span: LookBack, call: Call, lanes: Lanes) -> Frames:
        if span.rows is not None and span.delay == 0:
            hi = np.arange(len(lanes)) + (span.closed != "left")
        else:
            lo, hi = self._by_time(span, call, lanes)
        if span.rows is not None:
            first = np.repeat(lanes.bounds[:-1], np.diff(lanes.bounds))
            lo = np.maximum(hi - span.rows, first)
        return Frames(lo, hi, lanes.times, lanes.times)

    def _by_time(self, span: LookBack, call: Call, lanes: Lanes) -> tuple[np.ndarray, np.ndarray]:
        lo, hi = np.empty(len(lanes), np.int64), np.empty(len(lanes), np.int64)
        since = span.delay + (span.size or 0)
        within_reach(lanes.times, since, 0)
        given: dict[str, object] = {"times": lanes.times, "bounds": lanes.bounds, "lo": lo, "hi": hi}
        given |= {"since": since, "until": span.delay}
        cuts = np.linspace(0, len(lanes), self._threads(lanes) + 1).astype(int).tolist()
        run_on_threads([partial(call, given | self._stretch(span, lanes, *each)) for each in pairwise(cuts)])
        return lo, hi

    def _threads(self, lanes: Lanes) -> int:
        return max(min(self.threads, len(lanes) // ROWS_PER_THREAD), 1)

    @staticmethod
    def _stretch(span: LookBack, lanes: Lanes, begin: int, end: int) -> dict[str, object]:
        """Where a thread starts: among the rows of a lane it finds what its first row looks back on."""
        lane = int(np.searchsorted(lanes.bounds, begin, side="right")) - 1
        first = int(lanes.bounds[lane])
        now = int(lanes.times[begin]) - span.delay
        right, left = np.searchsorted(lanes.times[first:begin], [now, now - (span.size or 0)]).tolist()
        return {"begin": begin, "end": end, "lane": lane, "left": first + left, "right": first + right}

    def needed(self, lanes: Lanes, watermark: int) -> np.ndarray:
        """Rows that one at the watermark, or the next of its lane, would look back on."""
        kept = np.zeros(len(lanes), np.bool_)
        for span in self.spans:
            reach = span.delay + (span.size or 0)
            kept |= lanes.times >= max(watermark - reach, NEVER)
            if span.rows is not None:
                kept |= self._last_rows(span, lanes, watermark)
        return kept

    @staticmethod
    def _last_rows(span: LookBack, lanes: Lanes, watermark: int) -> np.ndarray:
        """The last rows of each lane; with a delay, of those that it has let pass."""
        assert span.rows is not None
        rows = np.diff(lanes.bounds)
        ends = lanes.bounds[1:]
        if span.delay:
            passed = np.concatenate([[0], np.cumsum(lanes.times < watermark - span.delay)])
            ends = lanes.bounds[:-1] + passed[lanes.bounds[1:]] - passed[lanes.bounds[:-1]]
        last: np.ndarray = np.arange(len(lanes)) >= np.repeat(ends - span.rows, rows)
        return last

    def ahead(self, watermark: int) -> int:
        return watermark
