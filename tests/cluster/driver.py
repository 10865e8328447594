"""A driver on a cluster, as a process of its own: one process has one session, and the tests of others are on this machine only.

It runs queries and leaves their results as Arrow files, and what it was told in `report.json`.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import ipc

import penstock as pk
from penstock.spark.deploy.preflight import survey
from tests.spark.lakes import join_queries, queries


def main(request: str) -> None:
    """Do what a request asks for, and write results to its folder."""
    asked = json.loads(Path(request).read_text(encoding="utf-8"))
    out = Path(asked["out"])
    reported: dict[str, Any] = {}
    spark = pk.spark_session(asked["master"], name="cluster", config=asked["settings"])
    try:
        if asked["ship"]:
            reported["unshipped"] = error_of(lambda: of_files(asked["ordered"])["tumbling"].to_spark(spark))
            pk.ship(spark, asked["archive"])
        reported["executors"] = [
            [executor.penstock, executor.obstacle(streaming=True), dict(executor.paths)]
            for executor in survey(spark, [asked["ordered"], asked["ordered"] + "/none"])
        ]
        for name in asked["queries"]:
            run(asked, spark, name, out)
        reported["warnings"] = (
            [str(value.message) for value in stream(asked, spark, out)] if asked["stream"] else []
        )
    finally:
        spark.stop()
    (out / "report.json").write_text(json.dumps(reported), encoding="utf-8")


def run(asked: dict[str, Any], spark: Any, name: str, out: Path) -> None:
    """Run one query, named by its kind, where its rows are, and the strategy if it is not the planner's."""
    kind, where, strategy = name.split("/")
    chosen = {} if strategy == "any" else {"strategy": strategy}
    if where == "frame":
        # Spark itself reaches no bucket here: the packages of its S3 client are not installed.
        rows = spark.createDataFrame(pk.scan(asked["shuffled"], time="ts").collect()).repartition(3)
        query = of_stream(pk.from_spark(rows, time="ts", sequence="n", name="events"), kind)
    else:
        query = of_files(asked[where])[kind]
    if strategy == "format":
        reader = spark.read.format("penstock").option("query", query.to_json())
        result = reader.load(asked[where]).toArrow()
    else:
        result = query.to_spark(spark, tasks=2, **chosen).toArrow()
    write(result, out, name)


def of_files(path: str) -> dict[str, Any]:
    """Return the queries of all kinds over files."""
    events = pk.scan(path, time="ts", sequence="n", name="events")
    other = pk.scan(path, time="ts", sequence="n", name="others")
    return {**queries(events), **join_queries(events, other)}


def of_stream(stream: Any, kind: str) -> Any:
    """Return a query over one stream."""
    return queries(stream)[kind]


def stream(asked: dict[str, Any], spark: Any, out: Path) -> list[Any]:
    """Run a query over arriving files to the end of what is there, and return the warnings."""
    spark.conf.set("spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart", "true")
    events = pk.scan_stream(
        asked["ordered"], time="ts", sequence="n", name="events", lateness="1s", max_files=2
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        frame = queries(events)["tumbling"].to_spark(spark)
    writer = frame.writeStream.format("memory").queryName("streamed").outputMode("append")
    started = writer.option("checkpointLocation", asked["checkpoint"]).trigger(availableNow=True).start()
    started.awaitTermination()
    write(spark.table("streamed").toArrow(), out, "stream")
    return [
        warning_message
        for warning_message in caught
        if issubclass(warning_message.category, pk.SparkSettingWarning)
    ]


def write(table: pa.Table, out: Path, name: str) -> None:
    """Write a result."""
    with ipc.new_file(out / f"{name.replace('/', ' ')}.arrow", table.schema) as file:
        file.write_table(table)


def error_of(action: Callable[[], object]) -> str:
    """Return the text of the Penstock error that an action raises."""
    try:
        action()
    except pk.PenstockError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)  # so that no worker beside the driver finds Penstock there
    main(sys.argv[1])
