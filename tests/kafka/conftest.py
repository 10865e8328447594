"""One broker for each process that runs these tests, and a Spark session."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as pk
from tests.spark.conftest import SETTINGS


def own_reader() -> Path | None:
    """Fetch the package of this version, or the last one that was published before it."""
    import pyspark

    from benchmarks.streaming.broker import NoBroker, jars

    for version in (pyspark.__version__, "4.2.0"):
        with contextlib.suppress(NoBroker):
            return jars(f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}")
    return None


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session with Spark's own reader of Kafka, where it can be fetched."""
    found = own_reader()
    more = {} if found is None else {"spark.jars": ",".join(sorted(map(str, found.glob("*.jar"))))}
    session = pk.spark_session("local[2,4]", name="tests", memory="1g", config={**SETTINGS, **more})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("confluent_kafka")
    from benchmarks.streaming.broker import NoBroker, jars, running

    try:
        jars()
    except NoBroker as reason:
        pytest.skip(f"KAFKA IS NOT TESTED: {reason}")
    with running(tmp_path_factory.mktemp("kafka")) as made:
        yield made
