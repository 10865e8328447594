"""A standalone Spark cluster on the loopback address: a master and workers, as processes of their own."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import threading
import venv
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

LOOPBACK = "127.0.0.1"
CORES = 1
MEMORY = "1g"


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs. `python` starts its executors' Python, which has no packages."""

    master: str
    folder: Path
    python: str
    secret: str = field(repr=False)

    @property
    def settings(self) -> dict[str, object]:
        """The settings of a session that a user of this cluster would write."""
        return {
            "spark.authenticate": True,
            "spark.authenticate.secret": self.secret,
            "spark.executor.memory": MEMORY,
            "spark.executor.cores": CORES,
            "spark.cores.max": 2 * CORES,
            "spark.scheduler.minRegisteredResourcesRatio": 1,
            "spark.sql.shuffle.partitions": 2,
        }


@contextmanager
def started(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """Start a master and workers that ask for a secret, and stop them at the end."""
    python = bare_python(folder / "python")
    secret = secrets.token_hex(16)
    properties = folder / "cluster.properties"
    properties.touch(mode=0o600)
    properties.write_text(f"spark.authenticate true\nspark.authenticate.secret {secret}\n")
    with ExitStack() as stack:

        def start(name: str, *arguments: str) -> Iterator[str]:
            return stack.enter_context(_process(properties, name, arguments))

        ports = ("--host", LOOPBACK, "--port", "0", "--webui-port", "0")
        master = _reported(start("master.Master", *ports), r"Starting Spark master at (spark://\S+)")
        asked = [
            start(
                "worker.Worker",
                *ports,
                "-c",
                f"{CORES}",
                "-m",
                MEMORY,
                "-d",
                str(folder / f"work-{n}"),
                master,
            )
            for n in range(workers)
        ]
        for lines in asked:
            _reported(lines, r"Successfully registered with master (\S+)")
        yield Cluster(master, folder, python, secret)


@contextmanager
def connect_server(cluster: Cluster, own: Mapping[str, object]) -> Iterator[str]:
    """Start a Connect server with settings of its own as an application of the cluster, and return its address."""
    properties = cluster.folder / "connect.properties"
    properties.touch(mode=0o600)
    binding = {"spark.connect.grpc.binding.address": LOOPBACK, "spark.connect.grpc.binding.port": 0}
    here = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK, "spark.ui.enabled": "false"}
    given = {"spark.master": cluster.master, **cluster.settings, **own, **binding, **here}
    properties.write_text("".join(f"{name} {str(value).lower()}\n" for name, value in given.items()))
    arguments = ("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal")
    more = {"PYSPARK_PYTHON": cluster.python, "SPARK_DAEMON_MEMORY": "1g"}
    with _process(properties, "SparkSubmit", arguments, more) as lines:
        port = _reported(lines, r"Spark Connect server started at: \S*?:(\d+)")
        yield f"sc://{LOOPBACK}:{port}"


def bare_python(folder: Path) -> str:
    """Make a virtual environment without packages: not even pip."""
    venv.create(folder, with_pip=False, symlinks=True)
    return str(folder / "bin" / "python")


@contextmanager
def _process(
    properties: Path, name: str, arguments: tuple[str, ...], more: dict[str, str] | None = None
) -> Iterator[Iterator[str]]:
    home = Path(pyspark.__file__).parent
    environment = {
        **{
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("PYTHON", "PYSPARK", "SPARK"))
        },
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_CONF_DIR": str(properties.parent),
        "SPARK_DAEMON_MEMORY": "256m",
        **(more or {}),
    }
    command = [
        str(home / "bin" / "spark-class"),
        f"org.apache.spark.deploy.{name}",
        "--properties-file",
        str(properties),
        *arguments,
    ]
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=properties.parent,
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        yield iter(process.stderr.readline, "")
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


def _reported(lines: Iterator[str], pattern: str) -> str:
    """Read the log up to a line, then go on reading it in a thread, so that the process never blocks."""
    seen = []
    for line in lines:
        seen.append(line)
        found = re.search(pattern, line)
        if found:
            threading.Thread(target=lambda: sum(1 for _ in lines), daemon=True).start()
            return found[1]
    raise AssertionError("".join(line for line in seen if not line.startswith("\tat "))[-4_000:])
