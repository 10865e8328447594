"""An executor, its JVM and all, is killed in the middle of a task: Spark starts another, and the answer is the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from penstock.spark.session import workers_path
from tests.spark.lakes import events, lake

CLIENT = """
import sys
import penstock as pk
from penstock.spark import frame as spark_frame
from penstock.spark.tasks import OverParts

folder, mark = sys.argv[1:]


def dying(work, parts, accesses=None):
    inner = OverParts.of(work, parts, accesses)

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
