"""Spark Structured Streaming over files of the feed: its own watermark, aggregation and RocksDB state."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import penstock as pk
from benchmarks.live.feed import Arrivals, Feed, buffers_of, rows_of
from benchmarks.live.measure import QUANTILES
from benchmarks.live.peers import PeerError, ticks
from benchmarks.live.points import Found
from benchmarks.live.queries import QUERIES, completing_rows
from benchmarks.streaming.runs import Batches
from benchmarks.streaming.suite import ROCKSDB

FILES = 10
"""Micro-batches of a closed loop, one file each; the first ones warm up and do not count."""
WARM_FILES = 4
FILE_SECONDS = 0.5
LATENCY_SECONDS = 20.0
LATENCY_WARM = 0.4
"""The part of an open loop that does not count: first batches take seconds."""
SENTINEL_KEY, SENTINEL_AFTER_US = -1, 10_000_000
FAILED = "Spark: the stream failed"


@contextmanager
def open_spark() -> Iterator[Spark | None]:
    """Start a session; give nothing where pyspark is missing."""
    if find_spec("pyspark") is None:
        yield None
        return
    with TemporaryDirectory(prefix="penstock-live-spark-") as folder:
        yield Spark(Path(folder))


@dataclass
class Spark:
    """Tumbling, sliding and session windows, and filters; streams have neither look-backs nor count windows."""

    folder: Path
    name: str = "Spark"
    rows: int = 2_000_000
    queries: tuple[str, ...] = ("tumbling", "sliding", "session", "filter")
    _runs: int = field(default=0, init=False)

    def answer(self, query: str, feed: Feed, threads: int) -> pa.Table:
        """Collect all results; a row far in the future closes all windows."""
        with self._session(threads) as spark:
            made = self._closed(spark, query, feed)
        return plain_results(pa.concat_tables(made.tables))

    def throughput(self, query: str, feed: Feed, threads: int) -> Mapping[str, Found]:
        """Measure the batches behind the warm ones, of equal files."""
        with self._session(threads) as spark:
            made = self._closed(spark, query, feed)
        return {"": counted(made, feed.rows // FILES)}

    def latency(self, query: str, feed: Feed, threads: int, rate: float) -> Found:
        """Let a file appear when its last row is due; take when its results are with the driver."""
        rows = min(feed.rows, max(int(rate * LATENCY_SECONDS), int(4 * rate * FILE_SECONDS)))
        several = replace(feed, rows=rows)
        size = max(int(rate * FILE_SECONDS), 1)
        with self._session(threads) as spark:
            made, begin = self._open_loop(spark, query, several, size, rate)
        return latency_of(query, several, made, begin, size, rate)

    def source(self, feed: Feed, threads: int) -> Found | None:
        """Rows are in files beforehand."""
        return None

    @contextmanager
    def _session(self, threads: int) -> Iterator[Any]:
        config = {"spark.sql.shuffle.partitions": threads, **ROCKSDB}
        spark = pk.spark_session(f"local[{threads}]", name="penstock live", memory="4g", config=config)
        try:
            yield spark
        finally:
            spark.stop()

    def _closed(self, spark: Any, query: str, feed: Feed) -> Batches:
        source, checkpoint = self._folders()
        table = rows_of(feed)
        for number, buffer in enumerate(buffers_of(table, -(-feed.rows // FILES))):
            pq.write_table(pa.Table.from_batches([buffer]), source / f"{number:06}.parquet")
        pq.write_table(sentinel(table), source / "999999.parquet")
        sink = Batches()
        running = start(spark, query, source, checkpoint, sink, {"availableNow": True})
        finished(running)
        return sink

    def _open_loop(self, spark: Any, query: str, feed: Feed, size: int, rate: float) -> tuple[Batches, float]:
        source, checkpoint = self._folders()
        table, sink = rows_of(feed), Batches()
        pq.write_table(table.slice(0, 0), source / "000000.parquet")
        running = start(spark, query, source, checkpoint, sink, {"processingTime": "0 seconds"}, files=1_000)
        begin = time.perf_counter()
        sender = Thread(target=send, args=(table, source, size, rate, begin))
        sender.start()
        sender.join()
        try:
            running.processAllAvailable()
        except Exception as error:
            raise PeerError(f"{FAILED}: {' '.join(str(error).split())[:200]}") from error
        finally:
            running.stop()
        return sink, begin

    def _folders(self) -> tuple[Path, Path]:
        self._runs += 1
        source = self.folder / f"source-{self._runs}"
        source.mkdir()
        return source, self.folder / f"checkpoint-{self._runs}"


def counted(sink: Batches, rows: int) -> Found:
    """Count the batches of equal files behind the warm ones."""
    first, last = WARM_FILES - 1, FILES - 1
    seconds, work = sink.clock[last] - sink.clock[first], sink.work[last] - sink.work[first]
    return Found(rows * (last - first), seconds, work)


def start(
    spark: Any, query: str, source: Path, checkpoint: Path, sink: Batches, trigger: Any, files: int = 1
) -> Any:
    """Start the query over the files of a folder."""
    columns = "ts timestamp_ntz, key long, et int, val long"
    frame = spark.readStream.schema(columns).option("maxFilesPerTrigger", files).parquet(str(source))
    rows = frame.withColumn("ts", frame["ts"].cast("timestamp")).withWatermark("ts", "0 seconds")
    writer = asked(query, rows).writeStream.option("checkpointLocation", str(checkpoint))
    return writer.outputMode("append").foreachBatch(sink).trigger(**trigger).start()


def asked(query: str, rows: Any) -> Any:
    """Write a query in Spark's own words, with the columns `start, end, key, value`."""
    from pyspark.sql import functions as sf  # noqa: PLC0415 - Spark loads when it is used

    if query == "filter":
        doubled = (sf.col("val") * 2).alias("value")
        return rows.where("et = 1").select(
            sf.col("ts").alias("start"), sf.col("ts").alias("end"), "key", doubled
        )
    windows = {
        "tumbling": (sf.window("ts", "100 milliseconds"), "sum(val)", "et = 1"),
        "sliding": (sf.window("ts", "1 second", "10 milliseconds"), "min(val)", "et = 1"),
        "session": (sf.session_window("ts", "5 milliseconds"), "sum(val)", "true"),
    }
    window, value, kept = windows[query]
    grouped = rows.where(kept).groupBy(window.alias("w"), "key").agg(sf.expr(value).alias("value"))
    return grouped.select(sf.col("w.start").alias("start"), sf.col("w.end").alias("end"), "key", "value")


def sentinel(table: pa.Table) -> pa.Table:
    """Make a row that is far behind the last one."""
    last = int(Arrivals.of(table).times.max()) + SENTINEL_AFTER_US
    values = {"ts": [last], "key": [SENTINEL_KEY], "et": [1], "val": [0]}
    made = {name: pa.array(value).cast(table.schema.field(name).type) for name, value in values.items()}
    return pa.table(made)


def finished(running: Any) -> None:
    """Wait for a stream to end."""
    try:
        running.awaitTermination()
    except Exception as error:
        raise PeerError(f"{FAILED}: {' '.join(str(error).split())[:200]}") from error


def send(table: pa.Table, source: Path, size: int, rate: float, begin: float) -> None:
    """Write each file elsewhere, then move it in when its last row is due."""
    for number, buffer in enumerate(buffers_of(table, size)):
        ready = source.parent / f"{source.name}-{number}.tmp"
        pq.write_table(pa.Table.from_batches([buffer]), ready)
        time.sleep(max(begin + (number + 1) * size / rate - time.perf_counter(), 0.0))
        ready.rename(source / f"{number + 1:06}.parquet")


def plain_results(found: pa.Table) -> pa.Table:
    """Return results with times in microseconds from the first row, without those of the last row."""
    times = {name: ticks(micros(found[name])) for name in ("start", "end")}
    table = pa.table(times | {"key": found["key"], "value": found["value"]})
    return table.filter(pc.not_equal(table["key"], SENTINEL_KEY))


def micros(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return times without a zone; the session's is UTC."""
    return times.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))


def latency_of(query: str, feed: Feed, made: Batches, begin: float, size: int, rate: float) -> Found:
    """Return how long results came after the file that completes them was due."""
    arrivals, asked_for = Arrivals.of(rows_of(feed)), QUERIES[query]
    waits = [np.empty(0)]
    for table, moment in zip(made.tables, made.clock, strict=True):
        end = micros(table["end"]).combine_chunks()
        batch = pa.record_batch({asked_for.complete or "ts": end})
        numbers = completing_rows(asked_for, batch, arrivals, 0) // size
        counted = numbers[(numbers >= LATENCY_WARM * feed.rows // size) & (numbers < feed.rows // size)]
        waits.append(moment - begin - (counted + 1) * size / rate)
    all_waits = np.concatenate(waits)
    quantiles = {name: float(np.quantile(all_waits, q)) for name, q in QUANTILES.items() if len(all_waits)}
    return Found(feed.rows, max(made.clock, default=begin) - begin, 0.0, True, quantiles, len(all_waits))
