"""Google Cloud Storage: a bucket of fake-gcs-server, which serves reads of the XML API that `object_store` uses.

`go install github.com/fsouza/fake-gcs-server@v1.56.1`, and it in PATH. It refuses writes by that API: files come by the JSON API.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import penstock as pk
from tests.storage.lake import SECRET, encoded
from tests.storage.proxy import Faults, Proxy, running

pytestmark = [
    pytest.mark.campaign,  # starts a server
    pytest.mark.skipif(shutil.which("fake-gcs-server") is None, reason="fake-gcs-server is not in PATH"),
]


@dataclass(frozen=True)
class Bucket:
    """A bucket behind a proxy, and the options that reach it."""

    proxy: Proxy
    address: str
    opener: urllib.request.OpenerDirector = field(
        default_factory=lambda: urllib.request.build_opener(urllib.request.ProxyHandler({}))
    )

    @property
    def options(self) -> dict[str, str]:
        account = {"gcs_base_url": self.proxy.address, "disable_oauth": True, "client_email": ""}
        key = json.dumps({**account, "private_key": SECRET, "private_key_id": ""})
        return {"service_account_key": key, "allow_http": "true"}

    def post(self, path: str, kind: str, data: bytes) -> None:
        request = urllib.request.Request(self.address + path, data, {"Content-Type": kind}, method="POST")
        self.opener.open(request).read()

    def put(self, key: str, data: bytes) -> None:
        name = urllib.parse.quote(key, safe="")
        self.post(
            f"/upload/storage/v1/b/lake/o?uploadType=media&name={name}", "application/octet-stream", data
        )


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["fake-gcs-server", "-scheme", "http", "-backend", "memory", "-log-level", "info"]
    place = ["-host", "127.0.0.1", "-public-host", "127.0.0.1", "-port", str(port)]
    with subprocess.Popen([*command, *place], stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        while "server started" not in server.stderr.readline():
            assert server.poll() is None
        with running(("127.0.0.1", port)) as proxy:
            made = Bucket(proxy, f"http://127.0.0.1:{port}")
            made.post("/storage/v1/b", "application/json", b'{"name": "lake"}')
            yield made
        server.terminate()


@pytest.mark.parametrize("format", ["parquet", "arrow", "csv", "json"])
def test_each_format_is_read_from_a_bucket(bucket: Bucket, format: str) -> None:
    rows = pa.table({"t": [1, 2, 12], "v": [1, 2, 3]})
    bucket.put(f"{format}/day=1/a b.{format}", encoded(f"a.{format}", rows))
    stream = pk.scan(f"gs://lake/{format}/*/*.{format}", time="t", storage_options=bucket.options)
    found = stream.window(10, by="day").agg(total=pk.sum("v")).collect()
    assert found["total"].to_pylist() == [3, 3]


def test_a_delta_table_is_read_from_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"t": [1, 2, 12], "k": ["a", "b", "a"]}), partition_by=["k"])
    for file in (file for file in tmp_path.rglob("*") if file.is_file()):
        bucket.put(f"delta/{file.relative_to(tmp_path)}", file.read_bytes())
    stream = pk.scan("gs://lake/delta", time="t", format="delta", storage_options=bucket.options)
    found = stream.window(pk.unbounded(), by="k").agg(n=pk.count()).collect().sort_by("k")
    assert found.select(["k", "n"]).to_pylist() == [{"k": "a", "n": 2}, {"k": "b", "n": 1}]


def test_a_missing_file_and_a_throttled_bucket_are_errors_without_an_address_or_a_secret(
    bucket: Bucket,
) -> None:
    with pytest.raises(pk.SourceError, match=r"no file matches 'gs://lake/none\.parquet'"):
        pk.scan("gs://lake/none.parquet", time="t", storage_options=bucket.options)
    bucket.proxy.faults = Faults(status=lambda request, number: 503)
    try:
        with pytest.raises(pk.SourceError, match=r"the store is throttling \(status 503") as raised:
            pk.scan("gs://lake/a.parquet", time="t", storage_options={**bucket.options, "max_retries": "0"})
        assert not [text for text in (SECRET, bucket.proxy.address) if text in str(raised.value)]
    finally:
        bucket.proxy.heal()
