"""Files that appear, read inside Spark's tasks: only what shards are sent enters the JVM.

An offset is the list of files that have been read, compressed. So a batch that is run again reads the same files, and
a file that turns up late, with an old date, is read like any other.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from penstock.errors import SourceError
from penstock.sources.fragment import Fragment
from penstock.sources.live_files import LiveFiles
from penstock.sources.live_rows import LiveReader
from penstock.sources.malformed import Bad
from penstock.sources.paths import Found
from penstock.sources.prefetch import Footer
from penstock.sources.readers import TEXT
from penstock.spark.slices import Piece, as_json, even_parts, from_json, joined_part
from penstock.spark.streaming.late_and_malformed import write_bad
from penstock.spark.streaming.shuffle_write import Scatter
from penstock.spark.streaming.source import PayloadSource, SplitReader
from penstock.types.windows import Steps


class FileSource(PayloadSource):
    """The files of a stream."""

    FORMAT = "penstock_files"

    def stream_reader(self) -> DataSourceStreamReader:
        """Plan on the driver, read in tasks."""
        scatter, stream = self.asked()
        given, tasks = json.loads(self.options["files"]), int(self.options["tasks"])
        return FileReader.of(scatter, stream, given, tasks, scatter.steps(stream))


@dataclass(frozen=True)
class FilePartition(InputPartition):
    """What one task reads."""

    number: int
    part: str


class FileReader(SplitReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Which files a batch reads, and the reading: times only as finely as `steps` says, if it says so."""

    def __init__(
        self,
        scatter: Scatter,
        stream: str,
        files: LiveFiles,
        tasks: int,
        most: int | None,
        steps: Steps | None = None,
    ) -> None:
        self._scatter, self._stream, self._files = scatter, stream, files
        self._tasks, self._most, self._steps = tasks, most, steps
        self._target: frozenset[str] | None = None

    @staticmethod
    def of(
        scatter: Scatter, stream: str, given: Mapping[str, Any], tasks: int, steps: Steps | None = None
    ) -> FileReader:
        """Read what `file_options` wrote."""
        files = LiveFiles(given["path"], given["format"], scatter.source(stream).schema)
        return FileReader(scatter, stream, files, tasks, given["most"], steps)

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Begin before the first file."""
        return offset([])

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Tell how many files a batch reads at most."""
        return ReadAllAvailable() if self._most is None else ReadMaxFiles(self._most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Leave out what comes from now on."""
        self._target = frozenset(each.path for each in self._files.listed())

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Add the oldest of the new files."""
        seen = files_of(start)
        target = self._target
        new = [
            each.path
            for each in self._files.listed()
            if each.path not in seen and (target is None or each.path in target)
        ]
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        return offset([*seen, *new[:most]]) if new else start

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """Divide the files of a batch among tasks."""
        there = {each.path: each for each in self._files.listed()}
        found = [_there(path, there) for path in sorted(files_of(end) - files_of(start))]
        on_bad = self._scatter.source(self._stream).on_bad
        return self.divided([each for file in found for each in self._files.fragments(file, on_bad)])

    def divided(self, fragments: Sequence[Fragment]) -> list[FilePartition]:
        """Divide fragments among tasks."""
        parts = even_parts([Piece(self._stream, each, 0) for each in fragments], self._tasks)
        texts = (json.dumps(as_json(joined_part(part))) for part in parts if part.pieces)
        return [FilePartition(number, text) for number, text in enumerate(texts)]

    def place(self, partition: InputPartition) -> tuple[int, str]:
        """Number a task, and name the split it reads: files have none."""
        assert isinstance(partition, FilePartition)
        return partition.number, ""

    def rows(self, partition: InputPartition, bad: list[Bad]) -> Iterator[pa.RecordBatch]:
        """Read all rows, those too that the query rejects: they tell the time."""
        assert isinstance(partition, FilePartition)
        source, columns = self._scatter.source(self._stream), list(self._scatter.columns(self._stream))
        # Whether a line of text is a row of the stream does not depend on what the query reads of it.
        read = source.schema.names if self._files.format in TEXT else columns
        reader = LiveReader(source.schema, tuple(read), source.time.column, source.on_bad, steps=self._steps)
        footers: dict[str, Footer] = {}
        for piece in from_json(json.loads(partition.part)).pieces:
            path = piece.fragment.path
            for batch, found in reader(piece.fragment, footers.setdefault(path, Footer(path))):
                bad.extend(found)
                yield batch.select(columns)
        write_bad(source, partition.part, bad)


def _there(path: str, there: dict[str, Found]) -> Found:
    if path not in there:
        raise SourceError(
            f"the file {path!r} is part of a batch that has not been committed, and is gone; put it back"
        )
    return there[path]


def offset(paths: Iterable[str]) -> dict[str, str]:
    """Write which files have been read.

    >>> sorted(files_of(offset(["b", "a"])))
    ['a', 'b']
    """
    text = json.dumps(sorted(set(paths)))
    return {"files": base64.b64encode(zlib.compress(text.encode())).decode("ascii")}


def files_of(given: dict[str, str]) -> frozenset[str]:
    """Read what `offset` wrote."""
    return frozenset(json.loads(zlib.decompress(base64.b64decode(given["files"]))))


def file_frame(spark: Any, scatter: Scatter, stream: str, files: LiveFiles, tasks: int, identity: str) -> Any:
    """Give the parcels of a stream of files."""
    spark.dataSource.register(FileSource)
    reader = (
        spark.readStream.format(FileSource.FORMAT)
        .option("scatter", scatter.to_json())
        .option("stream", stream)
        .option("identity", identity)
    )
    return reader.option("files", json.dumps(file_options(files))).option("tasks", str(tasks)).load()


def file_options(files: LiveFiles) -> dict[str, Any]:
    """Write where the files are."""
    where = os.path.abspath(files.path)  # noqa: PTH100 - a glob is no path
    return {"path": where, "format": files.format, "most": files.most_files}
