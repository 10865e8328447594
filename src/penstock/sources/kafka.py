"""A Kafka topic: its offsets, and the messages between two offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import methodcaller
from typing import Any, ClassVar

import pyarrow as pa

from penstock.errors import EngineError, SourceError
from penstock.sources.kafka_values import Decoder, Message
from penstock.sources.live_files import Clock
from penstock.sources.malformed import Arrived

MOST_MESSAGES = 100_000
_PATIENCE = 30.0  # seconds that a broker may be unavailable
_DOUBT = 5.0  # seconds after its start in which a broker may not list its topics yet
_PAUSE = 0.2

# Settings that determine which messages are read; options cannot override them.
FIXED: Mapping[str, object] = {
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
}

Range = tuple[int, int]

_error = methodcaller("error")


@dataclass(frozen=True, slots=True)
class Topic:
    """The location of messages, and how to read them. Options are those of librdkafka; they include secrets and are never shown."""

    servers: str
    topic: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    clock: Clock = field(default=Clock(), compare=False, repr=False)

    @contextmanager
    def consumer(self) -> Iterator[Any]:
        """Open a consumer without a group: the planner assigns partitions, not the broker."""
        kafka = _confluent()
        settings = {
            "group.id": "penstock",  # required by librdkafka, though the group is never joined
            **self.options,
            "bootstrap.servers": self.servers,
            **FIXED,
        }
        try:
            made = kafka.Consumer(settings)
        except (kafka.KafkaException, ValueError, TypeError, AttributeError, SystemError) as error:
            raise SourceError(_refused(self.topic, self.options, str(error))) from None
        try:
            yield made
        finally:
            made.close()

    def ends(self, consumer: Any) -> dict[int, Range]:
        """Return the first offset and the end offset of every partition, retrying while brokers are unavailable."""
        kafka = _confluent()
        begun = self.clock.now()
        while True:
            try:
                return self._ends(consumer, kafka)
            except kafka.KafkaException as error:
                waited = self.clock.now() - begun
                if waited >= (_PATIENCE if _is_away(error) else min(_PATIENCE, _DOUBT)):
                    raise SourceError(_complaint(self.topic, error)) from None
            self.clock.sleep(_PAUSE)

    def _ends(self, consumer: Any, kafka: Any) -> dict[int, Range]:
        found = consumer.list_topics(self.topic, timeout=_PATIENCE).topics[self.topic]
        if found.error is not None:
            raise kafka.KafkaException(found.error)
        places = {number: kafka.TopicPartition(self.topic, number) for number in sorted(found.partitions)}
        return {
            number: consumer.get_watermark_offsets(place, timeout=_PATIENCE)
            for number, place in places.items()
        }

    def messages(self, consumer: Any, partition: int, wanted: Range) -> Iterator[list[Message]]:
        """Read the messages of a partition between two offsets, in chunks, retrying while a broker is unavailable."""
        kafka = _confluent()
        begin, end = wanted
        low, _ = self.ends(consumer)[partition]
        if begin < low:
            raise SourceError(
                f"offsets {begin} to {low - 1} of partition {partition} of topic {self.topic!r} are gone from the broker "
                "before they were read; keep messages for longer, or begin with a new checkpoint"
            )
        consumer.assign([kafka.TopicPartition(self.topic, partition, begin)])
        at, since = begin, self.clock.now()
        while at < end:
            # `consume` blocks until it has the requested number of messages. A larger request would block for the whole second.
            found = consumer.consume(min(MOST_MESSAGES, end - at), timeout=1.0)
            rows: list[Message] = _messages(found)
            while rows and rows[-1].offset() >= end:
                rows.pop()
            if rows:
                yield rows
            moved = _position(consumer, self.topic, partition, at)
            since = self.clock.now() if moved > at else since
            if self.clock.now() - since > _PATIENCE:
                raise SourceError(
                    f"partition {partition} of topic {self.topic!r} gives nothing at offset {at}; "
                    "check that the broker is there and lets this consumer read"
                )
            at = moved


def _messages(found: list[Any]) -> list[Message]:
    """Drop errors and end-of-partition events, which are few among hundreds of thousands of messages."""
    if not any(map(_error, found)):
        return found
    return [message for message in found if message.error() is None]


def _position(consumer: Any, topic: str, partition: int, before: int) -> int:
    """Return the position of the consumer, which also passes transaction markers."""
    (place,) = consumer.position([_confluent().TopicPartition(topic, partition)])
    return max(before, int(place.offset))


@dataclass(frozen=True, slots=True)
class LiveTopic:
    """A topic as the data of a stream. Each partition is a split with a separate watermark."""

    topic: Topic
    decoder: Decoder
    poll: float = 1.0
    stop_after: float | None = None
    most_rows: int | None = None
    clock: Clock = field(default=Clock(), compare=False)

    endless: ClassVar[bool] = True

    @property
    def schema(self) -> pa.Schema:
        return self.decoder.schema

    @property
    def rows(self) -> int | None:
        return None

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Read messages as they arrive; see `arrivals`."""
        names = list(self.schema.names if columns is None else columns)
        given = self.arrivals(self.decoder.time, self.decoder.on_bad)
        return (argument.batch.select(names) for argument in given)

    def arrivals(self, time: str, on_bad: str) -> Iterator[Arrived]:
        """Read messages as they arrive, from the oldest, with their split.

        Each round announces all splits with messages before the first row, so that no split overtakes another. Otherwise, an
        empty batch signals that nothing has arrived, so that other sources can run.
        """
        nothing = pa.RecordBatch.from_pylist([], self.schema)
        decoder = replace(self.decoder, time=time, on_bad=on_bad)
        with self.topic.consumer() as consumer:
            at: dict[int, int] = {}
            since = self.clock.now()
            while self.stop_after is None or self.clock.now() - since < self.stop_after:
                new = _unread(self.topic.ends(consumer), at)
                yield from (Arrived(nothing, str(number)) for number in new)
                for number, wanted in new.items():
                    for some in self.topic.messages(consumer, number, wanted):
                        yield decoder(some)
                    at[number] = wanted[1]
                    since = self.clock.now()
                if not new:
                    yield Arrived(nothing)
                    self.clock.sleep(self.poll)


def _unread(ends: Mapping[int, Range], at: Mapping[int, int]) -> dict[int, Range]:
    """Return the unread offsets of each partition."""
    found = {number: (at.get(number, low), high) for number, (low, high) in ends.items()}
    return {number: (begin, end) for number, (begin, end) in found.items() if begin < end}


def _confluent() -> Any:
    try:
        import confluent_kafka  # noqa: PLC0415 - an optional dependency
    except ImportError:
        raise EngineError("confluent-kafka is not installed; pip install 'penstock[kafka]'") from None
    return confluent_kafka


def _is_away(error: Any) -> bool:
    """Check whether an error is a connection error, which is retried, and not an error of the topic."""
    return bool(error.args) and hasattr(error.args[0], "code") and error.args[0].code() < 0


def _complaint(topic: str, error: Any) -> str:
    what = "the brokers of topic {!r} do not answer" if _is_away(error) else "the topic {!r} cannot be read"
    return f"{what.format(topic)}: {_name(error)}"


def check_options(options: Mapping[str, str]) -> None:
    """Reject options that are set here."""
    for name in options:
        if name in FIXED or name in ("bootstrap.servers", "metadata.broker.list"):
            raise SourceError(f"the option {name!r} of scan_kafka is set by the source itself; leave it out")


def _refused(topic: str, options: Mapping[str, str], reported: str) -> str:
    """Name the option that librdkafka rejects. The original message is not shown, since it may quote values."""
    named = sorted((name for name in options if f'"{name}"' in reported or f"{name} " in reported), key=len)
    which = f"the option {named[-1]!r}" if named else "an option, or servers"
    why = (
        "there is no such option"
        if "No such configuration property" in reported
        else "its value is not valid"
    )
    return f"{which} of topic {topic!r} is refused by librdkafka: {why}; see its list of configuration properties"


def _name(error: Any) -> str:
    """Return the name of a Kafka error without its text, which may contain the configuration."""
    return (
        str(error.args[0].name()) if error.args and hasattr(error.args[0], "name") else type(error).__name__
    )
