"""Late and malformed rows of a stream on Spark. The tasks that find them write them.

A repeated batch finds the same rows and writes files of the same names, so each row is written once.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.caches import CACHES
from penstock.errors import UnsupportedError
from penstock.plan.nodes import Plan, Source
from penstock.plan.schema import sources_of
from penstock.runtime.buffers import indices
from penstock.runtime.session import Session
from penstock.runtime.stage import START_OF_TIME, Splits
from penstock.sources.bound import Bound
from penstock.sources.dataset import Files
from penstock.sources.malformed import Bad, quarantine_table
from penstock.sources.readers import TEXT
from penstock.sources.side_output import file_name, put
from penstock.storage.access import LOCAL, Access

_LOG = logging.getLogger(__name__)


def require_folders(plan: Plan) -> None:
    """Reject Python functions as `late_to`: late rows are found in other processes."""
    for source in sources_of(plan):
        if callable(source.edges.late_to):
            raise UnsupportedError(
                f"late_to of stream {source.name!r} is a function of this process, and late rows are found in tasks of "
                "Spark; give a folder that all of them can write to"
            )


def refuse_quarantine(plan: Plan, bound: Mapping[str, Bound]) -> None:
    """Reject quarantine for bounded data other than text: tasks read parts of other formats, some parts twice."""
    for source in sources_of(plan):
        data = bound[source.name]
        if source.on_bad == "quarantine" and not (isinstance(data, Files) and data.format in TEXT):
            raise UnsupportedError(
                f"on_bad of stream {source.name!r} is 'quarantine', which data on Spark that ends has for files of CSV and "
                "JSON alone; use 'drop' or 'fail', or collect in this process"
            )


@dataclass(frozen=True, slots=True)
class Aside:
    """The late rows of a shard, for streams with `late_to`."""

    session: Session
    found: dict[str, pa.Table] = field(default_factory=dict)

    def open(self, sources: Iterable[Source]) -> Aside:
        """Start recording late rows, after the saved state is loaded."""
        for source in sources:
            if source.edges.late_to is not None:
                self.session.late_rows(source.name)
        return self

    def push(self, source: Source, columns: Sequence[str], table: pa.Table) -> list[pa.RecordBatch]:
        """Push rows, and keep the late ones with all columns, including those that the query does not read."""
        whole = table.combine_chunks()
        made = self.session.push(source.name, *whole.select(list(columns)).to_batches())
        if source.edges.late_to is not None:
            numbers = self.session.late_rows(source.name)
            if len(numbers):
                self.found[source.name] = whole.take(indices(numbers))
        return made


def write_late(plan: Plan, shard: int, late: Mapping[str, pa.Table], accesses: Mapping[str, Access]) -> None:
    """Write the late rows of a shard and batch."""
    if not late:
        return
    query, batch = _batch()
    for source in sources_of(plan):
        folder = source.edges.late_to
        if source.name in late and isinstance(folder, str):
            name = file_name(source.name, query, batch, shard)
            put(folder, name, late[source.name], accesses.get(source.name, LOCAL))


def log_late(plan: Plan, late: int, query: str) -> None:
    """Log once per worker and query text that rows were late, unless the streams set `lateness` or `late_to`."""
    unsaid = [source.name for source in sources_of(plan) if not source.edges.expects_late_rows]
    if late and unsaid and next(_calls(query)) == 0:
        _LOG.warning(
            "%s rows of a batch came too late and are left out (of the streams %s); give lateness= how far out of order "
            "rows may come, or late_to= where late ones go; the progress of the query counts them as late",
            late,
            ", ".join(map(repr, unsaid)),
        )


@CACHES.results(most=32)
def _calls(query: str) -> Iterator[int]:
    """Return the counter of batches with late rows of a query."""
    return itertools.count()


def write_bad(source: Source, task: str, bad: Sequence[Bad], access: Access = LOCAL) -> None:
    """Write the malformed records of a task. `task` identifies its input and is the same when the task is repeated."""
    folder = source.edges.quarantine_to
    if bad and source.on_bad == "quarantine" and folder is not None:
        number = hashlib.sha256(task.encode()).hexdigest()[:16]
        query, _ = _batch()
        put(folder, file_name(source.name, query, number), quarantine_table(source.name, bad), access)


def batch_id() -> str:
    """Return the id of the current task's batch."""
    return _batch()[1]


def _batch() -> tuple[str, str]:
    """Return the query id and the batch id of the current task."""
    from pyspark import TaskContext  # noqa: PLC0415 - runs inside a task of Spark

    context = TaskContext.get()
    if context is None:
        return "none", "0"
    given = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
    query, batch = (argument or "none" for argument in given)
    return query, batch


@dataclass(slots=True)
class Silence:
    """The time at which each split was last active, by the processing time of batches, which Spark logs before it runs them."""

    now: int
    heard: dict[tuple[str, str], int] = field(default_factory=dict)

    def begin(self, sources: Iterable[Source]) -> Silence:
        """Start the idle timers of all streams with the first batch."""
        for source in sources:
            if source.edges.idle_after is not None:
                self.heard.setdefault((source.name, ""), self.now)
        return self

    def hear(self, split: tuple[str, str]) -> None:
        """Record that a split is active, if its stream has `idle_after`."""
        if (split[0], "") in self.heard:
            self.heard[split] = self.now

    def reached(self, source: Source, latest: Mapping[tuple[str, str], int]) -> int:
        """Return the latest time of a stream's slowest split that is not idle."""
        return self._splits(source, latest).time(self.now, source.edges.idle_after)

    def followed(
        self, sources: Sequence[Source], latest: Mapping[tuple[str, str], int], session: Session
    ) -> list[pa.RecordBatch]:
        """Advance idle streams to the watermark of the active ones."""
        silent = [source for source in sources if self._silent(source, latest)]
        awake = [source for source in sources if source not in silent]
        made = []
        for source in silent:
            units = [other for other in awake if other.time.unit == source.time.unit]
            upto = min((session.watermark_of(other.name) for other in units), default=START_OF_TIME)
            if upto > session.watermark_of(source.name):
                made += session.advance(upto, source.name)
        return made

    def _silent(self, source: Source, latest: Mapping[tuple[str, str], int]) -> bool:
        return source.edges.idle_after is not None and self._splits(source, latest).silent(
            self.now, source.edges.idle_after
        )

    def _splits(self, source: Source, latest: Mapping[tuple[str, str], int]) -> Splits:
        mine = {split: time for (stream, split), time in latest.items() if stream == source.name}
        mine = mine or {"": START_OF_TIME}  # no mark yet: idle since the query began
        return Splits(mine, {split: self.heard.get((source.name, split), self.now) for split in mine})
