"""One S3 server for the session, by moto, and a proxy before it that counts requests and injects faults."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from moto.server import ThreadedMotoServer

from tests.storage.lake import Lake
from tests.storage.proxy import running


@pytest.fixture(scope="session")
def s3_lake() -> Iterator[Lake]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        with running(server.get_host_and_port()) as proxy:
            yield Lake.of(proxy)
    finally:
        server.stop()


@pytest.fixture
def s3(
    s3_lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lake]:
    """An empty bucket, which only the options of the test reach: no environment, profile or instance gives keys."""
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_PROFILE",
        "AWS_ENDPOINT_URL",
        "AWS_REGION",
    ):
        monkeypatch.delenv(name, raising=False)
    nowhere = str(tmp_path_factory.getbasetemp() / "none")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", nowhere)
    monkeypatch.setenv("AWS_CONFIG_FILE", nowhere)
    s3_lake.proxy.heal()
    s3_lake.clear()
    s3_lake.proxy.heal()
    yield s3_lake
    s3_lake.proxy.heal()
