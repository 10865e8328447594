"""Streams whose splits have times of their own: the slowest of them tells the time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from penstock.api.execute import read
from penstock.errors import UnsupportedError
from penstock.plan.nodes import Source
from penstock.runtime.buffers import ticks_of
from penstock.runtime.flow import NEVER
from penstock.runtime.session import Session
from penstock.sources.bound import Bound


@runtime_checkable
class InSplits(Protocol):
    """Data that says of which split its rows are, and how many were none."""

    def split_batches(self) -> Iterator[tuple[str, Any]]:
        """Give (split, rows and how many were malformed); a split is named before any row may overtake it."""


@dataclass(slots=True)
class SplitClock:
    """How far time has come in each split of a stream."""

    source: Source
    latest: dict[str, int] = field(default_factory=dict)

    def see(self, split: str, batch: pa.RecordBatch) -> None:
        """Take note of a split, and of the rows that came in it."""
        if not split:
            return
        times = batch.column(self.source.time.column).drop_null()
        seen = int(ticks_of(times).max()) if len(times) else NEVER
        self.latest[split] = max(self.latest.get(split, NEVER), seen)

    def advance(self, session: Session) -> list[pa.RecordBatch]:
        """Move time as far as the slowest split has come."""
        slowest = min(self.latest.values(), default=NEVER)
        if slowest == NEVER:
            return []
        return session.advance(max(slowest - self.source.lateness, NEVER), self.source.name)


def inputs_of(source: Source, data: Bound) -> Iterator[Any]:
    """Read a stream, split by split where it has any."""
    if isinstance(data, InSplits):
        return data.split_batches()
    return read(source, data, source.schema.names)


def refuse_endless(bound: Mapping[str, Bound]) -> None:
    """Refuse to go on from a state with data that would be read from its beginning again."""
    for name, each in bound.items():
        if getattr(each, "endless", False):
            raise UnsupportedError(
                f"a state does not say how far stream {name!r} was read, and all of it would count twice; "
                "go on with to_spark(spark), whose checkpoint does, or push batches with open(state=)"
            )
