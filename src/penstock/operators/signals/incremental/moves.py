"""How the time of an incremental signal moves: its cursors, its spans, and when its results are final."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.loop.abi import numbered
from penstock.operators.signals.accesses import SpanReading
from penstock.operators.signals.points import BEGINNING
from penstock.runtime.stage import END_OF_TIME


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
        given = np.array([max(watermark, BEGINNING)])
        found = [int(given[0]) + shift for shift in self.shifts]
        return min([*found, *(int(span.until(given)[0]) for span in self.inputs)])

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
