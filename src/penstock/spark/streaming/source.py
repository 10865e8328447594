"""What the streaming sources of Spark share: their rows leave as parcels for shards."""

from __future__ import annotations

import base64
import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from penstock.errors import PenstockError, PlanError, StateError
from penstock.runtime.state.differences import require_same
from penstock.sources.malformed import Bad
from penstock.spark.exchange import SPARK_SCHEMA, packed
from penstock.spark.streaming.shard import unfit
from penstock.spark.streaming.shuffle_write import Scatter
from penstock.spark.tasks import settle


class PayloadSource(DataSource, ABC):
    """Rows of a stream, sent to shards. Options are data: no code is read from them."""

    FORMAT: ClassVar[str]

    @classmethod
    def name(cls) -> str:
        """The name after `format`."""
        return cls.FORMAT

    def schema(self) -> str:
        """The columns of parcels."""
        return SPARK_SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Plan on the driver, read in tasks; offsets say which query they are of."""
        del schema
        try:
            return SignedReader(self.stream_reader(), self.options["identity"])
        except PenstockError:
            raise
        except (LookupError, ValueError, TypeError, AttributeError):
            raise PlanError(
                f"the options of format {self.FORMAT!r} are not those that to_spark writes; it is a part of "
                "query.to_spark(spark), which is what to call"
            ) from None

    @abstractmethod
    def stream_reader(self) -> DataSourceStreamReader:
        """Make a reader of the options."""

    def asked(self) -> tuple[Scatter, str]:
        """How rows are sent, and the stream they are of."""
        return Scatter.from_json(self.options["scatter"]), self.options["stream"]


class SplitReader(ABC):
    """Reads what a task is given: one split of one stream."""

    _scatter: Scatter
    _stream: str

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a task and send them on."""
        bad: list[Bad] = []
        task, split = self.place(partition)
        rows = self.rows(partition, bad)
        yield from packed(self._scatter.payloads(task, self._stream, split, rows, lambda: len(bad)))
        settle("source")

    @abstractmethod
    def place(self, partition: InputPartition) -> tuple[int, str]:
        """Number a task, and name the split it reads."""

    @abstractmethod
    def rows(self, partition: InputPartition, bad: list[Bad]) -> Iterator[pa.RecordBatch]:
        """Read all rows, those too that the query rejects: they tell the time. Add what are none to `bad`."""


class SignedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader whose offsets say which query they are of, so that another one is refused before anything is read.

    Spark keeps offsets in the checkpoint, and gives the last one back when a query starts again. Offsets of a version
    that did not sign them are taken as they are: shards compare what they have saved with the first rows.
    """

    SIGNED = "query"

    def __init__(self, reader: Any, identity: str) -> None:
        """`identity` is what `State` compares, as JSON."""
        self._reader = reader
        self._signature = base64.b64encode(zlib.compress(identity.encode())).decode("ascii")

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Sign where the reader begins."""
        return self._with_signature(self._reader.initialOffset())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Leave the limit to the reader."""
        limit: ReadLimit = self._reader.getDefaultReadLimit()
        return limit

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Leave out what comes from now on."""
        self._reader.prepareForTriggerAvailableNow()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Refuse to go on from an offset of another query."""
        self._check(start)
        before = self._plain(start)
        reached = self._reader.latestOffset(before, limit)
        return start if reached == before else self._with_signature(reached)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Divide what a batch reads, one too that an earlier run began, if it was of this query."""
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
        return {name: each for name, each in offset.items() if name != self.SIGNED}

    def _check(self, offset: Mapping[str, Any]) -> None:
        written = offset.get(self.SIGNED, self._signature)
        if written != self._signature:
            try:
                require_same(_identity(written), _identity(self._signature))
            except StateError as error:
                raise unfit(error) from None


def _identity(signature: object) -> dict[str, str]:
    """Read a signature; a damaged one is that of no query."""
    try:
        found = json.loads(zlib.decompress(base64.b64decode(str(signature), validate=True)))
        return {str(name): str(text) for name, text in found.items()}
    except (ValueError, zlib.error, AttributeError):
        raise StateError("the offsets in the checkpoint are damaged") from None
