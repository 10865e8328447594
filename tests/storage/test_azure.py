"""Azure: containers of Azurite, the emulator on npm. `npm install azurite`, and its `azurite-blob` in PATH."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import penstock as pk
from penstock.storage.access import Access
from tests.storage.lake import encoded

# The account that every Azurite has.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
VERSION = "2021-08-06"

pytestmark = [
    pytest.mark.campaign,  # starts a server of Node
    pytest.mark.skipif(shutil.which("azurite-blob") is None, reason="azurite-blob is not in PATH"),
]


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["azurite-blob", "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    more = ["--inMemoryPersistence", "--skipApiVersionCheck"]
    with subprocess.Popen([*command, *more], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        while "successfully listen" not in server.stdout.readline():
            assert server.poll() is None
        endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        make_container(endpoint, "lake")
        yield {"account_name": ACCOUNT, "account_key": KEY, "endpoint": endpoint}
        server.terminate()


def make_container(endpoint: str, name: str) -> None:
    date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = {"x-ms-date": date, "x-ms-version": VERSION}
    shown = "".join(f"{key}:{value}\n" for key, value in headers.items())
    signed = "PUT" + "\n" * 12 + f"{shown}/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    request = urllib.request.Request(f"{endpoint}/{name}?restype=container", method="PUT", headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    assert opener.open(request).status == 201


@pytest.mark.parametrize("root", [f"abfss://lake@{ACCOUNT}.dfs.core.windows.net", "az://lake"])
@pytest.mark.parametrize("format", ["parquet", "arrow", "csv", "json"])
def test_each_format_is_read_from_a_container(options: dict[str, str], root: str, format: str) -> None:
    rows = pa.table({"t": [1, 2, 12], "v": [1, 2, 3]})
    Access.of(options, None).write(f"{root}/{format}/day=1/a b.{format}", encoded(f"a.{format}", rows))
    stream = pk.scan(f"{root}/{format}/*/*.{format}", time="t", storage_options=options)
    found = stream.window(10, by="day").agg(total=pk.sum("v")).collect()
    assert found["total"].to_pylist() == [3, 3]


def test_late_rows_and_state_are_written_to_a_container(options: dict[str, str]) -> None:
    access = Access.of(options, None)
    assert access.create("az://lake/once", b"1")
    assert not access.create("az://lake/once", b"2")
    state = pk.State({}, {"in0/marks": b"x"})
    state.save("az://lake/state", storage_options=options)
    assert pk.State.load("az://lake/state", storage_options=options) == state


def test_an_empty_and_a_missing_file_are_told_apart(options: dict[str, str]) -> None:
    Access.of(options, None).write("az://lake/empty/a.parquet", b"")
    for path, said in (
        ("az://lake/empty/a.parquet", "does not end as Parquet"),
        ("az://lake/none", "no file matches"),
    ):
        with pytest.raises(pk.SourceError, match=said):
            pk.scan(path, time="t", storage_options=options)
