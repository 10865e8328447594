"""Tables of Spark's catalogs: those of Parquet, Delta and Iceberg files are read as files, others as DataFrames.

The catalog gives the location of a table and, for Parquet tables, its files; executors read those themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.api.literals import shown
from penstock.api.source_options import Folder, LateTo, access_to, edges_of
from penstock.api.sources import stream_of
from penstock.api.stream import Stream
from penstock.errors import EngineError, SourceError
from penstock.sources.bound import Bound
from penstock.sources.dataset import open_data
from penstock.sources.lake.table import DataFile, LakeTable, by_name
from penstock.sources.paths import values_of_folders
from penstock.spark.bound import bound_frame, zone_of
from penstock.spark.types import arrow_schema
from penstock.storage.uri import resolved
from penstock.types.arrow import checked
from penstock.types.duration import Duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def table_scan(
    table: str,
    *,
    time: str,
    spark: SparkSession | None = None,
    name: str | None = None,
    sequence: str | None = None,
    lateness: Duration | None = None,
    unit: str | None = None,
    on_bad: str | None = None,
    late_to: LateTo | None = None,
    quarantine_to: Folder | None = None,
    idle_after: Duration | None = None,
    storage_options: dict[str, object] | None = None,
) -> Stream:
    """Create a stream from a table of Spark's catalogs: `catalog.db.table`, by default those of the running session.

    Files of Parquet, Delta and Iceberg tables are read by tasks themselves, as with `scan`, also outside of Spark;
    `storage_options=` are as there. Views and other tables are read through Spark, as with `from_spark`.

    >>> import penstock as pk                                                          # doctest: +SKIP
    >>> trades = pk.table_scan("lake.market.trades", time="ts", spark=spark)           # doctest: +SKIP
    >>> trades.window("1m", by="symbol").agg(high=pk.max("price")).to_spark(spark)     # doctest: +SKIP
    """
    session = _session(spark)
    if not isinstance(table, str) or not table:
        raise SourceError(
            f"table_scan takes the name of a table, such as 'catalog.db.table', not {shown(table)}"
        )
    bound = _bound(session, table, time, sequence, storage_options)
    edges = edges_of(on_bad, late_to, quarantine_to, idle_after)
    return stream_of(name, bound.schema, time, sequence, lateness, unit, on_bad, bound, edges)


def _session(given: SparkSession | None) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - Spark loads when it is used

    session = given or SparkSession.getActiveSession()
    if not hasattr(session, "catalog"):
        raise EngineError("table_scan needs a Spark session; give spark=pk.spark_session()")
    return session  # type: ignore[return-value]


def _bound(spark: SparkSession, table: str, time: str, sequence: str | None, options: Any) -> Bound:
    """Bind the files of a table, or its DataFrame."""
    about = _described(spark, table)
    location = about.get("Location", "")
    access = access_to(location, options) if location else None
    match about.get("Provider", "").lower():
        case "parquet" if access is not None:
            files = _parquet_files(spark, table, resolved(location).rstrip("/"))
            if files is not None:
                schema = checked(arrow_schema(spark.table(_quoted(table)).schema, zone_of(spark)))
                return LakeTable(schema, tuple(files), by_name(schema, {}), access)
        case "delta" if access is not None:
            return open_data(location, "delta", access=access)
        case "iceberg" if access is not None:
            return open_data(_iceberg_metadata(spark, table), "iceberg", access=access)
    return bound_frame(spark.table(_quoted(table)), time, sequence)


def _described(spark: SparkSession, table: str) -> dict[str, str]:
    """Return what the catalog says about a table: of repeated names, such as a column `Location`, the last."""
    try:
        rows = spark.sql(f"describe table extended {_quoted(table)}").collect()
    except Exception as reason:  # noqa: BLE001 - classic sessions and Connect raise different types
        why = next(iter(str(reason).splitlines()), type(reason).__name__)
        raise SourceError(
            f"the table {table!r} cannot be found: {why:.200}; check its name and the catalog"
        ) from None
    return {str(row[0]).strip(): str(row[1]) for row in rows}


def _quoted(table: str) -> str:
    """Quote each part of a name: nothing in it is SQL.

    >>> _quoted("lake.`my db`.trades"), _quoted("a;drop")
    ('`lake`.`my db`.`trades`', '`a;drop`')
    """
    parts = [part.strip("`") for part in table.split(".")]
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def _parquet_files(spark: SparkSession, table: str, root: str) -> Sequence[DataFile] | None:
    """List the files of a table in the catalog; None if folder names do not hold the values of its partitions."""
    partitioned = [
        listColumn.name for listColumn in spark.catalog.listColumns(_quoted(table)) if listColumn.isPartition
    ]
    paths = [_path(inputFile) for inputFile in spark.table(_quoted(table)).inputFiles()]
    if not all(path.startswith(f"{root}/") for path in paths):
        return None
    files = [
        DataFile(path, values_of_folders(path[len(root) + 1 :].split("/")[:-1])) for path in sorted(paths)
    ]
    reported = all([name for name, _ in file.partition] == partitioned for file in files)
    return files if reported else None


def _path(uri: str) -> str:
    """Decode a URI of Spark, which is percent-encoded whatever its scheme."""
    return resolved(uri) if uri.startswith("file:") else resolved(unquote(uri))


def _iceberg_metadata(spark: SparkSession, table: str) -> str:
    """Return the current metadata file. A folder may hold newer ones, of commits that failed."""
    log = spark.table(f"{_quoted(table)}.metadata_log_entries")
    return str(log.orderBy("timestamp", ascending=False).select("file").first()[0])  # type: ignore[index]
