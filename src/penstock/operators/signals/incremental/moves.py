"""How the time of an incremental signal moves: its cursors, its spans, and when its results are final."""

from __future__ import annotations

from dataclasses import dataclass

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
