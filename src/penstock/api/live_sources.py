"""Unbounded streams: files that appear in a folder, and Kafka messages."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike

from penstock.api.literals import encodable, shown, texts, whole
from penstock.api.source_options import Folder, LateTo, access_to, edges_of, seconds
from penstock.api.sources import stream_of
from penstock.api.stream import Stream
from penstock.errors import SourceError
from penstock.sources.malformed import DROP
from penstock.types.arrow import as_schema, checked
from penstock.types.duration import Duration

_AS_IN = {"servers": "localhost:9092", "topic": "clicks"}


def scan_stream(
    path: str | PathLike[str],
    *,
    time: str,
    format: str | None = None,
    schema: object = None,
    name: str | None = None,
    sequence: str | None = None,
    lateness: Duration | None = None,
    unit: str | None = None,
    on_bad: str | None = None,
    late_to: LateTo | None = None,
    quarantine_to: Folder | None = None,
    idle_after: Duration | None = None,
    poll: Duration = "1s",
    stop_after: Duration | None = None,
    max_files: int | None = None,
    storage_options: Mapping[str, object] | None = None,
    filesystem: object = None,
) -> Stream:
    """Read a stream of files that appear in a folder, or under a glob, while the query runs.

    `run` reads each file once, checks for new ones every `poll`, and ends after `stop_after=` without a new file;
    without `stop_after=` it never ends. `to_spark` returns a streaming DataFrame whose tasks read the files, at most
    `max_files=` per batch. `collect` reads the files present. If there is no file yet, give `schema=` and `format=`.
    The path may be a URI, with `storage_options=` or `filesystem=` as in `scan`; folders for late and malformed rows
    may lie in the same store.

    Lines that do not parse are malformed: counted and dropped (with a warning unless on_bad="drop" is given), an error
    with on_bad="fail", or written to `quarantine_to=` with on_bad="quarantine" (default: `_quarantine` next to the
    files). An unreadable file is an error, or with on_bad="quarantine" one malformed record.

    >>> import pathlib, tempfile, penstock as pk
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "a.csv").write_text("t,v" + chr(10) + "1,3" + chr(10) + "12,4" + chr(10))
    ...     clicks = pk.scan_stream(folder, time="t", stop_after="10ms", poll="1ms")
    ...     [batch["n"].to_pylist() for batch in clicks.window(10).agg(n=pk.count()).run()]
    [[1], [1]]
    """
    from penstock.sources.live_files import live_files  # noqa: PLC0415 - loaded on first use

    if not isinstance(path, (str, PathLike)):
        raise SourceError(f"scan_stream takes the path of a folder or a glob, not a {type(path).__name__}")
    if max_files is not None:
        max_files = whole(max_files, "max_files", 1)
    declared = None if schema is None else as_schema(schema)
    stop = None if stop_after is None else seconds(stop_after, "stop_after")
    access = access_to(path, storage_options, filesystem)
    data = live_files(path, format, declared, seconds(poll, "poll"), stop, max_files, access=access)
    edges = edges_of(on_bad, late_to, quarantine_to, idle_after, data.beside)
    return stream_of(name, data.schema, time, sequence, lateness, unit, on_bad, data, edges)


def scan_kafka(
    servers: str,
    topic: str,
    schema: object,
    *,
    time: str,
    format: str = "json",
    name: str | None = None,
    sequence: str | None = None,
    lateness: Duration | None = None,
    unit: str | None = None,
    on_bad: str | None = None,
    late_to: LateTo | None = None,
    quarantine_to: Folder | None = None,
    idle_after: Duration | None = None,
    poll: Duration = "100ms",
    stop_after: Duration | None = None,
    max_rows: int | None = None,
    options: Mapping[str, str] | None = None,
    value_schema: str | Mapping[str, object] | None = None,
) -> Stream:
    """Read a stream of the messages of a Kafka topic, from the oldest on, with values in "json", "arrow" or "avro".

    Each partition has its own watermark; that of the stream is their minimum. Columns `kafka_key`, `kafka_partition`,
    `kafka_offset`, `kafka_timestamp` and `kafka_headers` are filled if the schema has them. Avro needs `value_schema=`,
    the Avro schema of the writer; for values with the five-byte prefix of a schema registry, use format
    "avro-registry". A value that does not match the schema is malformed: dropped, an error with on_bad="fail", or
    written to the folder `quarantine_to=` (default: "quarantine") with on_bad="quarantine". A partition without
    messages for `idle_after=` no longer holds back the watermark. `options` are librdkafka's. `run` ends after
    `stop_after=` without messages; on Spark a batch reads at most `max_rows=` messages.

    >>> columns = {"ts": "timestamp[ms]", "campaign": "int64", "kafka_partition": "int32"}
    >>> clicks = pk.scan_kafka("localhost:9092", "clicks", columns, time="ts", lateness="5s")     # doctest: +SKIP
    >>> clicks.window("10s", by="campaign").agg(n=pk.count()).to_spark(spark)                     # doctest: +SKIP
    """
    from penstock.sources.kafka import LiveTopic, Topic, check_options  # noqa: PLC0415 - loaded on first use
    from penstock.sources.kafka_values import Decoder  # noqa: PLC0415

    for what, text in (("servers", servers), ("topic", topic)):
        if not isinstance(text, str) or not text or not encodable(text):
            raise SourceError(f"{what} of scan_kafka is a text such as {_AS_IN[what]!r}, not {text!r:.40}")
    if max_rows is not None:
        whole(max_rows, "max_rows", 1)
    decoder = Decoder(topic, checked(as_schema(schema)), format, time, on_bad or DROP, _avro(value_schema))
    stop = None if stop_after is None else seconds(stop_after, "stop_after")
    given = texts(options, "options", "{'group.id': 'clicks'}")
    check_options(given)
    where = Topic(servers, topic, given)
    data = LiveTopic(where, decoder, seconds(poll, "poll"), stop, max_rows)
    edges = edges_of(on_bad, late_to, quarantine_to, idle_after)
    return stream_of(name, data.schema, time, sequence, lateness, unit, on_bad, data, edges)


def _avro(given: str | Mapping[str, object] | None) -> str | None:
    """Check an Avro schema, and convert it to text."""
    if given is None:
        return None
    if not isinstance(given, str | Mapping):
        raise SourceError(f"value_schema is a schema of Avro, as text or as a mapping, not {shown(given)}")
    from penstock.sources.kafka_values import checked_schema  # noqa: PLC0415 - loaded on first use

    return checked_schema(given)
