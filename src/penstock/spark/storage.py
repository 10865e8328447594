"""How Spark's tasks reach files: by what the user gave, else by Spark's configuration, else by their own environment.

What a task needs travels inside the function that it runs, never in a plan, an option or a setting (decision 101).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.plan.nodes import Plan, Source
from penstock.plan.schema import sources_of
from penstock.sources.bound import Bound, access_of
from penstock.storage.access import LOCAL, Access
from penstock.storage.filesystems import PREFIX
from penstock.storage.uri import is_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.streaming.source import PayloadSource

Accesses = Mapping[str, Access]
Format = TypeVar("Format", bound="type[PayloadSource]")


def accesses_of(spark: SparkSession, plan: Plan, bound: Mapping[str, Bound]) -> dict[str, Access]:
    """Return how each stream's files are reached: those it reads, and those for its late and malformed rows."""
    return {source.name: _access(spark, source, access_of(bound[source.name])) for source in sources_of(plan)}


def _access(spark: SparkSession, source: Source, known: Access) -> Access:
    folders = (source.edges.late_to, source.edges.quarantine_to)
    uri = next((folder for folder in folders if isinstance(folder, str) and is_uri(folder)), None)
    return known if uri is None or known.given else known.or_hadoop(hadoop_settings(spark), uri)


def active_access(path: str) -> Access:
    """Return the access that the configuration of this process's Spark session gives, if there is one."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - called if Spark is loaded

    spark = SparkSession.getActiveSession()
    return LOCAL if spark is None else LOCAL.or_hadoop(hadoop_settings(spark), path)


def hadoop_settings(spark: SparkSession) -> dict[str, str]:
    """Return `spark.hadoop.*` without the prefix. A client of Spark Connect reads those of its session."""
    try:
        pairs = dict(spark.sparkContext.getConf().getAll())
    except Exception:  # noqa: BLE001 - the exception type exists only in Connect
        pairs = {}
    pairs |= _runtime(spark)
    return {name.removeprefix(PREFIX): value for name, value in pairs.items() if name.startswith(PREFIX)}


def _runtime(spark: SparkSession) -> dict[str, str]:
    """Return the settings of the session, which may be set later than those of the context."""
    return {str(name): str(value) for name, value in spark.conf.getAll.items()}


def with_access(source: Format, access: Access, **others: Access) -> Format:
    """Return a data source that holds the access to its files. Spark sends it to tasks as code, and shows its name only."""
    given = {"ACCESS": access, **others}
    if not any(argument.given for argument in given.values()):
        return source
    name = f"{source.FORMAT}_{secrets.token_hex(8)}"
    made: Any = type(f"{source.__name__}WithAccess", (source,), {"FORMAT": name, **given})
    return made  # type: ignore[no-any-return]
