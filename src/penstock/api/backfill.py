"""A history followed by a live source, as one stream with one state. A time divides them; each row comes from one side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from penstock.api.source_options import instant
from penstock.errors import BindingError, UnsupportedError
from penstock.plan.nodes import Source
from penstock.runtime.buffers import flags, ticks_of
from penstock.runtime.stage import END_OF_TIME
from penstock.sources.bound import Bound, is_present
from penstock.sources.conform import check, conformer
from penstock.sources.dataset import Dataset, Files
from penstock.sources.fragment import Fragment
from penstock.sources.live_files import Clock
from penstock.sources.malformed import HISTORY, Arrived, Malformed

if TYPE_CHECKING:
    from penstock.api.stream import Stream

LIVE = "live"


@dataclass(frozen=True, slots=True)
class HistorySide:
    """The rows before a time, or from it on. Rows without a time are kept, to be counted as malformed."""

    time: str
    at: int
    before: bool

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Filter a batch to the rows of this side."""
        column = batch.column(self.time)
        ticks = ticks_of(column)
        mine = ticks < self.at if self.before else ticks >= self.at
        if column.null_count:
            mine |= column.is_null().to_numpy(zero_copy_only=False)
        return batch if mine.all() else batch.filter(flags(np.asarray(mine)))


@dataclass(frozen=True, slots=True)
class Backfill:
    """History rows before a time, then rows of a live source from that time on. `live` may be bound later."""

    history: Bound
    live: Bound | None
    time: str
    at: int
    schema: pa.Schema

    endless: ClassVar[bool] = True

    def followed_by(self, live: Bound) -> Backfill:
        """Replace the live source."""
        return replace(self, live=live)

    @property
    def after(self) -> Bound:
        """The live source."""
        if self.live is None:
            raise BindingError("no data is bound that follows the history; pass it by the name of the stream")
        return self.live

    @property
    def rows(self) -> int | None:
        return None

    @property
    def clock(self) -> Clock | None:
        """The clock of the live source."""
        return getattr(self.live, "clock", None)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Read the rows present now, without waiting for more."""
        names = list(self.schema.names if columns is None else columns)
        return (arrival.batch.select(names) for arrival in self.present(self.time, "drop"))

    def present(self, time: str, on_bad: str) -> Iterator[Arrived]:
        """Read history, and the rows that the live source has now."""
        after = self.after
        yield from self._history(on_bad)
        if is_present(after):
            given: Iterable[Arrived] = after.present(time, on_bad)
        else:
            given = map(Arrived, self._live())
        yield from map(self._from_then_on, given)

    def arrivals(self, time: str, on_bad: str) -> Iterator[Arrived]:
        """Read history, then live rows as they arrive. Between the two, the watermark is at `at`."""
        going = getattr(self.after, "arrivals", None)
        yield from self.past(on_bad)
        yield from map(self.following, map(Arrived, self._live()) if going is None else going(time, on_bad))

    def past(self, on_bad: str) -> Iterator[Arrived]:
        """Read history to its end, then advance the watermark to `at`."""
        nothing = pa.RecordBatch.from_pylist([], self.schema)
        yield from self._history(on_bad)
        yield Arrived(nothing, HISTORY, upto=self.at)
        yield Arrived(nothing, HISTORY, upto=END_OF_TIME)

    def following(self, given: Arrived) -> Arrived:
        """Keep live rows from `at` on; assign them to a separate split if they have none."""
        arrival = self._from_then_on(given)
        arrived_rows = arrival.batch.num_rows or arrival.bad or arrival.out
        return replace(arrival, split=LIVE) if arrival.split is None and arrived_rows else arrival

    def conformed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a live batch to the columns of the stream."""
        where = "what follows the history"
        check(batch.schema, self.schema, where)
        return conformer(batch.schema, self.schema, self.schema.names, where)(batch)

    def _live(self) -> Iterator[pa.RecordBatch]:
        return map(self.conformed, self.after.batches(self.schema.names))

    def _from_then_on(self, given: Arrived) -> Arrived:
        kept = HistorySide(self.time, self.at, before=False)(given.batch)
        return replace(given, batch=kept, out=given.out + given.batch.num_rows - kept.num_rows)

    def _history(self, on_bad: str) -> Iterator[Arrived]:
        """Read history, oldest files first; after each file, the watermark is at the start of the next."""
        side = HistorySide(self.time, self.at, before=True)
        malformed = Malformed(on_bad, self.time)
        for batch, upto in timed_batches(self.history, self.schema, self.time, malformed):
            kept = side(batch)
            reached = None if upto is None else min(upto, self.at)
            out = batch.num_rows - kept.num_rows
            yield Arrived(kept, HISTORY, malformed.taken(), out=out, upto=reached)


def timed_batches(
    history: Bound, schema: pa.Schema, time: str, malformed: Malformed
) -> Iterator[tuple[pa.RecordBatch, int | None]]:
    """Read history, with the time before which no more rows follow, if file statistics give it."""
    if isinstance(history, Files):
        declared = replace(history, schema=schema)
        for paths, upto in in_order(declared.dataset(time)):
            for batch in Dataset(schema, paths.fragments).batches(malformed=malformed):
                yield batch, None
            yield pa.RecordBatch.from_pylist([], schema), upto
        return
    for batch in history.batches(schema.names):
        yield conformer(batch.schema, schema, schema.names, "the history")(batch), None


def in_order(data: Dataset) -> list[tuple[Dataset, int | None]]:
    """Order files by their first times; pair each with the start of the next.

    If a file has no time statistics, keep the given order.
    """
    files: dict[str, list[Fragment]] = {}
    for fragment in data.fragments:
        files.setdefault(fragment.path, []).append(fragment)
    firsts = {path: _first(fragments) for path, fragments in files.items()}
    reported = {path: first for path, first in firsts.items() if first is not None}
    if len(reported) < len(files):
        return [(Dataset(data.schema, tuple(file)), None) for file in files.values()]
    paths = sorted(reported, key=lambda path: (reported[path], path))
    upto = [*(reported[path] for path in paths), END_OF_TIME][1:]
    return [(Dataset(data.schema, tuple(files[path])), time) for path, time in zip(paths, upto, strict=True)]


def _first(fragments: Sequence[Fragment]) -> int | None:
    """Return the first time of a file, None if unknown; a file without timed rows sorts last."""
    firsts = [fragment.time_min for fragment in fragments if fragment.rows != 0]
    known = [first for first in firsts if first is not None]
    if len(known) < len(firsts):
        return None
    return min(known, default=END_OF_TIME)


def backfilled(history: Stream, live: Stream, at: object) -> Stream:
    """Combine two streams: the history's rows before a time, and the live stream's from it on."""
    past, future = _source(history, "the history"), _source(live, "what follows it")
    if not history.raw_data:
        raise BindingError("the history has no data; begin with pk.scan or pk.from_arrow")
    check(past.schema, future.schema, "the history")
    if past.time.column != future.time.column or any(
        source.time.implied or source.edges.arrival for source in (past, future)
    ):
        raise BindingError(
            f"the history has its time in {past.time.column!r}, the live source in {future.time.column!r}; both must have it in one column"
        )
    (before,) = history.raw_data.values()
    after = next(iter(live.raw_data.values()), None)
    if not hasattr(before, "batches") or hasattr(before, "endless"):
        raise UnsupportedError(
            "the history never ends; begin with files (pk.scan) or tables, then go on live"
        )
    moment = instant(at, future.time, "the time from which on rows are live")
    data = Backfill(before, after, future.time.column, moment, future.schema)
    return type(live)(future, {future.name: data})


def _source(stream: Stream, what: str) -> Source:
    plan = getattr(stream, "raw_plan", None)
    if not isinstance(plan, Source):
        raise BindingError(
            f"{what} must be a source, such as pk.scan or pk.scan_stream, and nothing done to it yet; "
            "write the query behind then()"
        )
    return plan
