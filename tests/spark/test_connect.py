"""A Connect session: a client without a JVM of its own, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock as pk
from penstock.spark.session import workers_path
from tests.spark.lakes import events, lake

CLIENT = """
import sys, warnings
warnings.simplefilter("ignore")
from pyspark.sql import SparkSession
import penstock as pk
from penstock.spark.source import register

spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert "connect" in type(spark).__module__
folder = sys.argv[1]
scanned = pk.scan(folder, time="ts", name="events").window("10s", by="k").agg(t=pk.sum("v"))
print(scanned.to_spark(spark, strategy="fragments", tasks=2).count())
frame = pk.from_spark(spark.read.parquet(folder), time="ts", sequence="n")
print(frame.window(pk.session("200ms"), by="k").agg(n=pk.count()).to_spark(spark).count())
register(spark)
print(spark.read.format("penstock").option("query", scanned.to_json()).load(folder).count())
spark.stop()
"""


@pytest.mark.campaign  # starts a server of its own
def test_a_connect_session_gives_the_same_answers(tmp_path: Path) -> None:
    table = events()
    folder = lake(tmp_path / "lake", table)
    stream = pk.from_arrow(table, time="ts", sequence="n")
    windows = stream.window("10s", by="k").agg(t=pk.sum("v")).collect().num_rows
    sessions = stream.window(pk.session("200ms"), by="k").agg(n=pk.count()).collect().num_rows
    # SPARK_TESTING: the server takes any free port instead of its usual one.
    settings = {"SPARK_TESTING": "1", "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    environment = {**os.environ, **settings, "PYTHONPATH": workers_path()}
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, folder],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert done.stdout.split() == [str(windows), str(sessions), str(windows)]
