"""The base of Spark's streaming sources: rows leave as payloads for shards."""

from __future__ import annotations

import base64
import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from penstock.errors import PenstockError, PlanError, StateError
from penstock.sources.malformed import Bad
from penstock.spark.exchange import SPARK_SCHEMA, packed
from penstock.spark.streaming.read_limits import (
    PASSES_START,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from penstock.spark.streaming.shard import unfit
from penstock.spark.streaming.shuffle_write import Scatter
from penstock.spark.task_memory import settle
from penstock.state.chunks import require_same
from penstock.storage.access import LOCAL, Access


class PayloadSource(DataSource, ABC):
    """A streaming source that sends the rows of a stream to shards. Options are data: no code is read from them."""

    FORMAT: ClassVar[str]
    ACCESS: ClassVar[Access] = LOCAL

    @classmethod
    def name(cls) -> str:
        """Return the format name."""
        return cls.FORMAT

    def schema(self) -> str:
        """Return the schema of payloads."""
        return SPARK_SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Create the reader. Its offsets carry the signature of the query."""
        del schema
        try:
            reader = SignedReader(self.stream_reader(), self.options["identity"])
            return reader if PASSES_START else TrackingReader(reader)
        except PenstockError:
            raise
        except (LookupError, ValueError, TypeError, AttributeError):
            raise PlanError(
                f"the options of format {self.FORMAT!r} are not those that to_spark writes; it is a part of "
                "query.to_spark(spark), which is what to call"
            ) from None

    @abstractmethod
    def stream_reader(self) -> DataSourceStreamReader:
        """Create a reader from the options."""

    def scatter_and_stream(self) -> tuple[Scatter, str]:
        """Return the shuffle writer and the name of the stream."""
        return Scatter.from_json(self.options["scatter"]), self.options["stream"]


class SplitReader(ABC):
    """Read the input of a task: one split of one stream."""

    _scatter: Scatter
    _stream: str

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a task, and yield them as payloads."""
        bad: list[Bad] = []
        task, split = self.place(partition)
        rows = self.rows(partition, bad)
        yield from packed(self._scatter.payloads(task, self._stream, split, rows, lambda: len(bad)))
        settle("source")

    @abstractmethod
    def place(self, partition: InputPartition) -> tuple[int, str]:
        """Return the task number and the split name."""

    @abstractmethod
    def rows(self, partition: InputPartition, bad: list[Bad]) -> Iterator[pa.RecordBatch]:
        """Read all rows, since rejected rows count for the watermark. Add malformed records to `bad`."""


class SignedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader whose offsets carry the signature of their query. A different query is rejected before anything is read.

    Spark stores offsets in the checkpoint, and passes the last one to a restarted query. Offsets of an earlier version
    without a signature are accepted: shards check their saved state with the first rows.
    """

    SIGNED = "query"

    def __init__(self, reader: Any, identity: str) -> None:
        """Wrap a reader. `identity` is the signature that `State` compares, as JSON."""
        self._reader = reader
        self._signature = base64.b64encode(zlib.compress(identity.encode())).decode("ascii")

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the reader's first offset with the signature."""
        return self._with_signature(self._reader.initialOffset())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the reader's limit."""
        limit: ReadLimit = self._reader.getDefaultReadLimit()
        return limit

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the current end of the source as the end of the query."""
        self._reader.prepareForTriggerAvailableNow()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Advance the offset. Reject an offset of another query."""
        self._check(start)
        before = self._plain(start)
        reached = self._reader.latestOffset(before, limit)
        return start if reached == before else self._with_signature(reached)

    def newest(self) -> dict[str, Any]:
        """Return the offset behind everything that is there, with the signature."""
        return self._with_signature(self._reader.newest())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Divide the input of a batch, also of one that an earlier run of this query began."""
        self._check(end)
        found: Sequence[InputPartition] = self._reader.partitions(self._plain(start), self._plain(end))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a task."""
        rows: Iterator[pa.RecordBatch] = self._reader.read(partition)
        return rows

    def _with_signature(self, offset: Mapping[str, Any]) -> dict[str, Any]:
        return {**offset, self.SIGNED: self._signature}

    def _plain(self, offset: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in offset.items() if name != self.SIGNED}

    def _check(self, offset: Mapping[str, Any]) -> None:
        written = offset.get(self.SIGNED, self._signature)
        if written != self._signature:
            try:
                require_same(_identity(written), _identity(self._signature))
            except StateError as error:
                raise unfit(error) from None


class TrackingReader(DataSourceStreamReader):
    """A reader for Spark before 4.2, which passes the start of a batch only when it plans the batch.

    The start of the next batch is the end of the last one planned. A query that goes on with a committed batch has
    planned none: its first batch reads everything that is there. So does `availableNow`, for which Spark requests the end
    before it requests the start, and which is one batch before 4.2.
    """

    def __init__(self, reader: SignedReader) -> None:
        """Wrap a reader."""
        self._reader = reader
        self._start: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the first offset, at which a new query starts."""
        self._start = self._reader.initialOffset()
        return self._start

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 - Spark's name and arguments before 4.2
        """Advance the offset."""
        if self._start is None:
            return self._reader.newest()
        return self._reader.latestOffset(self._start, self._reader.getDefaultReadLimit())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Divide the input of a batch. The next one starts at its end."""
        self._start = end
        return self._reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a task."""
        return self._reader.read(partition)


def _identity(signature: object) -> dict[str, str]:
    """Decode a signature. A damaged one is an error."""
    try:
        found = json.loads(zlib.decompress(base64.b64decode(str(signature), validate=True)))
        return {str(name): str(text) for name, text in found.items()}
    except (ValueError, zlib.error, AttributeError):
        raise StateError(
            "the offsets in the checkpoint are damaged; restore it, or start the query on a new one"
        ) from None
