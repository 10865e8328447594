"""Write the shuffle: send rows or panes to the shards of their keys, and a mark from each task to every shard."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

from penstock.api.execute import grouped
from penstock.api.ingress import timed_rows
from penstock.plan.nodes import Source
from penstock.plan.schema import sources_of
from penstock.runtime.buffers import ticks_of
from penstock.runtime.session import Session
from penstock.sources.conform import conformer
from penstock.sources.malformed import Bad
from penstock.spark.decode_dictionaries import in_one_piece
from penstock.spark.exchange import PAYLOAD_ROWS, ShufflePayload, packed
from penstock.spark.known_plans import plans_sent
from penstock.spark.rows import GROUP_ROWS
from penstock.spark.streaming.fold import PreAggregation
from penstock.spark.streaming.late_and_malformed import batch_id, write_bad
from penstock.spark.task_memory import settle
from penstock.spark.tasks import Query
from penstock.state.state_table import divided, shard_of
from penstock.storage.access import LOCAL, Access
from penstock.types.windows import Steps

ROWS, PANES, MARK = "rows/", "panes/", "mark/"


@dataclass(frozen=True, slots=True)
class Mark:
    """A task's report on the rows it read: the latest time in a split, and the counts of dropped rows.

    `accepted` is set only if the task folds rows into panes; otherwise the shards accept and count rows.
    """

    split: str
    latest: int | None
    filtered: int
    malformed: int
    accepted: int | None = None

    def encoded(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decoded(data: bytes) -> Mark:
        return Mark(**json.loads(data))


@dataclass(frozen=True, slots=True)
class StreamSender:
    """The query over one stream's rows before the shuffle. Its last `keys` columns are keys."""

    query: Query
    keys: int


@dataclass(frozen=True, slots=True)
class Scatter:
    """Read rows of streams and send them to shards. `labels` are the shard numbers that Spark groups by.

    With a `fold`, tasks send partial aggregates of panes instead of rows.
    """

    senders: Mapping[str, StreamSender]
    labels: tuple[int, ...]
    fold: PreAggregation | None = None

    def to_json(self) -> str:
        """Encode as text. The plans before the shuffle only filter and project, so they contain no Python function."""
        senders = {name: [sender.query.text, sender.keys] for name, sender in self.senders.items()}
        fold = None if self.fold is None else [self.fold.query.text, self.fold.windows, self.fold.keys]
        return json.dumps({"senders": senders, "labels": self.labels, "fold": fold})

    @staticmethod
    def from_json(text: str) -> Scatter:
        """Decode the output of `to_json`."""
        given = json.loads(text)
        senders = {
            name: StreamSender(Query(str(plan)), int(keys)) for name, (plan, keys) in given["senders"].items()
        }
        fold = None if given["fold"] is None else _fold(*given["fold"])
        return Scatter(senders, tuple(map(int, given["labels"])), fold)

    def source(self, stream: str) -> Source:
        return sources_of(self.senders[stream].query.compiled().plan)[0]

    def columns(self, stream: str) -> tuple[str, ...]:
        return self.senders[stream].query.compiled().columns[stream]

    def steps(self, stream: str) -> Steps | None:
        """Return the granularity at which a stream's times are read. Rows sent to shards keep their exact times: None."""
        return None if self.fold is None else self.fold.compiled.coarse_times.get(stream)

    def payloads(
        self,
        task: int,
        stream: str,
        split: str,
        batches: Iterable[pa.RecordBatch],
        lost: Callable[[], int] = lambda: 0,
    ) -> Iterator[ShufflePayload]:
        """Send the rows of a split. `lost` returns the number of malformed records at the end. An empty split sends no mark."""
        if self.fold is not None:
            yield from self._folded(self.fold, task, stream, split, batches, lost)
            return
        session = self.senders[stream].query.open()
        time = self.source(stream).time.column
        latest: int | None = None
        number = 0
        for group in grouped(batches, GROUP_ROWS):
            latest = _later(latest, group, time)
            for label, rows in self._divided(stream, session, group):
                yield ShufflePayload.of(label, task, number, ROWS + stream, rows)
                number += 1
        malformed = session.metrics.malformed + lost()
        if session.metrics.read or malformed:
            mark = Mark(split, latest, session.metrics.filtered, malformed)
            yield from self._reported(task, number, stream, mark)

    def _folded(
        self,
        fold: PreAggregation,
        task: int,
        stream: str,
        split: str,
        batches: Iterable[pa.RecordBatch],
        lost: Callable[[], int],
    ) -> Iterator[ShufflePayload]:
        session = fold.open()
        time = self.source(stream).time.column
        latest: int | None = None
        for group in grouped(batches, GROUP_ROWS):
            latest = _later(latest, group, time)
            session.push(stream, *group)
        session.skip(stream, 0, lost())
        if session.metrics.read:
            number = 0
            for number, (shard, name, table) in enumerate(fold.shares(session, len(self.labels)), 1):
                yield ShufflePayload.of(self.labels[shard], task, number, PANES + name, table)
            found = session.metrics
            mark = Mark(split, latest, found.filtered, found.malformed, found.accepted)
            yield from self._reported(task, number + 1, stream, mark)
            yield from plans_sent(fold.query.learn(session), self.labels[task % len(self.labels)], task)

    def _reported(self, task: int, number: int, stream: str, mark: Mark) -> Iterator[ShufflePayload]:
        for label in self.labels:
            yield ShufflePayload(label, task, number, MARK + stream, mark.encoded())

    def _divided(
        self, stream: str, session: Session, batches: Sequence[pa.RecordBatch]
    ) -> Iterator[tuple[int, pa.Table]]:
        for batch in session.push(stream, *batches):
            for begin in range(0, batch.num_rows, PAYLOAD_ROWS):
                table = pa.Table.from_batches([batch.slice(begin, PAYLOAD_ROWS)])
                yield from self._by_key(table, self.senders[stream].keys)

    def _by_key(self, table: pa.Table, keys: int) -> Iterator[tuple[int, pa.Table]]:
        many = len(self.labels)
        width = table.num_columns - keys
        rows = table.select(table.column_names[:width])
        if many == 1:
            yield self.labels[0], rows
            return
        columns = [in_one_piece(table.column(width + place)) for place in range(keys)]
        for label, part in zip(self.labels, divided(rows, shard_of(columns, many), many), strict=True):
            if part.num_rows:
                yield label, part


def _fold(text: str, windows: Sequence[str], keys: Sequence[int]) -> PreAggregation:
    return PreAggregation(Query(str(text)), tuple(map(str, windows)), tuple(map(int, keys)))


def _later(latest: int | None, batches: Sequence[pa.RecordBatch], time: str) -> int | None:
    """Return the latest time of all rows, including rows that a filter rejects."""
    columns = (batch.column(time).drop_null() for batch in batches)
    found = [int(ticks_of(column).max()) for column in columns if len(column)]
    return max(found if latest is None else [latest, *found], default=None)


@dataclass(frozen=True, slots=True)
class FromFrame:
    """Spark callable over the rows of a DataFrame. A DataFrame is one split, since its partitioning is unknown."""

    scatter: Scatter
    stream: str
    access: Access = LOCAL

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext  # noqa: PLC0415 - runs inside a task of Spark

        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        bad: list[Bad] = []
        rows = self._timed(self._conformed(batches), task, bad)
        yield from packed(self.scatter.payloads(task, self.stream, "", rows, lambda: len(bad)))
        settle("frame")

    def _timed(
        self, batches: Iterable[pa.RecordBatch], task: int, bad: list[Bad]
    ) -> Iterator[pa.RecordBatch]:
        """Separate rows without a time for the quarantine. Their position is unknown beyond the task."""
        source = self.scatter.source(self.stream)
        if source.on_bad != "quarantine":
            yield from batches
            return
        for batch in batches:
            timed, found = timed_rows(batch, source, len(bad))
            bad.extend(found)
            yield timed
        write_bad(source, f"batch {batch_id()}, task {task}", bad, self.access)

    def _conformed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        declared, columns = self.scatter.source(self.stream).schema, self.scatter.columns(self.stream)
        where = f"the DataFrame of stream {self.stream!r}"
        for batch in batches:
            yield conformer(batch.schema, declared, columns, where)(batch)
