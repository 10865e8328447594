"""Read a Kafka topic inside Spark tasks. The driver plans offsets; tasks run the consumers.

An offset maps each partition to the next message to read. Each partition is a split with a separate watermark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from penstock.sources.kafka import LiveTopic, Range, Topic
from penstock.sources.kafka_values import Decoder
from penstock.sources.malformed import Bad
from penstock.spark.storage import with_access
from penstock.spark.streaming.late_and_malformed import write_bad
from penstock.spark.streaming.read_limits import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from penstock.spark.streaming.shuffle_write import Scatter
from penstock.spark.streaming.source import PayloadSource, SplitReader
from penstock.storage.access import LOCAL, Access


class KafkaSource(PayloadSource):
    """The streaming source of a topic's messages."""

    FORMAT = "penstock_kafka"

    def stream_reader(self) -> DataSourceStreamReader:
        """Create the reader that plans on the driver and reads in tasks."""
        return KafkaReader.of(*self.scatter_and_stream(), json.loads(self.options["secret"]), self.ACCESS)


@dataclass(frozen=True)
class KafkaPartition(InputPartition):
    """The input of one task."""

    partition: int
    begin: int
    end: int


class KafkaReader(SplitReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plan the offsets of each batch, and read them."""

    def __init__(
        self,
        scatter: Scatter,
        stream: str,
        topic: Topic,
        decoder: Decoder,
        most: int | None,
        access: Access = LOCAL,
    ) -> None:
        self._scatter, self._stream, self._topic, self._decoder = scatter, stream, topic, decoder
        self._most, self._access = most, access
        self._target: dict[int, Range] | None = None

    @staticmethod
    def of(scatter: Scatter, stream: str, given: Mapping[str, Any], access: Access = LOCAL) -> KafkaReader:
        """Create a reader from the output of `topic_options`."""
        topic, source = Topic(given["servers"], given["topic"], given["options"]), scatter.source(stream)
        how = given["format"], source.time.column, source.on_bad, given["value_schema"]
        decoder = Decoder(topic.topic, source.schema, *how)
        return KafkaReader(scatter, stream, topic, decoder, given["most"], access)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the offsets of the oldest messages."""
        return {str(number): low for number, (low, _) in self._ends().items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the maximum number of messages per batch."""
        return ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the current ends of the partitions as the end of the query."""
        self._target = self._ends()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Advance to the last messages or to the limit, which non-empty partitions share equally."""
        ends = self._ends() if self._target is None else self._target
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return reached(start, ends, most)

    def newest(self) -> dict[str, int]:
        """Return the offsets behind the last messages."""
        return {str(number): high for number, (_, high) in self._ends().items()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Create one task for each non-empty partition of the topic."""
        ends = self._ends()
        ranges = {int(number): (start.get(number, 0), last) for number, last in end.items()}
        new = {int(number) for number in end if number not in start}
        return [
            KafkaPartition(number, *span)
            for number, span in sorted(ranges.items())
            if span[0] < span[1] and not (number in new and ends[number][0] >= span[1])
        ]

    def place(self, partition: InputPartition) -> tuple[int, str]:
        """Return the task number and the split name."""
        assert isinstance(partition, KafkaPartition)
        return partition.partition, str(partition.partition)

    def rows(self, partition: InputPartition, bad: list[Bad]) -> Iterator[pa.RecordBatch]:
        """Read the messages of a partition; add malformed ones to `bad`."""
        assert isinstance(partition, KafkaPartition)
        columns = list(self._scatter.columns(self._stream))
        number, wanted = partition.partition, (partition.begin, partition.end)
        with self._topic.consumer() as consumer:
            for some in self._topic.messages(consumer, number, wanted):
                given = self._decoder(some)
                bad.extend(given.bad)
                yield given.batch.select(columns)
        source = self._scatter.source(self._stream)
        write_bad(source, f"{self._topic.topic}/{number}/{wanted}", bad, self._access)

    def _ends(self) -> dict[int, Range]:
        with self._topic.consumer() as consumer:
            return self._topic.ends(consumer)


def reached(start: Mapping[str, int], ends: Mapping[int, Range], most: int | None) -> dict[str, int]:
    """Return the end offsets of a batch. A new partition that has lost its first messages starts with the next batch.

    >>> reached({"0": 5}, {0: (0, 100), 1: (0, 4), 2: (7, 9)}, 30)
    {'0': 20, '1': 4, '2': 7}
    """
    known = {number: start.get(str(number), 0) for number in ends}
    waiting = [number for number, (_, high) in ends.items() if known[number] < high]
    share = None if most is None else max(most // max(len(waiting), 1), 1)
    found = {number: _end(known[number], high, share) for number, (_, high) in ends.items()}
    late = {number: low for number, (low, _) in ends.items() if low and str(number) not in start}
    return {**start, **{str(number): last for number, last in {**found, **late}.items()}}


def _end(begin: int, high: int, share: int | None) -> int:
    return max(begin, high if share is None else min(high, begin + share))


def topic_frame(
    spark: Any, scatter: Scatter, stream: str, live: LiveTopic, identity: str, access: Access = LOCAL
) -> Any:
    """Return the payloads of a topic as a streaming DataFrame. Spark redacts options named "secret" in logs and plans."""
    source = with_access(KafkaSource, access)
    spark.dataSource.register(source)
    reader = spark.readStream.format(source.FORMAT).option("scatter", scatter.to_json())
    reader = reader.option("stream", stream).option("identity", identity)
    return reader.option("secret", json.dumps(topic_options(live))).load()


def topic_options(live: LiveTopic) -> dict[str, Any]:
    """Encode the location and the format of the messages."""
    return {
        "servers": live.topic.servers,
        "topic": live.topic.topic,
        "options": dict(live.topic.options),
        "format": live.decoder.format,
        "value_schema": live.decoder.value_schema,
        "most": live.most_rows,
    }
