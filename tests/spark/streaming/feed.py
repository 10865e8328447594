"""A folder in which files appear, and queries over it as Spark runs them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as pk
from penstock.spark.streaming.read_limits import PASSES_START
from tests.spark.lakes import queries


@dataclass(frozen=True)
class Feed:
    """Files go to `input`; the table and the checkpoint of a query are beside it."""

    folder: Path

    def put(self, number: int, table: pa.Table) -> None:
        """Let a file appear at once."""
        (self.folder / "input").mkdir(exist_ok=True)
        hidden = self.folder / f"{number}.hidden"
        pq.write_table(table, hidden)
        os.utime(hidden, (number, number))  # files are read in the order in which they were written
        hidden.rename(self.folder / "input" / f"{number:04}.parquet")

    def query(self, spark: Any, name: str, scanned: bool = False) -> pk.Stream:
        """Ask something of the files: read by our own tasks (scanned), or by Spark."""
        path = str(self.folder / "input")
        if scanned:
            events = pk.scan_stream(path, time="ts", sequence="n", name="events", lateness="1s", max_files=1)
        else:
            schema = spark.read.parquet(path).schema
            frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(path)
            events = pk.from_spark(frame, time="ts", sequence="n", name="events", lateness="1s")
        made: pk.Stream = queries(events)[name]
        return made

    @property
    def table(self) -> str:
        return str(self.folder / "table")

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def start(self, frame: Any, sink: Any = None, available_now: bool = True) -> Any:
        """Start a query that ends when no file is left, or goes on."""
        trigger = {"availableNow": True} if available_now else {"processingTime": "0 seconds"}
        writer = frame.writeStream.option("checkpointLocation", str(self.checkpoint))
        sink = sink or pk.delta_sink(self.table, query_id="tests")
        return writer.foreachBatch(sink).trigger(**trigger).start()

    def run(self, spark: Any, name: str, scanned: bool = False) -> Any:
        """Run a query over what is there, to its end.

        Before Spark 4.2 a start reads one batch of our sources, and after a crash that is the batch which comes again.
        """
        while True:
            before = self._commits()
            started = self.start(self.query(spark, name, scanned).to_spark(spark))
            started.awaitTermination()
            if PASSES_START or not scanned or started.exception() is not None or self._commits() == before:
                return started

    def _commits(self) -> set[str]:
        return {path.name for path in (self.checkpoint / "commits").glob("[0-9]*")}

    def result(self, schema: pa.Schema) -> pa.Table:
        """Give all rows of the table, in our types."""
        rows = deltalake.DeltaTable(self.table).to_pyarrow_table()
        return pa.Table.from_arrays(
            [rows[name].cast(schema.field(name).type) for name in schema.names], schema=schema
        )
