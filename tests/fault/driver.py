"""A driver that may die: runs a streaming query over a folder into a Delta table, until nothing is left to read.

    python -m tests.fault.driver FOLDER [before|after BATCH]

It kills itself before or after the sink of a batch has written, if told so.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import penstock as pk

WINDOWS = pk.sliding("10s", every="5s")


def views(events: Any) -> pk.Stream:
    """Ask for something with state in every shard."""
    made: pk.Stream = events.window(WINDOWS, by="k").agg(total=pk.sum("v"), n=pk.count(), mid=pk.median("v"))
    return made


def main(folder: Path, step: str | None, batch: int) -> None:
    spark = pk.spark_session("local[2,4]", memory="1g", config={"spark.sql.shuffle.partitions": 2})
    events = pk.scan_stream(
        folder / "input",
        time="ts",
        name="events",
        lateness="1s",
        max_files=1,
        late_to=folder / "late",
        on_bad="quarantine",
        quarantine_to=folder / "bad",
    )
    sink = pk.delta_sink(folder / "table", query_id="fault")

    def dying(frame: Any, number: int) -> None:
        if step == "before" and number == batch:
            os.kill(os.getpid(), signal.SIGKILL)
        sink(frame, number)
        (folder / "progress").write_text(str(number))
        if step == "after" and number == batch:
            os.kill(os.getpid(), signal.SIGKILL)

    writer = views(events).to_spark(spark).writeStream.foreachBatch(dying)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    (folder / "running").touch()
    query.awaitTermination()


if __name__ == "__main__":
    at = sys.argv[2:] or [None, "-1"]
    main(Path(sys.argv[1]), at[0], int(at[1] or -1))
