"""A session with safe defaults, and what it refuses to start with."""

from __future__ import annotations

import os
import shlex
import socket
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

import penstock as pk
from penstock.spark import launch, session
from penstock.spark.daemon import prompt
from penstock.spark.session import ALLOCATORS
from penstock.spark.streaming.read_limits import PASSES_START


def test_a_session_listens_on_this_machine_only_and_asks_for_a_secret(spark: Any) -> None:
    settings = dict(spark.sparkContext.getConf().getAll())
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.ui.enabled"] == "false"
    assert settings["spark.authenticate"] == "true"
    assert len(settings["spark.authenticate.secret"]) == 64
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.uiWebUrl is None


@pytest.mark.skipif(
    not Path("/proc/self/cmdline").exists(), reason="command lines are in /proc on Linux only"
)
def test_no_secret_is_on_a_command_line(spark: Any) -> None:
    settings = dict(spark.sparkContext.getConf().getAll())
    hidden = [settings["spark.authenticate.secret"], settings["spark.hadoop.fs.s3a.secret.key"]]
    assert spark.range(4).mapInArrow(lambda batches: batches, "id long").count() == 4  # workers have started
    lines = [line for path in Path("/proc").glob("[0-9]*/cmdline") if (line := _content(path))]
    assert any(b"org.apache.spark.deploy.SparkSubmit" in line for line in lines)
    assert any(b"penstock.spark.daemon" in line for line in lines)
    assert not [secret for secret in hidden for line in lines if secret.encode() in line]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process has ended meanwhile
        return b""


def test_settings_reach_the_jvm_in_a_file_of_its_owners_that_is_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, str] = {}

    def started(name: str) -> None:
        command = shlex.split(os.environ[launch.ARGUMENTS])
        path = Path(command[command.index("--properties-file") + 1])
        seen.update(line.split("=") for line in path.read_text().splitlines())
        assert path.stat().st_mode & 0o077 == 0
        assert command[-1] == "pyspark-shell"
        assert "--load-spark-defaults" in command
        assert "hidden" not in os.environ[launch.ARGUMENTS]

    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(SparkContext, "getSystemProperty", started)
    monkeypatch.delenv(launch.ARGUMENTS, raising=False)
    launch.launch({"spark.secret": "hidden=1"}, str(tmp_path))
    assert seen == {"spark\\u002esecret": "hidden\\u003d1"}
    assert list(tmp_path.iterdir()) == []
    assert launch.ARGUMENTS not in os.environ


def test_a_jvm_that_runs_is_not_started_again(spark: Any, tmp_path: Path) -> None:
    launch.launch({"spark.secret": "hidden"}, str(tmp_path / "never made"))


def test_a_file_of_a_checkpoint_is_written_without_a_dozen_programs(spark: Any) -> None:
    named = spark.conf.get("spark.sql.streaming.checkpointFileManagerClass")
    assert named == session._checkpoint_manager()
    assert spark._jvm.java.lang.Class.forName(named).getSimpleName() == named.rpartition(".")[2]


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[*]", os.cpu_count()), ("local[3]", 3), ("local[2,4]", 2)],
)
def test_rows_are_shuffled_to_as_many_tasks_as_there_are_cores(master: str, cores: int) -> None:
    assert session._cores(master) == cores


def test_what_tasks_give_to_a_driver_beside_them_goes_straight_to_it() -> None:
    assert session._of_master("local[2]")["spark.task.maxDirectResultSize"] == session.DIRECT_BYTES
    assert "spark.task.maxDirectResultSize" not in session._of_master("spark://other:7077")


def test_asking_for_the_session_that_runs_leaves_its_partitions(spark: Any) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", 7)
    try:
        assert pk.spark_session("local[2]").conf.get("spark.sql.shuffle.partitions") == "7"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)


def test_its_files_are_its_owners_alone(spark: Any) -> None:
    folder = Path(dict(spark.sparkContext.getConf().getAll())["spark.local.dir"])
    assert folder.stat().st_mode & 0o077 == 0
    assert folder.stat().st_uid == os.getuid()


def listening() -> set[str]:
    """The addresses on which sockets of this machine listen, as Linux lists them."""
    found = set()
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(name).read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A":
                found.add(f"{local} {inode}")
    return found


def owned(process: int) -> set[str]:
    links = (str(path.readlink()) for path in Path(f"/proc/{process}/fd").iterdir() if path.is_symlink())
    return {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:[")}


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="Linux tells who listens")
def test_no_port_of_the_session_is_open_to_others(spark: Any) -> None:
    java = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    inodes = owned(java)
    addresses = {line.split()[0].split(":")[0] for line in listening() if line.split()[1] in inodes}
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert addresses and addresses <= loopback, addresses


def test_workers_run_this_python_and_this_penstock(spark: Any) -> None:
    def tell(batches: Any) -> Any:
        import sys

        import pyarrow as pa

        import penstock

        for _ in batches:
            yield pa.record_batch({"python": [sys.executable], "penstock": [penstock.__file__]})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(tell, "python string, penstock string").collect()
    assert (row.python, row.penstock) == (sys.executable, pk.__file__)


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="Linux tells who was started how")
def test_workers_are_forked_from_our_daemon_which_has_loaded_nothing(spark: Any) -> None:
    def tell(batches: Any) -> Any:
        import os
        from pathlib import Path

        import pyarrow as pa

        daemon = Path("/proc", str(os.getppid()))
        started, maps = (daemon / "cmdline").read_text(), (daemon / "maps").read_text()
        threads = len(list((daemon / "task").iterdir()))
        for _ in batches:
            heavy = any(name in maps for name in ("libarrow", "numpy", "polars"))
            yield pa.record_batch({"started": [started], "threads": [threads], "heavy": [heavy]})

    schema = "started string, threads long, heavy boolean"
    (row,) = spark.range(0, 1, 1, 1).mapInArrow(tell, schema).collect()
    assert session.DAEMON in row.started.split("\0")
    assert row.threads == 1
    assert not row.heavy or not PASSES_START, "PySpark's own daemon loads NumPy before Spark 4.2"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other allocators")
def test_a_worker_finds_the_memory_again_that_it_has_freed(spark: Any) -> None:
    def tell(batches: Any) -> Any:
        import os
        import resource

        import numpy as np
        import pyarrow as pa

        def use() -> None:
            for array in [np.empty(1 << 20, np.uint8) for _ in range(60)]:
                array[:: 1 << 12] = 1

        faults = []
        for _ in range(3):
            use()
            faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
        reported = [name for name, value in ALLOCATORS.items() if os.environ[name].endswith(value)]
        for _ in batches:
            yield pa.record_batch({"faults": [faults[-1] - faults[-2]], "reported": [reported]})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(tell, "faults long, reported array<string>").collect()
    assert row.reported == list(ALLOCATORS)
    assert row.faults < 60 * 256 / 10  # a fault for each page of 4 KB, if they are new


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="Linux can be told when to acknowledge")
def test_a_worker_tells_tcp_to_acknowledge_at_once_before_every_task() -> None:
    said: list[Any] = []

    class Connection:
        family = socket.AF_INET

        def setsockopt(self, *option: int) -> None:
            said.append(option)

    def work(connection: Any, authenticated: bool) -> int:
        said.append((connection, authenticated))
        return 7

    connection, quickly = Connection(), (socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    worker = prompt(work)
    assert [worker(connection, False), worker(connection, True)] == [7, 7]  # type: ignore[arg-type]
    assert said == [quickly, (connection, False), quickly, (connection, True)]


def test_a_worker_behind_a_unix_socket_is_left_as_it_is() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert (
            prompt(lambda connection, authenticated: int(connection is one and authenticated))(one, True) == 1
        )


@pytest.mark.parametrize(
    ("versions", "words"),
    [
        ({"pyspark": None}, "not installed"),
        ({"pyspark": "3.5.9"}, "too old"),
        ({"pyspark": "4.3.0", "pandas": "3.0.1"}, "pandas<3"),
    ],
)
def test_what_spark_needs_is_checked_first(
    versions: dict[str, str | None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        found = versions.get(name)
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(session, "version", version)
    with pytest.raises(pk.EngineError, match=words):
        pk.spark_session()


def test_a_cluster_keeps_its_own_addresses_secrets_and_pythons() -> None:
    given = session._settings("spark://head:7077", "2g", False)
    assert given["spark.driver.memory"] == "2g"
    assert given["spark.sql.session.timeZone"] == "UTC"
    theirs = (
        "spark.authenticate",
        "spark.driver.host",
        "spark.local.dir",
        "spark.pyspark",
        "spark.executorEnv",
        "spark.python",
    )
    assert not [name for name in given if name.startswith(theirs)]


@pytest.mark.parametrize("master", ["spark://127.0.0.1:7077", "spark://localhost:7077"])
def test_a_driver_of_a_cluster_on_this_machine_stays_on_loopback(master: str) -> None:
    given = session._settings(master, None, False)
    assert given["spark.driver.host"] == given["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.authenticate.secret" not in given


@pytest.mark.parametrize("master", ["local", "local[2,4]", "local-cluster[2,1,512]"])
def test_local_masters_stay_on_loopback_and_ask_for_a_secret(master: str) -> None:
    given = session._settings(master, None, False)
    assert len(given["spark.authenticate.secret"]) == 64
    assert given["spark.driver.bindAddress"] == "127.0.0.1"


def test_a_token_in_an_address_is_refused() -> None:
    with pytest.raises(pk.EngineError, match="SPARK_CONNECT_AUTHENTICATE_TOKEN") as caught:
        pk.spark_session("sc://server:15002/;token=hidden")
    assert "hidden" not in str(caught.value)


def test_settings_can_be_overridden() -> None:
    assert session.safe_settings(memory="2g", ui=True)["spark.ui.enabled"] == "true"
    assert session.safe_settings(memory="2g")["spark.driver.memory"] == "2g"
