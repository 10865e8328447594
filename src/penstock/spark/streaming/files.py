"""Read arriving files inside Spark tasks. Only payloads for shards enter the JVM.

An offset is the compressed list of files that have been read. So a repeated batch reads the same files, and a file
that appears late with an old date is read like any other.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from penstock.errors import SourceError
from penstock.sources.fragment import Fragment
from penstock.sources.live_files import LiveFiles, LiveReader
from penstock.sources.malformed import Bad
from penstock.sources.parquet_footers import Footer
from penstock.sources.paths import FoundFile
from penstock.sources.readers import TEXT
from penstock.spark.slices import Piece, as_json, even_parts, from_json, joined_part
from penstock.spark.storage import with_access
from penstock.spark.streaming.late_and_malformed import write_bad
from penstock.spark.streaming.read_limits import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from penstock.spark.streaming.shuffle_write import Scatter
from penstock.spark.streaming.source import PayloadSource, SplitReader
from penstock.storage.access import LOCAL, Access
from penstock.storage.uri import absolute
from penstock.types.windows import Steps


class FileSource(PayloadSource):
    """The streaming source of a stream's files."""

    FORMAT = "penstock_files"

    def stream_reader(self) -> DataSourceStreamReader:
        """Create the reader that plans on the driver and reads in tasks."""
        scatter, stream = self.scatter_and_stream()
        given, tasks = json.loads(self.options["files"]), int(self.options["tasks"])
        return FileReader.of(scatter, stream, given, tasks, scatter.steps(stream), self.ACCESS)


@dataclass(frozen=True)
class FilePartition(InputPartition):
    """The input of one task."""

    number: int
    part: str


class FileReader(SplitReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plan the files of each batch, and read them. With `steps`, times are decoded only to that granularity."""

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
        scatter: Scatter,
        stream: str,
        given: Mapping[str, Any],
        tasks: int,
        steps: Steps | None = None,
        access: Access = LOCAL,
    ) -> FileReader:
        """Create a reader from the output of `file_options`."""
        schema = scatter.source(stream).schema
        files = LiveFiles(given["path"], given["format"], schema, access=access)
        return FileReader(scatter, stream, files, tasks, given["most"], steps)

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Return the offset before the first file."""
        return offset([])

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the maximum number of files per batch."""
        return ReadAllAvailable() if self._most is None else ReadMaxFiles(self._most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the current list of files as the end of the query."""
        self._target = frozenset(file.path for file in self._files.listed())

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Add the oldest of the new files."""
        seen = files_of(start)
        target = self._target
        new = [
            file.path
            for file in self._files.listed()
            if file.path not in seen and (target is None or file.path in target)
        ]
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        return offset([*seen, *new[:most]]) if new else start

    def newest(self) -> dict[str, str]:
        """Return the offset behind all files that are there."""
        return offset(file.path for file in self._files.listed())

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """Divide the files of a batch among tasks."""
        there = {file.path: file for file in self._files.listed()}
        found = [_there(path, there) for path in sorted(files_of(end) - files_of(start))]
        on_bad = self._scatter.source(self._stream).on_bad
        return self.divided([fragment for file in found for fragment in self._files.fragments(file, on_bad)])

    def divided(self, fragments: Sequence[Fragment]) -> list[FilePartition]:
        """Divide fragments among tasks."""
        parts = even_parts([Piece(self._stream, fragment, 0) for fragment in fragments], self._tasks)
        texts = (json.dumps(as_json(joined_part(part))) for part in parts if part.pieces)
        return [FilePartition(number, text) for number, text in enumerate(texts)]

    def place(self, partition: InputPartition) -> tuple[int, str]:
        """Return the task number and the split name, which is empty for files."""
        assert isinstance(partition, FilePartition)
        return partition.number, ""

    def rows(self, partition: InputPartition, bad: list[Bad]) -> Iterator[pa.RecordBatch]:
        """Read all rows. Rows that the query rejects count for the watermark."""
        assert isinstance(partition, FilePartition)
        source, columns = self._scatter.source(self._stream), list(self._scatter.columns(self._stream))
        # A line of text must be valid in all columns, also those that the query does not read.
        read = source.schema.names if self._files.format in TEXT else columns
        access = self._files.access
        reader = LiveReader(
            source.schema, tuple(read), source.time.column, source.on_bad, steps=self._steps, access=access
        )
        footers: dict[str, Footer] = {}
        for piece in from_json(json.loads(partition.part)).pieces:
            path = piece.fragment.path
            for batch, found in reader(piece.fragment, footers.setdefault(path, Footer(path, access))):
                bad.extend(found)
                yield batch.select(columns)
        write_bad(source, partition.part, bad, access)


def _there(path: str, there: dict[str, FoundFile]) -> FoundFile:
    if path not in there:
        raise SourceError(
            f"the file {path!r} is part of a batch that has not been committed, and is gone; put it back"
        )
    return there[path]


def offset(paths: Iterable[str]) -> dict[str, str]:
    """Encode the set of files that have been read.

    >>> sorted(files_of(offset(["b", "a"])))
    ['a', 'b']
    """
    text = json.dumps(sorted(set(paths)))
    return {"files": base64.b64encode(zlib.compress(text.encode())).decode("ascii")}


def files_of(given: dict[str, str]) -> frozenset[str]:
    """Decode the output of `offset`."""
    return frozenset(json.loads(zlib.decompress(base64.b64decode(given["files"]))))


def file_frame(
    spark: Any,
    scatter: Scatter,
    stream: str,
    files: LiveFiles,
    tasks: int,
    identity: str,
    access: Access = LOCAL,
) -> Any:
    """Return the payloads of a stream of files as a streaming DataFrame."""
    source = with_access(FileSource, access)
    spark.dataSource.register(source)
    reader = (
        spark.readStream.format(source.FORMAT)
        .option("scatter", scatter.to_json())
        .option("stream", stream)
        .option("identity", identity)
    )
    return reader.option("files", json.dumps(file_options(files))).option("tasks", str(tasks)).load()


def file_options(files: LiveFiles) -> dict[str, Any]:
    """Encode the location of the files."""
    return {"path": absolute(files.path), "format": files.format, "most": files.most_files}
