"""A local Spark session with safe defaults."""

from __future__ import annotations

import atexit
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import penstock
from penstock.api.literals import flag, shown
from penstock.errors import EngineError
from penstock.spark.deploy.settings import CHECKED, OLDEST, PASSED_STREAMS, numbers
from penstock.spark.launch import launch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
REMOTE = "sc://"
DAEMON = "penstock.spark.daemon"  # a name: Spark imports the module in separate processes
# The checkpoint file manager. Under Spark's default, Hadoop starts ten programs for each file (chmod once, readlink eight times): 60 ms or
# more, thirty files with every batch of a stream. This one starts two. Both check that a file exists, then rename.
CHECKPOINTS = "FileSystemBasedCheckpointFileManager"
_STREAMING = "org.apache.spark.sql.execution.streaming"
# A worker uses three allocators: Python's (glibc), Arrow's (mimalloc) and Polars' (jemalloc). By default each soon returns freed memory to the
# system, and the next task faults in fresh pages at microseconds each: a third of the read time (decision 85). These settings retain freed
# memory for about one trigger interval. A worker retains no more than it has used.
KEPT_MS, KEPT_BYTES = 30_000, 256 << 20
ALLOCATORS = {
    "MALLOC_TRIM_THRESHOLD_": f"{KEPT_BYTES}",
    "MALLOC_MMAP_THRESHOLD_": f"{32 << 20}",  # the maximum
    "MIMALLOC_PURGE_DELAY": f"{KEPT_MS}",
    # Polars prepends its own options and writes both into the environment.
    "_RJEM_MALLOC_CONF": f"dirty_decay_ms:{KEPT_MS},muzzy_decay_ms:{KEPT_MS}",
}
# In local mode, results up to this size bypass Spark's block store and the network.
DIRECT_BYTES = 64 << 20
LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


def spark_session(
    master: str = "local[*]",
    *,
    name: str = "penstock",
    memory: str | None = None,
    ui: bool = False,
    config: Mapping[str, object] | None = None,
) -> SparkSession:
    """Start a Spark session, or return the running one: quiet and in UTC, by default on this machine only.

    A session on a local master listens on the loopback address, requires a secret, has no web page unless `ui=True`, keeps
    its files in a private folder, registers `spark.read.format("penstock")`, and runs this Python with this Penstock in its
    workers. A shuffle has as many partitions as there are cores: more add cost, most of all to each batch of a stream.

    On a cluster (`spark://…`, `yarn`, `k8s://…`, `sc://…`) the addresses, secrets and Pythons are the cluster's. Give its
    executors Penstock with `pk.ship(spark)`. `config` adds or overrides settings. No setting is on a command line, where
    other users could read secrets.

    >>> import penstock as pk                                        # doctest: +SKIP
    >>> spark = pk.spark_session()                                   # doctest: +SKIP
    >>> query.to_spark(spark).show()                                 # doctest: +SKIP
    """
    _check_arguments(master, name, memory, ui, config)
    require_spark()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - Spark loads when it is used

    runs = SparkSession.getActiveSession() is not None  # settings changed since its start are kept
    own = {} if runs else _of_master(master)
    given = {**own, **_settings(master, memory, ui), **(config or {})}
    settings = {key: _text(value) for key, value in given.items()}
    spark = _remote(master, settings) if master.startswith(REMOTE) else _classic(master, name, settings)
    from penstock.spark.source import register  # noqa: PLC0415 - needs pyspark

    register(spark)
    if not runs and is_local(master):
        spark.conf.set(CHECKED, PASSED_STREAMS)  # its workers are this Python with this Penstock
    return spark


def _classic(master: str, name: str, settings: Mapping[str, str]) -> SparkSession:
    """Start or return a session with a JVM of this process."""
    from pyspark.sql import SparkSession, is_remote  # noqa: PLC0415 - Spark loads when it is used

    # Spark starts processes before it reads its settings: these variables reach them.
    if is_local(master) or _on_loopback(master):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    if is_local(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if not is_remote():
        launch({"spark.master": master, "spark.app.name": name, **settings}, _private_folder())
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _remote(address: str, settings: Mapping[str, str]) -> SparkSession:
    """Connect to a server, whose own settings hold."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - Spark loads when it is used

    if "token=" in address.lower():
        raise EngineError("a token in an address reaches logs; set SPARK_CONNECT_AUTHENTICATE_TOKEN instead")
    builder = SparkSession.builder.remote(address)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def is_local(master: str) -> bool:
    """Check whether a master runs everything on this machine, and ends with this process."""
    return master.startswith("local")


def _on_loopback(master: str) -> bool:
    return re.match(r"spark://(127\.|localhost\b|\[::1\])", master) is not None


def _check_arguments(master: object, name: object, memory: object, ui: object, config: object) -> None:
    """Reject invalid arguments before Spark takes seconds to start."""
    wanted = (("master", master, "local[2]"), ("name", name, "penstock"), ("memory", memory or "2g", "2g"))
    for what, given, example in wanted:
        if not isinstance(given, str) or not given:
            raise EngineError(f"{what} is {shown(given)}; it is a text, such as {example!r}")
    flag(ui, "ui")
    if not isinstance(config, Mapping | None) or not all(
        isinstance(setting, str) for setting in config or ()
    ):
        raise EngineError(
            f"config is {shown(config)}; it is a mapping of settings, such as {{'spark.executor.memory': '4g'}}"
        )


def _of_master(master: str) -> dict[str, int]:
    """Return the settings that depend on the cores of a local master. Those of a cluster are unknown before it has started."""
    if not is_local(master):
        return {}
    return {"spark.sql.shuffle.partitions": _cores(master), "spark.task.maxDirectResultSize": DIRECT_BYTES}


def _cores(master: str) -> int:
    """Return the number of cores of a local master: the number it names, or all cores."""
    if master == "local":
        return 1
    named = re.match(r"local\[(\d+)", master)
    return int(named[1]) if named else (os.cpu_count() or 1)


def _settings(master: str, memory: str | None, ui: bool) -> dict[str, str]:
    if master.startswith(REMOTE):
        return {"spark.sql.session.timeZone": "UTC"}
    if is_local(master):
        return safe_settings(memory, ui)
    here = _loopback_settings() if _on_loopback(master) else {}
    return {**common_settings(memory, ui), **here}


def safe_settings(memory: str | None = None, ui: bool = False) -> dict[str, str]:
    """Return the settings of a session on this machine, which block access from the network and from other users."""
    folder = _private_folder()
    return {
        **common_settings(memory, ui),
        **_loopback_settings(),
        "spark.authenticate": "true",
        "spark.authenticate.secret": secrets.token_hex(32),
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": str(Path(folder) / "warehouse"),
        "spark.sql.streaming.checkpointFileManagerClass": _checkpoint_manager(),
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        "spark.executorEnv.PYTHONPATH": workers_path(),
        "spark.python.daemon.module": DAEMON,
        **{f"spark.executorEnv.{name}": value for name, value in ALLOCATORS.items()},
    }


def common_settings(memory: str | None = None, ui: bool = False) -> dict[str, str]:
    """Return the settings that suit any master."""
    settings = {
        "spark.ui.enabled": _text(ui),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # A driver killed while it writes its first offsets leaves a temporary file. With this check, Spark would never start there again (decision 87).
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
        "spark.log.level": "ERROR",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_quiet_logging(_private_folder())}",
        # Spark's default pattern misses some of these; the log of settings would show them.
        "spark.redaction.regex": "(?i)secret|password|passphrase|token|credential|api.?key|access.?key",
    }
    return settings if memory is None else {**settings, "spark.driver.memory": memory}


def _loopback_settings() -> dict[str, str]:
    return {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}


def _checkpoint_manager() -> str:
    """Return the class of the checkpoint file manager, which moved in Spark 4.1."""
    moved = "checkpointing." if numbers(_installed("pyspark") or "") >= (4, 1) else ""
    return f"{_STREAMING}.{moved}{CHECKPOINTS}"


def workers_path() -> str:
    """Return the PYTHONPATH of workers: this Penstock first, then the PYTHONPATH of this process."""
    package = str(Path(penstock.__file__).resolve().parent.parent)
    return os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))


def require_spark() -> None:
    """Check the versions of pyspark and pandas before Java starts and fails with a less clear error."""
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        raise EngineError("pyspark is not installed; pip install 'penstock[spark]'") from None
    if numbers(found) < OLDEST:
        raise EngineError(f"pyspark {found} is too old; pip install 'pyspark>={OLDEST[0]}.{OLDEST[1]}'")
    pandas = _installed("pandas")
    if pandas is not None and numbers(pandas) >= (3,):
        raise EngineError(f"pyspark does not work with pandas {pandas}; pip install 'pandas<3'")


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def _private_folder() -> str:
    """Create a folder that only the owner can read and that is deleted at exit."""
    folder = tempfile.mkdtemp(prefix="penstock-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _quiet_logging(folder: str) -> str:
    """Write a log4j2 configuration that logs errors only, also before the session has read its settings."""
    path = Path(folder) / "log4j2.properties"
    path.write_text(LOGGING, encoding="utf-8")
    return path.as_uri()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
