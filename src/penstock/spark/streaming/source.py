"""What the streaming sources of Spark share: their rows leave as parcels for shards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition

from penstock.sources.bad import Bad
from penstock.spark.exchange import SPARK_SCHEMA, packed
from penstock.spark.streaming.scatter import Scatter
from penstock.spark.tasks import settle


class ParcelSource(DataSource):
    """Rows of a stream, sent to shards. Options are data: no code is read from them."""

    FORMAT: ClassVar[str]

    @classmethod
    def name(cls) -> str:
        """The name after `format`."""
        return cls.FORMAT

    def schema(self) -> str:
        """The columns of parcels."""
        return SPARK_SCHEMA

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
        yield from packed(self._scatter.parcels(task, self._stream, split, rows, lambda: len(bad)))
        settle("source")

    @abstractmethod
    def place(self, partition: InputPartition) -> tuple[int, str]:
        """Number a task, and name the split it reads."""

    @abstractmethod
    def rows(self, partition: InputPartition, bad: list[Bad]) -> Iterator[pa.RecordBatch]:
        """Read all rows, those too that the query rejects: they tell the time. Add what are none to `bad`."""
