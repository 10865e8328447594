"""Write Delta and Iceberg tables with Spark's own packages, in a process with a version of Spark for which there are some.

Each table is left with what Spark reads from it, and what `table_scan` in the same session gives, as files of Arrow.

    python -m tests.spark.tables_of_spark FOLDER JARS
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import ipc

import penstock as pk

SPARK = "4.1.4"
PACKAGES = ("io.delta:delta-spark_4.1_2.13:4.4.0", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0")
ROWS = """select timestamp_micros(id * 1000000) as t, id as n, cast(id % 5 as int) as v,
    case id % 4 when 0 then 'a b' when 1 then 'c/d=%' when 2 then 'é' end as k,
    cast(id * 1.25 - 20 as decimal(9, 2)) as d, named_struct('x', cast(id as int), 'y', string(id)) as s
    from range({}, {})"""

# Statements by table. `{}` is its name; rows of a range are `<from, to>`.
DELTA = {
    "plain": ["create table {} using delta as <0, 50>", "insert into {} <50, 80>"],
    "partitioned": [
        "create table {} using delta partitioned by (k) as <0, 60>",
        "delete from {} where k = 'é' and n > 20",
        "update {} set v = -1 where n < 10",
    ],
    "deletion_vectors": [
        "create table {} using delta tblproperties ('delta.enableDeletionVectors' = true) as <0, 90>",
        "delete from {} where n % 3 = 0",
        "insert into {} <90, 100>",
        "delete from {} where n = 95",
    ],
    "columns_by_name": [
        "create table {} using delta tblproperties ('delta.columnMapping.mode' = 'name') as <0, 30>",
        "alter table {} rename column v to value",
        "alter table {} drop column k",
        "alter table {} add columns (k bigint)",
        "insert into {} select t, n, value, d, s, n * 2 from {}",
    ],
    "columns_by_id": [
        "create table {} using delta tblproperties ('delta.columnMapping.mode' = 'id') as <0, 30>",
        "alter table {} rename column d to price",
        "insert into {} <30, 40>",
    ],
    "widened": [
        "create table {} using delta tblproperties ('delta.enableTypeWidening' = true) as <0, 30>",
        "alter table {} change column v type bigint",
        "alter table {} change column d type decimal(20, 4)",
        "insert into {} select t, n, v + 5000000000, k, d / 8, s from {}",
    ],
    "checkpointed": [
        "create table {} using delta tblproperties ('delta.checkpointInterval' = 3, 'delta.checkpointPolicy' = 'v2') as <0, 10>",
        *(f"insert into {{}} <{number}0, {number + 1}0>" for number in range(1, 9)),
        "optimize {}",
    ],
    "merged": [
        "create table {} using delta as <0, 40>",
        "merge into {} using (<30, 50>) as fresh on {}.n = fresh.n when matched then update set * when not matched then insert *",
    ],
}
ICEBERG = {
    "plain": ["create table {} using iceberg as <0, 50>", "insert into {} <50, 80>"],
    "partitioned": [
        "create table {} using iceberg partitioned by (days(t), bucket(4, n), k) as <0, 60>",
        "delete from {} where k = 'é' and n > 20",
    ],
    "merge_on_read": [
        "create table {} using iceberg as <0, 90>",
        "alter table {} set tblproperties ('write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read')",
        "delete from {} where n % 3 = 0",
        "update {} set v = -1 where n = 7",
        "insert into {} <90, 100>",
    ],
    "copy_on_write": ["create table {} using iceberg as <0, 40>", "delete from {} where n % 3 = 0"],
    "evolved": [
        "create table {} using iceberg as <0, 30>",
        "alter table {} rename column v to value",
        "alter table {} alter column value type bigint",
        "alter table {} alter column d type decimal(18, 2)",
        "alter table {} drop column k",
        "alter table {} add column k bigint",
        "alter table {} add column s.z double",
        "alter table {} rename column s.x to first",
        "insert into {} select t, n, value + 5000000000, d, named_struct('first', 1, 'y', 'u', 'z', 0.5D), n from {}",
    ],
    "repartitioned": [
        "create table {} using iceberg as <0, 30>",
        "alter table {} add partition field k",
        "insert into {} <30, 60>",
    ],
    "merged": [
        "create table {} using iceberg as <0, 40>",
        "merge into {} using (<30, 50>) as fresh on {}.n = fresh.n when matched then update set * when not matched then insert *",
    ],
}
TABLES = [("delta", name) for name in DELTA] + [("iceberg", name) for name in ICEBERG]


def filled(statement: str, table: str) -> str:
    """Put in the name of the table, and ranges of rows."""
    return re.sub(
        r"<(\d+), (\d+)>", lambda found: ROWS.format(*found.groups()), statement.replace("{}", table)
    )


def main(folder: Path, jars: str) -> None:
    extensions = "io.delta.sql.DeltaSparkSessionExtension,org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    config = {
        "spark.jars": jars,
        "spark.sql.extensions": extensions,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(folder / "iceberg"),
        "spark.sql.warehouse.dir": str(folder / "delta"),
        "spark.sql.shuffle.partitions": 1,
    }
    spark = pk.spark_session("local[2]", memory="1g", config=config)
    try:
        locations = {}
        for kind, name in TABLES:
            locations[f"{kind}-{name}"] = make(spark, kind, name, folder)
        (folder / "locations.json").write_text(json.dumps(locations))
    finally:
        spark.stop()


def make(spark: Any, kind: str, name: str, folder: Path) -> str:
    """Make a table, write what is read from it, and return its location."""
    table = f"spark_catalog.default.{name}" if kind == "delta" else f"lake.db.{name}"
    for statement in (DELTA if kind == "delta" else ICEBERG)[name]:
        spark.sql(filled(statement, table))
    write(spark.table(table).toArrow(), folder / f"{kind}-{name}.arrow")
    scanned = pk.table_scan(table, time="t", spark=spark)
    write(scanned.collect(), folder / f"{kind}-{name}-scanned.arrow")
    windows = scanned.window("10s").agg(n=pk.count(), d=pk.sum(pk.col(money(scanned))))
    write(windows.to_spark(spark, tasks=2).toArrow(), folder / f"{kind}-{name}-windows.arrow")
    return location(spark, table)


def money(stream: Any) -> str:
    return "price" if "price" in stream.schema.names else "d"


def location(spark: Any, table: str) -> str:
    rows = spark.sql(f"describe table extended {table}").collect()
    return str({row[0]: row[1] for row in rows}["Location"]).removeprefix("file:")


def write(table: pa.Table, path: Path) -> None:
    with ipc.new_file(path, table.schema) as file:
        file.write_table(table)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
