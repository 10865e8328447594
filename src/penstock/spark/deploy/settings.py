"""What `to_spark` requires of a session: its version, its executors, and settings that streams need."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from penstock.errors import EngineError, SparkSettingWarning, UnsupportedError
from penstock.spark.deploy.beside_driver import show_archive
from penstock.spark.deploy.preflight import require_penstock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST = (4, 0)
# A setting of the session itself, so that each session is checked once, and that users can set to "passed" to skip the check.
CHECKED = "spark.penstock.preflight"
PASSED, PASSED_STREAMS = "passed", "passed-streams"
_PARTITIONS = "spark.sql.shuffle.partitions"
_EMPTY = "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart"
_MANY_TASKS = 8  # per core: at some ten milliseconds each, they take longer than a small batch


def require_session(spark: SparkSession, streaming: bool, cores: int) -> None:
    """Refuse a session that cannot run queries, and warn of settings that streams should not have. Runs one small job per session."""
    require_version(spark.version)
    if streaming and is_connect(spark):
        raise UnsupportedError(
            "streaming queries do not run over Spark Connect: the sources and the state of a stream need the driver's process; "
            "start them in a classic session (spark://, yarn, k8s:// or local), or collect what is there in this one"
        )
    checked = _setting(spark, CHECKED)
    if checked == PASSED_STREAMS or (checked == PASSED and not streaming):
        return
    show_archive(spark)
    if checked is None or streaming:
        require_penstock(spark, streaming)
    if streaming:
        for problem in stream_problems(_setting(spark, _PARTITIONS), _setting(spark, _EMPTY), cores):
            warnings.warn(problem, SparkSettingWarning, stacklevel=4)
    spark.conf.set(CHECKED, PASSED_STREAMS if streaming else PASSED)


def is_connect(spark: Any) -> bool:
    """Return whether a session is a client of Spark Connect."""
    return ".connect." in f"{type(spark).__module__}."


def require_version(version: str) -> None:
    """Refuse old sessions.

    >>> require_version("3.5.9")
    Traceback (most recent call last):
    penstock.errors.EngineError: this session runs Spark 3.5.9; to_spark needs Spark 4.0 or newer
    """
    if numbers(version) < OLDEST:
        raise EngineError(
            f"this session runs Spark {version}; to_spark needs Spark {OLDEST[0]}.{OLDEST[1]} or newer"
        )


def numbers(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version.

    >>> numbers("4.1.0-preview1"), numbers("4.0-amzn-0")
    ((4, 1), (4, 0))
    """
    return tuple(int(part) for part in version.partition("-")[0].split(".")[:2] if part.isdigit())


def stream_problems(partitions: str | None, empty: str | None, cores: int) -> list[str]:
    """Describe settings that harm streams, one line each.

    >>> stream_problems("2", "false", 2)
    []
    """
    found = []
    if partitions is not None and int(partitions) > _MANY_TASKS * cores:
        found.append(
            f"{_PARTITIONS} is {partitions}, and {cores} tasks run at once: every batch of a stream runs as many tasks as "
            f"partitions; set it to {cores} before the first start (a checkpoint keeps it)"
        )
    if empty == "true":
        found.append(
            f"{_EMPTY} is true: a query whose driver is killed during its first batch cannot start again on its checkpoint; "
            "set it to false"
        )
    return found


def _setting(spark: Any, name: str) -> str | None:
    found = spark.conf.get(name, None)
    return None if found is None else str(found)
