"""A cluster, an archive and files in a bucket for the tests of this folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import ipc

from penstock.spark.deploy.pack import pack_archive
from tests.cluster.standalone import LOOPBACK, Cluster, started
from tests.spark.lakes import events, lake
from tests.storage.conftest import s3_lake
from tests.storage.lake import Lake, hadoop_settings

__all__ = ["s3_lake"]
ROOT = Path(__file__).parents[2]
TABLE = events()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_archive(tmp_path_factory.mktemp("archive") / "penstock.tar.gz", only=("obstore",))


@pytest.fixture(scope="session")
def location(s3_lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Where the files are: in a bucket and nowhere else."""
    folder = tmp_path_factory.mktemp("lakes")
    lake(folder / "ordered", TABLE)
    lake(folder / "shuffled", TABLE, files=3, shuffled=True)
    for file in folder.rglob("*.parquet"):
        s3_lake.put(str(file.relative_to(folder)), file.read_bytes())
    shutil.rmtree(folder)
    return {name: s3_lake.uri(name, "s3a") for name in ("ordered", "shuffled")}


@pytest.fixture(scope="session")
def credentials(s3_lake: Lake) -> dict[str, str]:
    """Spark's own settings for the bucket, which Penstock uses too."""
    return hadoop_settings(s3_lake)


@dataclass(frozen=True)
class Results:
    """What a driver has left: a table for each query, and its report."""

    folder: Path
    report: dict[str, Any]

    def __getitem__(self, name: str) -> pa.Table:
        with ipc.open_file(self.folder / f"{name.replace('/', ' ')}.arrow") as file:
            return file.read_all()


@pytest.fixture(scope="session")
def drive(
    cluster: Cluster,
    archive: Path,
    location: dict[str, str],
    credentials: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., Results]:
    """Run queries in a driver of their own, by default one of the cluster to which the archive is shipped."""

    def run(queries: Sequence[str], stream: bool, ship: bool = True, **changed: object) -> Results:
        out = tmp_path_factory.mktemp("out")
        request = out / "request.json"
        request.touch(mode=0o600)  # it holds the cluster's secret
        places = {"out": str(out), "archive": str(archive), "checkpoint": str(out / "checkpoint")}
        asked = {
            "master": cluster.master,
            "settings": {**cluster.settings, **credentials},
            "queries": list(queries),
            "stream": stream,
        }
        request.write_text(json.dumps({**asked, **places, **location, "ship": ship, **changed}))
        drive_alone([sys.executable, "-m", "tests.cluster.driver", str(request)], cluster)
        return Results(out, json.loads((out / "report.json").read_text()))

    return run


def drive_alone(command: Sequence[str], cluster: Cluster) -> str:
    """Run a driver, and return what it prints."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))
    }
    environment |= {"PYSPARK_PYTHON": cluster.python, "SPARK_LOCAL_IP": LOOPBACK}
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900
    )
    reported = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("\tat "))
    assert done.returncode == 0, done.stdout[-2_000:] + reported[-6_000:]
    return done.stdout
