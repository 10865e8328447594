"""Ingress of a stream: remove malformed and late rows, and advance the watermark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.plan.nodes import Source
from penstock.runtime.buffers import indices, ticks_of, time_array
from penstock.runtime.session import Session
from penstock.runtime.stage import END_OF_TIME, START_OF_TIME, Splits
from penstock.sources.conform import Conform, check, conformer
from penstock.sources.malformed import HISTORY, NO_TIME, Arrived, Bad, quarantine_table, without_time
from penstock.sources.side_output import file_name, put_next
from penstock.storage.access import LOCAL, Access
from penstock.types.time import NANOSECONDS

_WHOLE = ""  # the split of a stream without splits


@dataclass(slots=True)
class Ingress:
    """The ingress of one stream. `columns` are those that the query reads."""

    source: Source
    columns: tuple[str, ...]
    session: Session
    splits: Splits = field(default_factory=Splits)
    paced: bool = False
    rows: int = 0
    known: tuple[pa.Schema, Conform] | None = None
    access: Access = LOCAL
    stamped: int = START_OF_TIME  # the time of the last arrival
    plain: bool = field(init=False)  # rows go to the query as they come
    needed: pa.Schema = field(init=False)  # the columns that rows are converted to, an arrival time in front

    def __post_init__(self) -> None:
        self.plain = not (self.whole or self.source.edges.moves_with_clock)
        names = self.source.schema.names if self.whole else self.columns
        self.needed = pa.schema([self.source.schema.field(name) for name in names])

    def open(self, now: int) -> Ingress:
        """Begin; from now on late rows are tracked if `late_to` is set."""
        self.splits.hear(_WHOLE, None, now)
        if self.source.edges.late_to is not None:
            self.session.late_rows(self.source.name)
        return self

    def push(self, batch: pa.RecordBatch, now: int) -> list[pa.RecordBatch]:
        """Push rows as they were given; their times advance the watermark."""
        rows = self.conform(batch)
        return self.session.push(self.source.name, rows) if self.plain else self.put(self.stamp(rows), now)

    def put(self, batch: pa.RecordBatch, now: int) -> list[pa.RecordBatch]:
        """Push rows of the needed columns, with their times."""
        if self.source.edges.idle_after is not None and batch.num_rows and not self.paced:
            self.splits.hear(_WHOLE, None, now)
        if self.whole:
            return self._pushed(self._timed(batch))
        return self.session.push(self.source.name, batch)

    @property
    def whole(self) -> bool:
        """Whether all columns are needed, for late or malformed rows, and not only those that the query reads."""
        return self.source.edges.late_to is not None or self.source.on_bad == "quarantine"

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert rows to the needed columns."""
        given, known = batch.schema, self.known  # read once: threads may convert batches of different schemas
        if known is None or not (known[0] is given or known[0].equals(given)):
            where, declared = f"a batch of stream {self.source.name!r}", self.source.given
            check(given, declared, where)
            columns = [name for name in self.needed.names if name in declared.names]
            known = self.known = given, conformer(given, declared, columns, where)
        return known[1](batch)

    def stamp(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Add the time of arrival, if the stream is stamped."""
        if self.source.edges.arrival is None:
            return batch
        ticks = np.full(batch.num_rows, self.arrival_time())
        arrays = [time_array(ticks, self.source.time.type), *batch.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.needed)

    def arrival_time(self) -> int:
        """Return the time of a row that arrives now, in ticks. It never decreases, even if the clock does."""
        clock, unit = self.source.edges.arrival, self.source.time.unit
        assert clock is not None and unit is not None
        self.stamped = max(clock() // NANOSECONDS[unit], self.stamped, self.watermark)
        return self.stamped

    def take(self, given: Arrived, now: int) -> list[pa.RecordBatch]:
        """Push the output of a live source; its splits, if any, determine the watermark."""
        self.session.skip(self.source.name, given.out, len(given.bad))
        self._quarantine(given.bad)
        if given.split is None and given.upto is None:
            return self.push(given.batch, now)
        self._pace()
        made = self.push(given.batch, now)
        self.splits.hear(given.split or _WHOLE, _latest(given, self.source), now)
        return made + self.advance(now)

    def advance(self, now: int, stamp: int | None = None) -> list[pa.RecordBatch]:
        """Advance the watermark to the minimum over the splits that are not idle, or to the time of arrivals.

        All rows that arrived before `stamp` have been pushed; without it, all rows that have arrived.
        """
        if self.source.edges.arrival is not None:
            stamp = self.arrival_time() if stamp is None else stamp
            return self.session.advance(stamp, self.source.name) if stamp > self.watermark else []
        if not self.paced:
            return []
        reached = self.splits.time(now, self.source.edges.idle_after)
        upto = (
            START_OF_TIME if reached == START_OF_TIME else max(reached - self.source.lateness, START_OF_TIME)
        )
        return self.session.advance(upto, self.source.name) if upto > self.watermark else []

    def silent(self, now: int) -> bool:
        """Return whether no rows have arrived for `idle_after`."""
        return self.source.edges.idle_after is not None and self.splits.silent(
            now, self.source.edges.idle_after
        )

    @property
    def watermark(self) -> int:
        return self.session.watermark_of(self.source.name)

    def _pace(self) -> None:
        if not self.paced:
            self.paced = True
            self.session.pace(self.source.name)
            del self.splits.latest[_WHOLE]

    def _timed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Move rows without a time to the quarantine, if there is one; else the session counts them."""
        first = self.rows
        self.rows += batch.num_rows
        if self.source.on_bad != "quarantine":
            return batch
        timed, bad = timed_rows(batch, self.source, first)
        self.session.skip(self.source.name, 0, len(bad))
        self._quarantine(bad)
        return timed

    def _pushed(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        made = self.session.push(self.source.name, batch.select(list(self.columns)))
        if self.source.edges.late_to is not None:
            self._late(batch, self.session.late_rows(self.source.name))
        return made

    def _late(self, batch: pa.RecordBatch, numbers: np.ndarray) -> None:
        late_to = self.source.edges.late_to
        if not len(numbers):
            return
        rows = batch.take(indices(numbers))
        if callable(late_to):
            late_to(rows)
        elif late_to is not None:
            put_next(late_to, file_name(self.source.name), pa.Table.from_batches([rows]), self.access)

    def _quarantine(self, bad: Sequence[Bad]) -> None:
        quarantine(self.source, bad, self.access)


def _latest(given: Arrived, source: Source) -> int | None:
    """Return the latest time of a split; an explicit `upto` takes precedence over its rows."""
    if given.upto is not None:
        return (
            END_OF_TIME if given.upto == END_OF_TIME else min(given.upto + source.lateness, END_OF_TIME - 1)
        )
    if given.split == HISTORY:
        return None  # history rows are unordered
    times = given.batch.column(source.time.column).drop_null()
    return int(ticks_of(times).max()) if len(times) else None


def following(ingresses: Mapping[str, Ingress], now: int) -> list[pa.RecordBatch]:
    """Advance the watermarks of idle streams to those of the others, so that they do not hold them back."""
    silent = [ingress for ingress in ingresses.values() if ingress.silent(now)]
    awake = [ingress for ingress in ingresses.values() if not ingress.silent(now)]
    made = []
    for ingress in silent:
        others = [other.watermark for other in awake if other.source.time.unit == ingress.source.time.unit]
        if others and min(others) > ingress.watermark:
            made += ingress.session.advance(min(others), ingress.source.name)
    return made


def timed_rows(batch: pa.RecordBatch, source: Source, first: int) -> tuple[pa.RecordBatch, list[Bad]]:
    """Remove the rows without a time; `first` is the number of the first row."""
    return without_time(
        batch, source.time.column, lambda number, row: Bad(row, NO_TIME, source.name, first + number)
    )


def quarantine(source: Source, bad: Sequence[Bad], access: Access) -> None:
    """Write malformed records to the quarantine folder, if there is one."""
    folder = source.edges.quarantine_to
    if bad and source.on_bad == "quarantine" and folder is not None:
        put_next(folder, file_name(source.name), quarantine_table(source.name, bad), access)


def sifted(
    source: Source, given: Iterable[Arrived], session: Session, access: Access
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a bounded source; quarantine and count malformed records."""
    rows = 0
    for argument in given:
        batch, bad = (
            timed_rows(argument.batch, source, rows)
            if source.on_bad == "quarantine"
            else (argument.batch, [])
        )
        rows += argument.batch.num_rows
        quarantine(source, [*argument.bad, *bad], access)
        session.skip(source.name, argument.out, len(argument.bad) + len(bad))
        yield batch
