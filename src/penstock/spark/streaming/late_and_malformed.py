"""The edges of a stream on Spark: late rows and malformed ones are written by the tasks that find them.

A batch that Spark runs again finds the same ones, and writes them to files of the same names: so each is there once.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa

from penstock.errors import UnsupportedError
from penstock.plan.nodes import Plan, Source
from penstock.plan.schema import sources_of
from penstock.runtime.buffers import indices
from penstock.runtime.session import Session
from penstock.runtime.splits import Splits
from penstock.runtime.stage import START_OF_TIME
from penstock.sources.bound import Bound
from penstock.sources.dataset import Files
from penstock.sources.malformed import Bad, quarantine_table
from penstock.sources.readers import TEXT
from penstock.sources.side_output import file_name, put

_LOG = logging.getLogger(__name__)


def require_folders(plan: Plan) -> None:
    """Refuse functions that would have to run elsewhere."""
    for source in sources_of(plan):
        if callable(source.edges.late_to):
            raise UnsupportedError(
                f"late_to of stream {source.name!r} is a function of this process, and late rows are found in tasks of "
                "Spark; give a folder that all of them can write to"
            )


def refuse_quarantine(plan: Plan, bound: Mapping[str, Bound]) -> None:
    """Refuse a quarantine for data that ends, but for text: tasks read parts of other files, and some parts twice."""
    for source in sources_of(plan):
        data = bound[source.name]
        if source.on_bad == "quarantine" and not (isinstance(data, Files) and data.format in TEXT):
            raise UnsupportedError(
                f"on_bad of stream {source.name!r} is 'quarantine', which data on Spark that ends has for files of CSV and "
                "JSON alone; use 'drop' or 'fail', or collect in this process"
            )


@dataclass(frozen=True, slots=True)
class Aside:
    """The late rows of a shard, of the streams that want them."""

    session: Session
    found: dict[str, pa.Table] = field(default_factory=dict)

    def open(self, sources: Iterable[Source]) -> Aside:
        """Begin, with what was saved taken up."""
        for source in sources:
            if source.edges.late_to is not None:
                self.session.late_rows(source.name)
        return self

    def push(self, source: Source, columns: Sequence[str], table: pa.Table) -> list[pa.RecordBatch]:
        """Push rows, and keep those that are late: whole, with columns that the query itself does not read."""
        whole = table.combine_chunks()
        made = self.session.push(source.name, *whole.select(list(columns)).to_batches())
        if source.edges.late_to is not None:
            numbers = self.session.late_rows(source.name)
            if len(numbers):
                self.found[source.name] = whole.take(indices(numbers))
        return made


def write_late(plan: Plan, shard: int, late: Mapping[str, pa.Table]) -> None:
    """Write the late rows that a shard found in a batch."""
    if not late:
        return
    query, batch = _batch()
    for source in sources_of(plan):
        folder = source.edges.late_to
        if source.name in late and isinstance(folder, str):
            put(folder, file_name(source.name, query, batch, shard), late[source.name])


def log_late(plan: Plan, late: int, query: str) -> None:
    """Log once in each worker that rows came too late for a query, given as text, where nothing was said about late rows."""
    unsaid = [source.name for source in sources_of(plan) if not source.edges.expects_late_rows]
    if late and unsaid and next(_calls(query)) == 0:
        _LOG.warning(
            "%s rows of a batch came too late and are left out (of the streams %s); give lateness= how far out of order "
            "rows may come, or late_to= where late ones go; the progress of the query counts them as late",
            late,
            ", ".join(map(repr, unsaid)),
        )


@lru_cache(maxsize=32)
def _calls(query: str) -> Iterator[int]:
    """Count how often late rows were found for a query."""
    return itertools.count()


def write_bad(source: Source, task: str, bad: Sequence[Bad]) -> None:
    """Write the malformed records that a task read; `task` tells what it reads, the same when it runs again."""
    folder = source.edges.quarantine_to
    if bad and source.on_bad == "quarantine" and folder is not None:
        number = hashlib.sha256(task.encode()).hexdigest()[:16]
        query, _ = _batch()
        put(folder, file_name(source.name, query, number), quarantine_table(source.name, bad))


def batch_id() -> str:
    """Tell which batch this is a task of."""
    return _batch()[1]


def _batch() -> tuple[str, str]:
    """Tell which query and batch this is a task of."""
    from pyspark import TaskContext  # noqa: PLC0415 - runs inside a task of Spark

    context = TaskContext.get()
    if context is None:
        return "none", "0"
    given = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
    query, batch = (each or "none" for each in given)
    return query, batch


@dataclass(slots=True)
class Silence:
    """When each split of each stream was heard last, by the clocks of batches, which Spark writes down before they run."""

    now: int
    heard: dict[tuple[str, str], int] = field(default_factory=dict)

    def begin(self, sources: Iterable[Source]) -> Silence:
        """Wait for all streams from the first batch on."""
        for source in sources:
            if source.edges.idle_after is not None:
                self.heard.setdefault((source.name, ""), self.now)
        return self

    def hear(self, split: tuple[str, str]) -> None:
        """Take note of a split; when it was, is kept only where somebody asks."""
        if (split[0], "") in self.heard:
            self.heard[split] = self.now

    def reached(self, source: Source, latest: Mapping[tuple[str, str], int]) -> int:
        """Tell how far time has come in a stream: in its slowest split that is not silent."""
        return self._splits(source, latest).time(self.now, source.edges.idle_after)

    def followed(
        self, sources: Sequence[Source], latest: Mapping[tuple[str, str], int], session: Session
    ) -> list[pa.RecordBatch]:
        """Let streams that are silent follow the others."""
        silent = [each for each in sources if self._silent(each, latest)]
        awake = [each for each in sources if each not in silent]
        made = []
        for source in silent:
            units = [each for each in awake if each.time.unit == source.time.unit]
            upto = min((session.watermark_of(each.name) for each in units), default=START_OF_TIME)
            if upto > session.watermark_of(source.name):
                made += session.advance(upto, source.name)
        return made

    def _silent(self, source: Source, latest: Mapping[tuple[str, str], int]) -> bool:
        return source.edges.idle_after is not None and self._splits(source, latest).silent(
            self.now, source.edges.idle_after
        )

    def _splits(self, source: Source, latest: Mapping[tuple[str, str], int]) -> Splits:
        mine = {split: time for (stream, split), time in latest.items() if stream == source.name}
        mine = mine or {"": START_OF_TIME}  # not heard yet: silent since the query began
        return Splits(mine, {split: self.heard.get((source.name, split), self.now) for split in mine})
