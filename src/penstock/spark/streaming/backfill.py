"""Backfill on Spark: batches read the history files first, oldest first, then the live source.

An offset is {"history": files read, "live": offset of the live source, set from the batch in which history ends}.
Both values are texts. History is not read again after it has ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from penstock.api.backfill import LIVE, Backfill, HistorySide, in_order
from penstock.errors import UnsupportedError
from penstock.runtime.stage import END_OF_TIME
from penstock.sources.dataset import Dataset, Files
from penstock.sources.fragment import Fragment
from penstock.sources.kafka import LiveTopic
from penstock.sources.live_files import LiveFiles
from penstock.sources.malformed import HISTORY, Bad
from penstock.sources.paths import FoundFile
from penstock.spark.exchange import ShufflePayload, packed
from penstock.spark.slices import Part, as_json
from penstock.spark.storage import with_access
from penstock.spark.streaming.files import FilePartition, FileReader, file_options, files_of, offset
from penstock.spark.streaming.kafka import KafkaReader, topic_options
from penstock.spark.streaming.read_limits import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from penstock.spark.streaming.shuffle_write import MARK, Mark, Scatter
from penstock.spark.streaming.source import PayloadSource
from penstock.spark.task_memory import settle
from penstock.storage.access import LOCAL, Access
from penstock.storage.uri import absolute

NOTHING = FilePartition(0, json.dumps(as_json(Part(()))))
_AT_ONCE = 100  # history files per batch, unless the stream sets a number


class BackfillSource(PayloadSource):
    """A streaming source of history files followed by a live source."""

    FORMAT = "penstock_backfill"
    HISTORY: ClassVar[Access] = LOCAL

    def stream_reader(self) -> DataSourceStreamReader:
        """Create the reader that plans on the driver and reads in tasks."""
        scatter, stream = self.scatter_and_stream()
        given = json.loads(self.options["secret"])
        past, tasks = given["history"], int(given["tasks"])
        found = tuple(FoundFile(path, tuple(map(tuple, folders))) for path, folders in past["found"])
        source = scatter.source(stream)
        files = Files(found, past["format"], source.schema, self.HISTORY)
        history = HistoryFiles(files, source.time.column, given["most"])
        behind = LiveFiles("", past["format"], source.schema, access=self.HISTORY)
        reader = FileReader(scatter, stream, behind, tasks, None)
        live: FileReader | KafkaReader
        if "topic" in given:
            live = KafkaReader.of(scatter, stream, given["topic"], self.ACCESS)
        else:
            live = FileReader.of(scatter, stream, given["files"], tasks, access=self.ACCESS)
        return BackfillReader(scatter, stream, history, reader, live, given["at"])


@dataclass
class HistoryFiles:
    """Files that exist at the start, in time order. A batch reads up to `most` of them."""

    files: Files
    time: str
    most: int

    @cached_property
    def parts(self) -> list[tuple[Dataset, int | None]]:
        """Return every file with the start time of the files after it. Computed once for all batches."""
        data = self.files.dataset(self.time)
        return in_order(
            replace(data, fragments=tuple(fragment for fragment in data.fragments if fragment.rows != 0))
        )

    @property
    def paths(self) -> list[str]:
        """Return the non-empty files, in order."""
        return [part.fragments[0].path for part, _ in self.parts]

    def unread(self, seen: frozenset[str]) -> list[str]:
        """List the files that have not been read."""
        return [path for path in self.paths if path not in seen]

    def fragments(self, paths: frozenset[str]) -> list[Fragment]:
        """Return the fragments of the given files, in time order."""
        return [fragment for part, _ in self.parts for fragment in part.fragments if fragment.path in paths]

    def upto(self, seen: frozenset[str]) -> int | None:
        """Return the start time of the unread files; None if one of them has no time statistics."""
        left = [part for part, _ in self.parts if part.fragments[0].path not in seen]
        firsts = [fragment.time_min for part in left for fragment in part.fragments]
        known = [first for first in firsts if first is not None]
        return min(known, default=END_OF_TIME) if len(known) == len(firsts) else None


@dataclass(frozen=True)
class BackfillPartition(InputPartition):
    """The input of one task, from history or from the live source. `upto` is the watermark of history."""

    inner: InputPartition
    live: bool
    upto: int | None


@dataclass
class BackfillReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plan the files or offsets of each batch, and read them."""

    scatter: Scatter
    stream: str
    history: HistoryFiles
    files: FileReader
    live: FileReader | KafkaReader
    at: int

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Return the offset before the first file of history."""
        return {"history": json.dumps(offset([])), "live": ""}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Set no limit; history and the live source limit their batches themselves."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the current end of the live source as the end of the query."""
        self.live.prepareForTriggerAvailableNow()

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Add the oldest unread files of history; after the last file, start the live source."""
        if start["live"]:
            began = json.loads(start["live"])
            newest = self.live.latestOffset(began, self.live.getDefaultReadLimit())
            return {**start, "live": json.dumps(newest)}
        seen = files_of(json.loads(start["history"]))
        unread = self.history.unread(seen)
        ended = json.dumps(self.live.initialOffset()) if len(unread) <= self.history.most else ""
        return {"history": json.dumps(offset([*seen, *unread[: self.history.most]])), "live": ended}

    def newest(self) -> dict[str, str]:
        """Return the offset behind all of history and all live rows that are there."""
        return {"history": json.dumps(offset(self.history.paths)), "live": json.dumps(self.live.newest())}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """Divide the input of a batch among tasks. The batch in which history ends may hold live rows too."""
        if start["live"]:
            return self._of_live(json.loads(start["live"]), json.loads(end["live"]))
        before, after = (files_of(json.loads(reached["history"])) for reached in (start, end))
        found = self._of_history(before, after, bool(end["live"]))
        if not end["live"]:
            return found
        return [*found, *self._of_live(self.live.initialOffset(), json.loads(end["live"]))]

    def _of_live(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [
            BackfillPartition(partition, True, END_OF_TIME) for partition in self.live.partitions(start, end)
        ]

    def _of_history(self, before: frozenset[str], after: frozenset[str], ends: bool) -> list[InputPartition]:
        """Read some files. At least one partition exists, even without files, to send the watermark."""
        upto = self.history.upto(after)
        reached = self.at if ends else None if upto is None else min(upto, self.at)
        inner = self.files.divided(self.history.fragments(after - before)) or [NOTHING]
        return [BackfillPartition(partition, False, reached) for partition in inner]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one side, and yield them as payloads."""
        assert isinstance(partition, BackfillPartition)
        reader = self.live if partition.live else self.files
        side = HistorySide(self.scatter.source(self.stream).time.column, self.at, before=not partition.live)
        bad: list[Bad] = []
        out = 0

        def rows() -> Iterator[pa.RecordBatch]:
            nonlocal out
            for batch in reader.rows(partition.inner, bad):
                kept = side(batch)
                out += batch.num_rows - kept.num_rows
                yield kept

        task, split = reader.place(partition.inner)
        named = (split or LIVE) if partition.live else HISTORY
        payloads = self.scatter.payloads(task, self.stream, named, rows(), lambda: len(bad))
        yield from packed(self._reported(payloads, partition, task, lambda: out))
        settle("source")

    def _reported(
        self,
        payloads: Iterator[ShufflePayload],
        partition: BackfillPartition,
        task: int,
        out: Callable[[], int],
    ) -> Iterator[ShufflePayload]:
        """Correct the marks of a task: count the rows dropped here, and replace the latest time by the watermark of history."""
        name = MARK + self.stream
        last, said = 0, False
        for payload in payloads:
            last = payload.part
            if payload.name != name:
                yield payload
                continue
            said = True
            mark = Mark.decoded(payload.payload)
            reported = mark if partition.live else replace(mark, latest=self._latest(partition))
            first = replace(reported, filtered=reported.filtered + out())
            yield replace(payload, payload=first.encoded())
        marks = [] if said else [Mark("" if partition.live else HISTORY, None, out(), 0)]
        if partition.live or not said:
            marks = [*marks, Mark(HISTORY, self._latest(partition), 0, 0)]
        for number, mark in enumerate(marks, last + 1):
            for label in self.scatter.labels:
                yield ShufflePayload(label, task, number, name, mark.encoded())

    def _latest(self, partition: BackfillPartition) -> int | None:
        """Return the watermark of history plus the stream's lateness, which shards subtract again."""
        if partition.upto is None or partition.upto == END_OF_TIME:
            return partition.upto
        return min(partition.upto + self.scatter.source(self.stream).lateness, END_OF_TIME - 1)


def backfill_frame(
    spark: Any,
    scatter: Scatter,
    stream: str,
    data: Backfill,
    tasks: int,
    identity: str,
    access: Access = LOCAL,
) -> Any:
    """Return the payloads of history and of the live source as a streaming DataFrame."""
    if not isinstance(data.history, Files):
        raise UnsupportedError(
            f"the history of stream {stream!r} does not lie in files; on Spark it must (pk.scan)"
        )
    source = with_access(BackfillSource, access, HISTORY=data.history.access)
    spark.dataSource.register(source)
    found = [[absolute(file.path), file.partition] for file in data.history.found]
    most = getattr(data.live, "most_files", None) or _AT_ONCE
    given: dict[str, Any] = {
        "history": {"found": found, "format": data.history.format},
        "at": data.at,
        "tasks": tasks,
        "most": most,
    }
    match data.after:
        case LiveFiles() as live:
            given["files"] = file_options(live)
        case LiveTopic() as live:
            given["topic"] = topic_options(live)
        case _:
            raise UnsupportedError(
                f"what follows the history of stream {stream!r} does not go on; on Spark it must be "
                "pk.scan_stream or pk.scan_kafka"
            )
    reader = spark.readStream.format(source.FORMAT).option("scatter", scatter.to_json())
    reader = reader.option("stream", stream).option("identity", identity)
    return reader.option("secret", json.dumps(given)).load()
