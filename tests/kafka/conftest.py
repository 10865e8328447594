"""One broker for each process that runs these tests, and a Spark session."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from tests.spark.conftest import spark

__all__ = ["spark"]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("confluent_kafka")
    from tests.kafka.broker import NoBroker, jars, running

    try:
        jars()
    except NoBroker as reason:
        warnings.warn(f"KAFKA IS NOT TESTED: {reason}", pytest.PytestWarning, stacklevel=1)
        pytest.skip(f"KAFKA IS NOT TESTED: {reason}")
    with running(tmp_path_factory.mktemp("kafka")) as made:
        yield made
