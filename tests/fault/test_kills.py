"""Kill -9 at named steps and at random moments: the table holds the batch answer, nothing lost, nothing twice.

`make test` runs a few kills, `make fault` many (PENSTOCK_KILLS says how many, PENSTOCK_SEED which).
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import deltalake
import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from tests.fault.driver import views
from tests.spark.agree import assert_same
from tests.spark.streaming.feed import Feed

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("PENSTOCK_KILLS", "0"))
FILES = 6


def rows(seed: int, files: int) -> list[pa.Table]:
    """Events of ten keys, a second's lateness among them; the last file closes all windows."""
    random_ = np.random.default_rng(seed)
    tables = []
    for number in range(files):
        times = number * 20_000_000 + np.sort(random_.integers(0, 20_000_000, 200))
        times[random_.random(200) < 0.2] -= 500_000
        tables.append(times)
    tables.append(np.array([10**10]))
    return [
        pa.table(
            {
                "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
                "k": random_.integers(0, 10, len(times)),
                "v": random_.integers(0, 100, len(times)),
            }
        )
        for times in tables
    ]


def filled(folder: Path, seed: int, files: int = FILES) -> pa.Table:
    """Put all files there; give the answer."""
    feed, tables = Feed(folder), rows(seed, files)
    for number, table in enumerate(tables):
        feed.put(number, table)
    declared = pk.stream("events", tables[0].schema, time="ts")
    return views(declared).collect(pa.concat_tables(tables[:-1]))


def driver(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start a driver in a group of its own, Java and Python workers with it."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-m", "tests.fault.driver", str(folder), *options]
    return subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[bytes]) -> None:
    """Wait for a driver, then make sure that nothing of it lives on."""
    _, said = process.communicate(timeout=280)
    kill_all(process)
    assert process.returncode in (0, -signal.SIGKILL), said.decode()[-2000:]


def kill_all(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def result(folder: Path, schema: pa.Schema) -> pa.Table:
    found = deltalake.DeltaTable(str(folder / "table")).to_pyarrow_table()
    return pa.Table.from_arrays(
        [found[name].cast(schema.field(name).type) for name in schema.names], schema=schema
    )


@pytest.mark.slow
def test_a_driver_that_dies_before_and_after_its_sink_has_written_goes_on_where_it_was(
    tmp_path: Path,
) -> None:
    expected = filled(tmp_path, seed=1, files=3)
    for step, batch in (("before", "1"), ("after", "2")):
        process = driver(tmp_path, step, batch)
        ended(process)
        assert process.returncode == -signal.SIGKILL
    last = driver(tmp_path)
    ended(last)
    assert last.returncode == 0
    assert_same(expected, result(tmp_path, expected.schema), "after two kills")


@pytest.mark.skipif(KILLS == 0, reason="a campaign: make fault")
def test_drivers_killed_at_random_moments_lose_nothing_and_count_nothing_twice(tmp_path: Path) -> None:
    seed = int(os.environ.get("PENSTOCK_SEED", "0"))
    moments = random.Random(seed)
    killed = 0
    for number in range(10**6):
        if killed >= KILLS:
            break
        folder = tmp_path / str(number)
        folder.mkdir()
        expected = filled(folder, seed + number)
        while killed < KILLS:
            process = driver(folder)
            try:
                process.communicate(timeout=moments.uniform(3, 40))
            except subprocess.TimeoutExpired:
                kill_all(process)
                process.communicate()
                killed += 1
                continue
            break
        ended(driver(folder))
        assert_same(expected, result(folder, expected.schema), f"after {killed} kills, folder {number}")
