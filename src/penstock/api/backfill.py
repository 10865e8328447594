"""History, then what comes: one stream, one state. A time divides them, and each row is read from one side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from penstock.api.stream_time import instant
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
class Side:
    """The rows on one side of a time: before it, or from it on. Those without a time stay: they are malformed."""

    time: str
    at: int
    before: bool

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Take the rows of this side."""
        column = batch.column(self.time)
        ticks = ticks_of(column)
        mine = ticks < self.at if self.before else ticks >= self.at
        if column.null_count:
            mine |= column.is_null().to_numpy(zero_copy_only=False)
        return batch if mine.all() else batch.filter(flags(np.asarray(mine)))


@dataclass(frozen=True, slots=True)
class Backfill:
    """Rows of history before a time, then those of a live source from it on, once it is known."""

    history: Bound
    live: Bound | None
    time: str
    at: int
    schema: pa.Schema

    endless: ClassVar[bool] = True

    def followed_by(self, live: Bound) -> Backfill:
        """Go on with other data than was declared."""
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
        """The clock by which the live side is watched."""
        return getattr(self.live, "clock", None)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Read what is there, and no more."""
        names = list(self.schema.names if columns is None else columns)
        return (each.batch.select(names) for each in self.present(self.time, "drop"))

    def present(self, time: str, on_bad: str) -> Iterator[Arrived]:
        """Read history, and what is there of the live side."""
        after = self.after
        yield from self._history(on_bad)
        if is_present(after):
            given: Iterable[Arrived] = after.present(time, on_bad)
        else:
            given = map(Arrived, self._live())
        yield from map(self._from_then_on, given)

    def arrivals(self, time: str, on_bad: str) -> Iterator[Arrived]:
        """Read history, then live rows as they come. Between the two, time has come as far as `at`."""
        going = getattr(self.after, "arrivals", None)
        yield from self.past(on_bad)
        yield from map(self.following, map(Arrived, self._live()) if going is None else going(time, on_bad))

    def past(self, on_bad: str) -> Iterator[Arrived]:
        """Read history to its end, where time has come as far as `at`."""
        nothing = pa.RecordBatch.from_pylist([], self.schema)
        yield from self._history(on_bad)
        yield Arrived(nothing, HISTORY, upto=self.at)
        yield Arrived(nothing, HISTORY, upto=END_OF_TIME)

    def following(self, given: Arrived) -> Arrived:
        """Take what comes behind history: rows from `at` on, in a split of their own where they have none."""
        each = self._from_then_on(given)
        came = each.batch.num_rows or each.bad or each.out
        return replace(each, split=LIVE) if each.split is None and came else each

    def conformed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Bring what follows to the columns of the stream."""
        where = "what follows the history"
        check(batch.schema, self.schema, where)
        return conformer(batch.schema, self.schema, self.schema.names, where)(batch)

    def _live(self) -> Iterator[pa.RecordBatch]:
        return map(self.conformed, self.after.batches(self.schema.names))

    def _from_then_on(self, given: Arrived) -> Arrived:
        kept = Side(self.time, self.at, before=False)(given.batch)
        return replace(given, batch=kept, out=given.out + given.batch.num_rows - kept.num_rows)

    def _history(self, on_bad: str) -> Iterator[Arrived]:
        """Read history, the oldest files first; behind each, time has come as far as the next one begins."""
        side = Side(self.time, self.at, before=True)
        malformed = Malformed(on_bad, self.time)
        for batch, upto in timed_batches(self.history, self.schema, self.time, malformed):
            kept = side(batch)
            reached = None if upto is None else min(upto, self.at)
            out = batch.num_rows - kept.num_rows
            yield Arrived(kept, HISTORY, malformed.taken(), out=out, upto=reached)


def timed_batches(
    history: Bound, schema: pa.Schema, time: str, malformed: Malformed
) -> Iterator[tuple[pa.RecordBatch, int | None]]:
    """Read history, with the time before which nothing more will come, if files tell."""
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
    """Put files in order of their first times; with each, say when the next one begins.

    Where a file does not tell its times, they stay as they are.
    """
    files: dict[str, list[Fragment]] = {}
    for each in data.fragments:
        files.setdefault(each.path, []).append(each)
    firsts = {path: _first(fragments) for path, fragments in files.items()}
    told = {path: first for path, first in firsts.items() if first is not None}
    if len(told) < len(files):
        return [(Dataset(data.schema, tuple(each)), None) for each in files.values()]
    paths = sorted(told, key=lambda path: (told[path], path))
    upto = [*(told[path] for path in paths), END_OF_TIME][1:]
    return [(Dataset(data.schema, tuple(files[path])), time) for path, time in zip(paths, upto, strict=True)]


def _first(fragments: Sequence[Fragment]) -> int | None:
    """Tell the first time of a file. One of nothing but rows without a time begins whenever one likes."""
    firsts = [each.time_min for each in fragments if each.rows != 0]
    known = [first for first in firsts if first is not None]
    if len(known) < len(firsts):
        return None
    return min(known, default=END_OF_TIME)


def backfilled(history: Stream, live: Stream, at: object) -> Stream:
    """Make one stream of two: the history's rows before a time, and the other's from it on."""
    past, future = _source(history, "the history"), _source(live, "what follows it")
    if not history.raw_data:
        raise BindingError("the history has no data; begin with pk.scan or pk.from_arrow")
    check(past.schema, future.schema, "the history")
    if past.time.column != future.time.column or future.time.implied or past.time.implied:
        raise BindingError(
            f"the history tells time by {past.time.column!r}, what follows by {future.time.column!r}; both must have it in one column"
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
