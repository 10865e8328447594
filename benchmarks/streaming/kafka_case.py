"""Messages of a broker on this machine: what its consumer alone can read, and what a query over them does."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc

import penstock as pk
from benchmarks.contenders import PENSTOCK_GROUP
from benchmarks.figures import Case, Figure, least_cpu, ratio, speed
from benchmarks.measure import Outcome
from benchmarks.peers import PEER_GROUP
from benchmarks.suites import Progress
from benchmarks.workloads import VIEW, YsbKeyed, ysb_keyed
from penstock.sources.kafka import MOST_MESSAGES, Topic
from penstock.sources.kafka_values import Decoder

QUERY, BARE = "Penstock, the query", "the consumer alone"
LARGEST = 2_000_000
ROWS_A_MESSAGE = 10_000
PART_OF_BARE, MILLIONS = 0.8, 2.0
COLUMNS = ("ts", "campaign_id", "event_type", "value")
WINDOW_US = 10_000_000


@dataclass(frozen=True, slots=True)
class Sent:
    """A topic of one partition that holds the same rows as others, in values of its format."""

    topic: Topic
    format: str
    rows: pa.Table
    messages: int

    @property
    def query(self) -> pk.Stream:
        """Views by campaign in windows of ten seconds."""
        events = pk.stream("events", self.rows.schema, time="ts")
        views = events.filter(pk.col("event_type") == VIEW).window(WINDOW_US, by="campaign_id")
        made: pk.Stream = views.agg(total=pk.sum("value"))
        return made

    def answered(self) -> bool:
        """Run the query over all messages; tell whether all that had to be summed was."""
        decoder, total = Decoder(self.topic.topic, self.rows.schema, self.format, "ts"), 0
        with self.query.open() as live, self.topic.consumer() as consumer:
            for some in self.topic.messages(consumer, 0, (0, self.messages)):
                total += _totals(live.push(decoder(some).batch))
            total += _totals(live.finish())
        return total == _totals(self.query.collect(self.rows).to_batches())

    def consumed(self) -> bool:
        """Do nothing but read all messages."""
        from confluent_kafka import TopicPartition  # noqa: PLC0415 - an optional dependency

        read = 0
        with self.topic.consumer() as consumer:
            consumer.assign([TopicPartition(self.topic.topic, 0, 0)])
            while read < self.messages:
                some = consumer.consume(min(MOST_MESSAGES, self.messages - read), 1.0)
                read += sum(message.error() is None for message in some)
        return read == self.messages


def _totals(batches: list[pa.RecordBatch]) -> int:
    return sum(sum(batch["total"].to_pylist()) for batch in batches)


def kafka_cases(rows: int, keys: int, repeat: int, progress: Progress) -> tuple[list[Case], str | None]:
    """Start a broker, and ask; without one, say why."""
    try:
        from benchmarks.streaming.broker import NoBroker, jars, running  # noqa: PLC0415 - as above
    except ImportError:
        return [], "confluent-kafka is not installed: pip install 'penstock[kafka]'"
    progress("starting a broker of Kafka")
    table = _rows(min(rows, LARGEST), keys)
    with ExitStack() as stack:
        try:
            jars()
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-kafka-"))
            broker = stack.enter_context(running(Path(folder)))
        except NoBroker as reason:
            return [], str(reason)
        return [_asked(_sent(broker, name, table), repeat, progress) for name in ("json", "arrow")], None


def _rows(rows: int, keys: int) -> pa.Table:
    table = ysb_keyed(YsbKeyed(rows, keys)).select(list(COLUMNS))
    return table.set_column(0, "ts", table["ts"].cast(pa.int64())).combine_chunks()


def _sent(broker: Any, format: str, table: pa.Table) -> Sent:
    broker.topic(format, 1)
    values = list(_objects(table) if format == "json" else _streams(table))
    broker.send(format, [(0, value, None) for value in values])
    return Sent(Topic(broker.servers, format), format, table, len(values))


def _objects(table: pa.Table) -> Iterator[bytes]:
    return (json.dumps(row).encode() for row in table.to_pylist())


def _streams(table: pa.Table) -> Iterator[bytes]:
    for begin in range(0, table.num_rows, ROWS_A_MESSAGE):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.slice(begin, ROWS_A_MESSAGE))
        yield bytes(sink.getvalue())


def _asked(sent: Sent, repeat: int, progress: Progress) -> Case:
    mine, bare = Outcome(QUERY, PENSTOCK_GROUP, 1), Outcome(BARE, PEER_GROUP, 1)
    for turn in range(repeat):
        for outcome, call in ((mine, sent.answered), (bare, sent.consumed)):
            progress(f"Kafka, {sent.format} values: {outcome.name}, round {turn + 1}")
            _timed(outcome, call)
    case = Case(f"Kafka, {sent.format} values", sent.rows.num_rows, 0, (mine, bare))
    return Case(case.name, case.rows, case.keys, case.outcomes, kafka_figures(case))


def _timed(outcome: Outcome, call: Callable[[], bool]) -> None:
    begin, work = time.perf_counter(), time.process_time()
    agrees = call()
    outcome.seconds.append(time.perf_counter() - begin)
    outcome.cpu_seconds.append(time.process_time() - work)
    outcome.agrees = agrees and outcome.agrees is not False


def kafka_figures(case: Case) -> tuple[Figure, ...]:
    """Either is enough: most of what the consumer alone can read, or two million rows a second."""
    mine, bare = case.outcomes
    rate = speed(case, mine)
    millions = None if rate is None else rate / 1e6
    enough = millions is not None and millions >= MILLIONS
    part = ratio(speed(case, mine), speed(case, bare))
    return (
        Figure(f"{QUERY} / {BARE}", part, None if enough else PART_OF_BARE),
        Figure(f"{QUERY} / {BARE}, by processor time", ratio(least_cpu([bare]), least_cpu([mine]))),
        Figure("million rows a second", millions, MILLIONS if enough else None, unit=""),
    )
