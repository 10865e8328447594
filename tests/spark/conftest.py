"""One Spark session for each process that runs these tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import penstock as pk
from tests.storage.conftest import s3, s3_lake

__all__ = ["s3", "s3_lake", "spark"]

SETTINGS = {
    "spark.sql.shuffle.partitions": 2,
    "spark.default.parallelism": 2,
    "spark.task.maxFailures": 4,
    "spark.hadoop.fs.s3a.secret.key": "never-on-a-command-line",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    # local[cores, failures]: without the second number a local task is never tried again.
    session = pk.spark_session("local[2,4]", name="tests", memory="1g", config=SETTINGS)
    yield session
    session.stop()
