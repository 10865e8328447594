"""HDFS by WebHDFS: a name node and a data node of Hadoop, whose jars are fetched by Maven coordinates."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.storage.access import Access
from tests.storage.lake import encoded
from tests.storage.proxy import Faults, Proxy, running

HADOOP = (
    "org.apache.hadoop:hadoop-minicluster:3.4.2",
    "junit:junit:4.13.2",
    "org.mockito:mockito-core:4.11.0",
)
ROWS = pa.table({"t": [1, 2, 12], "v": [1, 2, 3]})

pytestmark = [
    pytest.mark.campaign,  # starts servers of Java
    pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java"),
]


@pytest.fixture(scope="module")
def details(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("details") / "details.json"


@pytest.fixture
def name_node(hdfs: Proxy, details: Path) -> str:
    return f"hdfs://127.0.0.1:{json.loads(details.read_text())['namenode_port']}"


@pytest.fixture(scope="module")
def hdfs(details: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """The name node, behind a proxy that injects faults. Data nodes are reached directly."""
    from benchmarks.maven import NoPackage, fetched

    try:
        jars = fetched(*HADOOP)
    except NoPackage as reason:
        pytest.skip(f"HDFS IS NOT TESTED: {reason}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("hdfs")
    command = ["java", "-Xmx512m", "-cp", f"{jars}/*", f"-Dtest.build.data={folder}/data"]
    manager = "org.apache.hadoop.test.MiniDFSClusterManager"
    given = ["-format", "-datanodes", "1", "-httpport", str(port), "-writeDetails", str(details)]
    with subprocess.Popen(
        [*command, manager, *given], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        while not details.exists():
            assert server.poll() is None
            time.sleep(0.1)  # until the cluster reports
        with running(("127.0.0.1", port)) as proxy:
            yield proxy
        server.kill()  # its own end waits for threads


def options(proxy: Proxy, **more: str) -> dict[str, str]:
    proxy.heal()
    return {"webhdfs": proxy.address, "user": "root", **more}


@pytest.mark.parametrize("format", ["parquet", "arrow", "csv", "json"])
def test_each_format_is_read(hdfs: Proxy, format: str) -> None:
    given = options(hdfs)
    Access.of(given, None).write(f"hdfs://lake/{format}/day=1/a é.{format}", encoded(f"a.{format}", ROWS))
    stream = pk.scan(f"hdfs://lake/{format}/*/*.{format}", time="t", storage_options=given)
    assert stream.window(10, by="day").agg(total=pk.sum("v")).collect()["total"].to_pylist() == [3, 3]
    own = hdfs.address.replace("http://", "webhdfs://")
    alike = pk.scan(f"{own}/{format}", time="t", storage_options={"user": "root"})
    assert alike.window(10).agg(total=pk.sum("v")).collect()["total"].to_pylist() == [3, 3]


def test_a_delta_table_is_read(hdfs: Proxy, name_node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log is read by the package deltalake, which speaks to the name node itself."""
    from deltalake import DeltaTable, write_deltalake

    monkeypatch.setenv("HADOOP_USER_NAME", "root")
    write_deltalake(f"{name_node}/delta", ROWS, partition_by=["v"])
    DeltaTable(f"{name_node}/delta").delete("v = 3")
    rows = pk.scan(f"{name_node}/delta", time="t", format="delta", storage_options=options(hdfs))
    assert sorted(rows.collect()["v"].to_pylist()) == [1, 2]


def test_files_are_written_whole_and_new_ones_once(hdfs: Proxy) -> None:
    access = Access.of(options(hdfs), None)
    assert access.create("hdfs://lake/once/a", b"1")
    assert not access.create("hdfs://lake/once/a", b"2")
    assert access.read("hdfs://lake/once/a") == b"1"
    access.write("hdfs://lake/once/a", b"333")
    assert access.read("hdfs://lake/once/a") == b"333"
    assert [path for path, _ in access.list("hdfs://lake/once")] == ["hdfs://lake/once/a"]
    state = pk.State({}, {"in0/marks": b"x"})
    state.save("hdfs://lake/state", storage_options=options(hdfs))
    assert pk.State.load("hdfs://lake/state", storage_options=options(hdfs)) == state


FAULTS = {
    "failing": Faults(status=lambda request, number: 500 if number % 2 else None),
    "throttled": Faults(status=lambda request, number: 503 if number % 3 == 1 else None),
    "connections lost": Faults(refuse=lambda request, number: number % 2 == 1),
}


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS.keys())
def test_requests_are_repeated(hdfs: Proxy, faults: Faults) -> None:
    given = options(hdfs)
    table = pa.table({"t": np.arange(5_000), "v": np.arange(5_000)})
    Access.of(given, None).write(
        "hdfs://lake/many/a.parquet", encoded("a.parquet", table, row_group_size=500)
    )
    hdfs.faults = faults
    Access.of(given, None).write("hdfs://lake/many/b.parquet", encoded("b.parquet", table))
    query = pk.scan("hdfs://lake/many", time="t", storage_options=given).window(10_000).agg(v=pk.sum("v"))
    assert query.collect()["v"].to_pylist() == [2 * sum(range(5_000))]
    hdfs.heal()


def test_errors_name_the_file_and_no_address_or_token(hdfs: Proxy) -> None:
    given = options(hdfs)
    with pytest.raises(pk.SourceError, match=r"no file matches 'hdfs://lake/none\.parquet'"):
        pk.scan("hdfs://lake/none.parquet", time="t", storage_options=given)
    token = {"webhdfs": "http://127.0.0.1:9", "delegation": "hunter2-token"}
    with pytest.raises(
        pk.SourceError, match=r"'hdfs://lake/a\.parquet' cannot be read: HDFS gave no"
    ) as raised:
        pk.scan("hdfs://lake/a.parquet", time="t", storage_options=token)
    assert not [text for text in ("hunter2", "127.0.0.1") if text in str(raised.value)]
    Access.of(given, None).write("hdfs://lake/private/a.csv", b"t\n1\n")
    denied = Access.of({**given, "user": "nobody"}, None)
    with pytest.raises(PermissionError, match="AccessControlException"):
        denied.write("hdfs://lake/private/b.csv", b"")
