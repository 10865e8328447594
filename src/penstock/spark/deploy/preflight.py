"""Run small jobs that report on the executors of a session."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import penstock
from penstock.errors import EngineError
from penstock.spark.storage import hadoop_settings
from penstock.storage.access import LOCAL
from penstock.storage.options import Pairs
from penstock.storage.uri import is_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LINGER = 0.2  # seconds that a task of a full survey occupies its core
_ROUNDS = 5
ADVICE = (
    "call pk.ship(spark), or start the session with the archive of `penstock pack` (docs/how_to/deploy.md)"
)


@dataclass(frozen=True, slots=True)
class Executor:
    """The report of one executor. `late` is how far its clock is outside the time of the job, in seconds."""

    host: str
    python: str
    system: str
    machine: str
    cores: int
    features: frozenset[str]
    memory: int
    penstock: str | None
    problem: str | None
    versions: Mapping[str, str | None]
    paths: Mapping[str, str] = field(default_factory=dict)
    late: float = 0.0

    @staticmethod
    def of(found: Mapping[str, Any], began: float, ended: float) -> Executor:
        """Read a report of `survey.py`."""
        clock = float(found["clock"])
        late = min(clock - began, 0.0) or max(clock - ended, 0.0)
        plain = {name: found[name] for name in ("host", "python", "system", "machine", "cores", "memory")}
        own = {name: found[name] for name in ("penstock", "problem", "versions")}
        return Executor(
            **plain, **own, features=frozenset(found["features"]), paths=dict(found["paths"]), late=late
        )

    def obstacle(self, streaming: bool = False) -> str | None:
        """Say why queries cannot run here, if they cannot. Streams need pandas too."""
        if self.problem is not None and self.penstock is None:
            return f"executors cannot import Penstock ({self.problem}): {ADVICE}"
        if self.problem is not None:
            return f"executors lack packages of Penstock ({self.problem}): {ADVICE}"
        if self.penstock != penstock.__version__:
            return (
                f"executors have Penstock {self.penstock}, and this process {penstock.__version__}: {ADVICE}"
            )
        if streaming and self.versions["pandas"] is None:
            return f"executors lack pandas, which Spark needs for streams: {ADVICE}"
        return None


def require_penstock(spark: SparkSession, streaming: bool = False) -> None:
    """Run one task, and raise an error in one line unless executors have this Penstock."""
    for executor in surveyed(spark, tasks=1):
        obstacle = executor.obstacle(streaming)
        if obstacle is not None:
            raise EngineError(obstacle)


def survey(spark: SparkSession, paths: Sequence[str] = ()) -> list[Executor]:
    """Return the reports of all executors. Tasks are repeated until every known executor has reported."""
    from penstock.spark.frame import parallelism  # noqa: PLC0415 - imports the whole engine

    found: dict[tuple[str, str], Executor] = {}
    for _ in range(_ROUNDS):
        before = len(found)
        found.update(_survey(spark, 2 * parallelism(spark), paths, _LINGER))
        if len(found) >= (known := executors_of(spark) or 0) and (known or len(found) == before):
            break
    return [found[name] for name in sorted(found)]


def surveyed(spark: SparkSession, tasks: int, paths: Sequence[str] = ()) -> list[Executor]:
    """Return the reports of the executors that some tasks happen to reach."""
    return list(_survey(spark, tasks, paths, 0).values())


def executors_of(spark: SparkSession) -> int | None:
    """Return the number of executors, if the session reports it: a Connect client does not."""
    try:
        many = int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size())  # noqa: SLF001 - no public way in Python
    except Exception:  # noqa: BLE001 - the exception type exists only in Connect
        return None
    return max(many - 1, 1)  # the driver is among them


def _survey(
    spark: SparkSession, tasks: int, paths: Sequence[str], seconds: float
) -> dict[tuple[str, str], Executor]:
    began = time.time()
    try:
        rows = (
            spark.range(0, tasks, 1, tasks)
            .select(_function(spark, paths, seconds)("id").alias("found"))
            .collect()
        )
    except Exception as error:  # noqa: BLE001 - Spark reports failures of its workers in many types
        raise _plain(error) or error from None
    ended = time.time()
    reports = [json.loads(row.found) for row in rows]
    return {
        (report["host"], str(report["executor"])): Executor.of(report, began, ended) for report in reports
    }


def _function(spark: SparkSession, paths: Sequence[str], seconds: float) -> Any:
    """Return a user-defined function that is shipped by value, and needs neither Penstock nor Arrow."""
    from pyspark import cloudpickle  # noqa: PLC0415 - Spark loads when it is used

    from penstock.spark.deploy import survey as module  # noqa: PLC0415 - its functions are shipped

    kind = "pyspark.sql.connect.functions" if is_connect(spark) else "pyspark.sql.functions"
    udf: Any = import_module(kind).udf
    register: Any = cloudpickle.register_pickle_by_value
    register(module)
    return udf(module.surveyor(_with_options(spark, paths), seconds), "string", useArrow=False)


def _with_options(spark: SparkSession, paths: Sequence[str]) -> dict[str, Pairs]:
    """Return the options that Spark's configuration gives for each path in an object store."""
    if not any(map(is_uri, paths)):
        return dict.fromkeys(paths, ())
    settings = hadoop_settings(spark)
    return {path: LOCAL.or_hadoop(settings, path).options if is_uri(path) else () for path in paths}


def is_connect(spark: SparkSession) -> bool:
    """Check whether a session is a client of a Connect server."""
    return ".connect." in type(spark).__module__


def _plain(error: Exception) -> EngineError | None:
    """Return one line for the usual reasons why no Python task runs at all."""
    text = str(error)
    if "PYTHON_VERSION_MISMATCH" in text:
        found = re.search(r"Python in worker has different version:? \(?'?([\d.]+)", text)
        wanted = f"{sys.version_info[0]}.{sys.version_info[1]}"
        there = f"Python {found[1]}" if found else "another Python"
        return EngineError(
            f"executors run {there}, and this process {wanted}; set PYSPARK_PYTHON to a Python {wanted} that executors have"
        )
    missing = re.search(r'Cannot run program "([^"]+)"', text)
    if missing:
        return EngineError(f"executors have no {missing[1]}; set PYSPARK_PYTHON to a Python that they have")
    return None
