"""Delta and Iceberg tables written by Spark are read with the values that Spark reads, by `scan` and by `table_scan`.

There are packages of both for Spark 4.0 and 4.1, of Delta for 4.2 too, and of neither for 4.3: 4.1 writes.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import ipc

import penstock as pk
from scripts.spark_matrix import ROOT, environment
from tests.spark.agree import assert_same
from tests.spark.tables_of_spark import PACKAGES, SPARK, TABLES, money

pytestmark = pytest.mark.campaign  # another version of Spark, and packages fetched by Maven coordinates


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from benchmarks.maven import NoPackage, fetched

    try:
        folders = [fetched(name) for name in PACKAGES]
    except NoPackage as reason:
        pytest.skip(f"TABLES OF SPARK ARE NOT TESTED: {reason}")
    own = ("delta-", "iceberg-", "unitycatalog-")  # Spark has the others
    jars = [str(jar) for folder in folders for jar in folder.glob("*.jar") if jar.name.startswith(own)]
    folder = tmp_path_factory.mktemp("tables")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK"))}
    done = subprocess.run(
        [environment(SPARK), "-m", "tests.spark.tables_of_spark", str(folder), ",".join(jars)],
        cwd=ROOT,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6_000:]
    return folder


def table(path: Path) -> pa.Table:
    with ipc.open_file(path) as file:
        return file.read_all()


def alike(given: pa.Table, expected: pa.Table) -> pa.Table:
    """Return a table with types that differ only in what Spark cannot say: units, zones and the sizes of offsets."""
    return given.select(expected.column_names).cast(expected.schema)


@pytest.mark.parametrize(("kind", "name"), TABLES, ids=lambda text: text)
def test_a_table_has_the_rows_that_spark_reads(written: Path, kind: str, name: str) -> None:
    expected = table(written / f"{kind}-{name}.arrow")
    location = json.loads((written / "locations.json").read_text())[f"{kind}-{name}"]
    stream: Any = pk.scan(location, time="t", format=kind)
    assert_same(expected, alike(stream.collect(), expected), "scan")
    assert_same(expected, alike(table(written / f"{kind}-{name}-scanned.arrow"), expected), "table_scan")
    windows = stream.window("10s").agg(n=pk.count(), d=pk.sum(pk.col(money(stream)))).collect()
    assert windows["n"].to_pylist()
    on_spark = table(written / f"{kind}-{name}-windows.arrow")
    assert_same(windows, alike(on_spark, windows), "table_scan on Spark")
