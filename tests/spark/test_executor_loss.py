"""An executor, its JVM and all, is killed in the middle of a task: Spark starts another, and the answer is the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import penstock as pk
from penstock.spark.session import workers_path
from tests.spark.agree import assert_same
from tests.spark.lakes import events, lake

CLIENT = """
import sys
import penstock as pk
from penstock.spark import frame as spark_frame
from penstock.spark.tasks import OverParts

folder, mark = sys.argv[1:]


def dying(work, parts, accesses=None, step=1):
    inner = OverParts.of(work, parts, accesses, step)

    def run(batches):
        import os
        import signal
        from pathlib import Path

        def parent(pid):
            return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

        for batch in inner(batches):
            yield batch
            if not Path(mark).exists():
                executor = parent(parent(os.getpid()))  # a worker's parent is the daemon, whose parent is the executor
                Path(mark).write_text(Path(f"/proc/{executor}/cmdline").read_text())
                os.kill(executor, signal.SIGKILL)

    return run


class Dying:
    of = staticmethod(dying)


settings = {"spark.executor.memory": "512m", "spark.sql.shuffle.partitions": 2}
spark = pk.spark_session("local-cluster[2,1,1024]", memory="512m", config=settings)
spark_frame.OverParts = Dying
stream = pk.scan(folder, time="ts", sequence="n", name="events")
for query, strategy in (
    (stream.window("10s", by="k").agg(t=pk.sum("v")), "fragments"),
    (stream.window(pk.session("400ms"), by="k").agg(t=pk.sum("v"), n=pk.count()), "slices"),
):
    rows = query.to_spark(spark, strategy=strategy, tasks=4).toArrow()
    keys = [("window_end", "ascending"), ("k", "ascending"), ("t", "ascending")]
    same = rows.cast(query.schema).sort_by(keys).equals(query.collect().sort_by(keys))
    print(strategy, same)
spark.stop()
"""


@pytest.mark.campaign  # starts a cluster of its own: a master, two workers, executors
def test_a_lost_executor_changes_nothing(tmp_path: Path) -> None:
    folder, mark = lake(tmp_path / "lake", events()), tmp_path / "killed"
    environment = {**os.environ, "PYTHONPATH": workers_path()}
    home = find_spec("pyspark")
    assert home is not None and home.origin is not None
    logs = Path(home.origin).parent / "work"  # where a local cluster keeps them, whatever it is told
    before = set(logs.glob("app-*"))
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, folder, str(mark)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    for path in set(logs.glob("app-*")) - before:
        shutil.rmtree(path)
    assert done.returncode == 0, done.stderr[-3_000:]
    assert "CoarseGrainedExecutorBackend" in mark.read_text()
    assert done.stdout.split() == ["fragments", "True", "slices", "True"]


STREAM_CLIENT = """
import sys
from pathlib import Path
import penstock as pk
from penstock.spark.streaming import frame as streaming_frame
from penstock.spark.streaming.operator import WithState
from penstock.spark.streaming.read_limits import PASSES_START

folder, mark, table, checkpoint = sys.argv[1:]


def dying(shard):
    inner = WithState(shard)

    def run(key, frames, state):
        import os
        import signal
        from pathlib import Path
        from pyspark import TaskContext

        def parent(pid):
            return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

        batch = int(TaskContext.get().getLocalProperty("streaming.sql.batchId"))
        for results in inner(key, frames, state):  # its state of this batch is with Spark, its results are not
            place = Path(mark, str(batch))
            if batch == 1 and not place.exists():
                executor = parent(parent(os.getpid()))
                place.write_text(f"{TaskContext.get().attemptNumber()} {Path(f'/proc/{executor}/cmdline').read_text()}")
                os.kill(executor, signal.SIGKILL)
            yield results

    return run


streaming_frame.WithState = dying
settings = {"spark.executor.memory": "512m", "spark.sql.shuffle.partitions": 2}
spark = pk.spark_session("local-cluster[2,1,1024]", memory="512m", config=settings)
events = pk.scan_stream(folder, time="ts", sequence="n", name="events", lateness="1s", max_files=1)
query = events.window("10s", by="k").agg(t=pk.sum("v"), n=pk.count())
for _ in range(1 if PASSES_START else 3):  # before Spark 4.2 a start reads everything in one batch
    writer = query.to_spark(spark).writeStream.foreachBatch(pk.delta_sink(table, query_id="loss"))
    started = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    started.awaitTermination()
    assert started.exception() is None
spark.stop()
"""


@pytest.mark.campaign  # starts a cluster of its own, and kills an executor
def test_an_executor_killed_in_the_middle_of_a_micro_batch_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """The state of a killed task is that of the batch before, and its results come once."""
    table = events()
    folder = lake(tmp_path / "lake", table, files=3)
    (tmp_path / "killed").mkdir()
    environment = {**os.environ, "PYTHONPATH": workers_path()}
    done = subprocess.run(
        [
            *(sys.executable, "-c", STREAM_CLIENT, folder),
            *(str(tmp_path / name) for name in ("killed", "table", "checkpoint")),
        ],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    killed = {mark.name: mark.read_text() for mark in (tmp_path / "killed").iterdir()}
    assert set(killed) == {"1"}
    assert all("CoarseGrainedExecutorBackend" in text for text in killed.values())
    stream = pk.from_arrow(table, time="ts", sequence="n", lateness="1s")
    query = stream.window("10s", by="k").agg(t=pk.sum("v"), n=pk.count())
    batches = list(query.run(table.to_batches(), final=False))
    expected = pa.Table.from_batches(batches, query.schema)
    written = deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table().select(query.schema.names)
    assert_same(expected, written.cast(query.schema), "after a kill")
